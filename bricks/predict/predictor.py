"""Predicts latencies of unmeasured bricks, learned from bricks measured on the same target.

Each kernel has a roofline of its own, fitted to measured bricks. A Gaussian process interpolates
the residuals: close to a measured brick the prediction follows this brick, far from all of them it
returns to the roofline, and its uncertainty grows with the distance. Leaving out one group after
another shows the size of errors and their correlation within a model. Must not know how bricks were
measured, nor how latencies are added up.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.covariance import (
    COVARIANCE_PARAMS,
    STRIPE,
    CovarianceParams,
    Interpolation,
    by_kind,
    feature_matrix,
    noise_of,
)
from bricks.predict.effort import MIN
from bricks.predict.prediction import Prediction
from bricks.predict.roofline import NO_LIMITS, Roofline, RooflineLimits

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures

Array = np.ndarray


# The most training points of a kind: the effort grows with their third power. Keys are digests, so
# the first keys are a random sample.
MAX = 3000


# The error for kernels without a measured brick: a standard deviation of logarithms, found by
# leaving out one operator after another. No prediction is less certain.
_OUT_OF_DISTRIBUTION_SD = 0.8

# Shorter than any latency, so that the absence of a limit has a logarithm.
_TINY_S = 1e-12

# Prior for the common error of predictions, before left-out groups inform it: between half of this
# and twice as much, with a probability of two thirds. Families of the zoo were off by 0.03 to 0.15,
# host by host.
_TYPICAL_BIAS, _BIAS_FACTOR = 0.07, 2.0
# The number of bricks that the pooled error of all classes counts as; and the limit on the weight
# of a single brick's error, as a multiple of the usual error of its kind.
_FEW, _WORST = 10, 5.0


@dataclass(frozen=True, slots=True)
class Field:
    """The model learned for one kind of brick.

    ``process`` interpolates the residuals of the roofline. ``scales`` are multipliers of standard
    deviations: one for each kernel, and under the empty name one for all others. ``kernels`` are
    the kernels with a measured brick, which are in distribution.
    """

    params: CovarianceParams
    roofline: Roofline
    process: Interpolation
    scales: Mapping[str, float]
    kernels: frozenset[str]

    @classmethod
    def fit(
        cls, features: Sequence[BrickFeatures], roofline: Roofline, params: CovarianceParams
    ) -> Field:
        """Fit to measured bricks, to which ``roofline`` was fitted too."""
        roof_s = roofline.seconds(features)
        noise = noise_of(params, roofline.latency_s)
        residuals = np.log(roofline.latency_s / roof_s)
        at = feature_matrix(features, roof_s, params)
        process = Interpolation.fit(params, at, residuals, noise)
        kernels = frozenset(t.kernel for t in features)
        return cls(params, roofline, process, {"": 1.0}, kernels)

    def predict(self, features: Sequence[BrickFeatures]) -> tuple[Array, Array]:
        """Logarithms of latencies, and their standard deviations."""
        roof_s = self.roofline.seconds(features)
        at = feature_matrix(features, roof_s, self.params)
        residuals, variances = self.process.predict(at)
        logs = np.log(roof_s) + residuals
        noise = noise_of(self.params, np.exp(logs))
        scale = np.array([self.scales.get(t.kernel, self.scales[""]) for t in features])
        min_sds = [0.0 if t.kernel in self.kernels else _OUT_OF_DISTRIBUTION_SD for t in features]
        return logs, np.clip(scale * np.sqrt(variances + noise), min_sds, _OUT_OF_DISTRIBUTION_SD)

    def left_out(self, groups: Sequence[Array]) -> list[tuple[Array, Array]]:
        """For each group, errors and variances of its bricks, predicted from all other bricks.

        ``groups`` are positions. Only the roofline has to be fitted again: the group's block of the
        inverse covariance gives
        the rest (Rasmussen and Williams, *Gaussian Processes for Machine Learning*, section 5.4.2).
        """
        from scipy.linalg import solve_triangular

        latency_s = self.roofline.latency_s
        lower = self.process.lower
        assert lower is not None, "errors are computed before the factor is dropped"
        # Single precision suffices from here on, and takes half the time.
        unit = np.eye(len(lower), dtype=np.float32)
        root = solve_triangular(lower.astype(np.float32), unit, lower=True, overwrite_b=True)
        residuals = [
            np.log(latency_s / self.roofline.seconds_without(positions)) for positions in groups
        ]
        whitened = root @ np.array(residuals, np.float32).T
        errors_and_variances = []
        for positions, whitened_residuals in zip(groups, whitened.T, strict=True):
            columns = root[:, positions]
            conditional = np.linalg.inv((columns.T @ columns).astype(np.float64))
            errors_and_variances.append(
                (conditional @ (columns.T @ whitened_residuals), np.diag(conditional))
            )
        return errors_and_variances


@dataclass(frozen=True, slots=True)
class Predictor:
    """Predicts bricks of one target.

    ``learned_from`` is the number of training points. ``fields`` are the models by kind of brick,
    and ``general`` is the roofline for kinds without a measured brick. ``bias`` is the standard
    deviation of an error common to all predictions of a model, so the sum ``P`` of ``n``
    occurrences of each brick has a variance of about
    ``sum((n * latency_s * log_sd) ** 2) + (bias * P) ** 2``. No prediction is faster than
    ``limits`` allow.
    """

    learned_from: int
    bias: float
    fields: Mapping[str, Field]
    general: Roofline
    limits: RooflineLimits = NO_LIMITS

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """Return the predicted latency of each brick, by the keys of ``features``."""
        predictions: dict[str, Prediction] = {}
        for kind, keys in by_kind(features, sorted(features)).items():
            for begin in range(0, len(keys), STRIPE):
                stripe = keys[begin : begin + STRIPE]
                stripe_features = [features[key] for key in stripe]
                logs, sds = self._predict(kind, stripe_features)
                min_latency_s = self.limits.min_latency_s(stripe_features)
                columns = (
                    np.maximum(logs, np.log(np.maximum(min_latency_s, _TINY_S))),
                    sds,
                    min_latency_s,
                )
                for key, log, *rest in zip(stripe, *columns, strict=True):
                    predictions[key] = Prediction(math.exp(log), *map(float, rest))
        return {key: predictions[key] for key in features}

    def scale(self, features: BrickFeatures) -> float:
        """Return the error of predictions for a brick's kernel, relative to the expected error."""
        field = self.fields.get(features.kind)
        return 1.0 if field is None else field.scales.get(features.kernel, field.scales[""])

    def _predict(self, kind: str, features: Sequence[BrickFeatures]) -> tuple[Array, Array]:
        if kind in self.fields:
            return self.fields[kind].predict(features)
        logs = np.log(self.general.seconds(features))
        return logs, np.full(len(features), _OUT_OF_DISTRIBUTION_SD)


def learn(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
) -> Predictor | None:
    """Learn from the bricks that are in both ``features`` and ``latency_s``; None if too few are.

    Latencies are measured in the machine states of ``features``, and include the call overhead.
    ``groups`` are the keys of the bricks of each family of models (or of each model): bricks of
    only one group show the errors to expect for a new group. The order of mappings does not matter,
    and nothing is random.
    """
    measured = sorted(key for key in features if latency_s.get(key, 0.0) > 0)
    if len(measured) < MIN:
        return None
    general = Roofline.fit([features[key] for key in measured], _array(latency_s, measured))
    fields, all_errors = {}, []
    owners = owners_of(groups, measured)
    for kind, keys in by_kind(features, measured).items():
        chosen = keys[:MAX]
        kind_features, seconds = [features[key] for key in chosen], _array(latency_s, chosen)
        roofline = Roofline.fit(kind_features, seconds, general.factors)
        field = Field.fit(kind_features, roofline, COVARIANCE_PARAMS[kind])
        errors = _held_out_errors(field, [owners.get(key) for key in chosen])
        scales = scales_of(errors)
        fields[kind] = replace(field, scales=scales)
        all_errors += [replace(o, log_sd=o.log_sd * scales[o.name]) for o in errors]
    limits = RooflineLimits.fit([features[key] for key in measured], general.latency_s)
    return Predictor(len(measured), bias_of(all_errors), fields, general, limits)


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """The error of a measured brick that was held out with its group: log(measured / predicted).

    ``name`` is its kernel or kind, ``latency_s`` its measured latency, ``log_sd`` the predicted
    standard deviation of the error.
    """

    group: str
    name: str
    latency_s: float
    error: float
    log_sd: float


def _held_out_errors(field: Field, owners: Sequence[str | None]) -> list[HeldOutError]:
    positions: dict[str, list[int]] = {}
    for i, owner in enumerate(owners):
        if owner is not None:
            positions.setdefault(owner, []).append(i)
    groups = {name: np.array(positions[name]) for name in sorted(positions)}
    groups = {name: members for name, members in groups.items() if len(members) < len(owners)}
    held_out = []
    measured = Counter(field.roofline.kernels)
    if groups:
        for group, (errors, variances) in zip(
            groups, field.left_out([*groups.values()]), strict=True
        ):
            members = groups[group]
            kernels, latency_s = field.roofline.kernels[members], field.roofline.latency_s[members]
            rows = zip(kernels, latency_s, errors, np.sqrt(variances), strict=True)
            group_counts = Counter(kernels)
            # A kernel that no other group has is out of distribution: its variance is large.
            held_out += [
                HeldOutError(group, str(name), *map(float, row))
                for name, *row in rows
                if group_counts[name] < measured[name]
            ]
    return held_out


def scales_of(errors: Sequence[HeldOutError]) -> dict[str, float]:
    """Return multipliers of standard deviations by ``name`` of errors, with ``""`` for all others.

    The multiplier of a name with few errors is drawn to the multiplier of all.
    """
    if not errors:
        return {"": 1.0}
    ratios_of_all = [abs(o.error / o.log_sd) for o in errors]
    max_ratio = _WORST * float(np.quantile(ratios_of_all, 0.683))
    ratios: dict[str, list[float]] = {}
    for o, ratio in zip(errors, ratios_of_all, strict=True):
        ratios.setdefault(o.name, []).append(min(max_ratio, ratio))
    squares_of_all = [ratio**2 for of_kernel in ratios.values() for ratio in of_kernel]
    pooled = (_FEW + sum(squares_of_all)) / (_FEW + len(squares_of_all))
    scales = {"": math.sqrt(pooled)}
    for name, of_kernel in sorted(ratios.items()):
        squares = _FEW * pooled + sum(ratio**2 for ratio in of_kernel)
        scales[name] = math.sqrt(squares / (_FEW + len(of_kernel)))
    return scales


def bias_of(errors: Sequence[HeldOutError]) -> float:
    """Return the likely common log-error of a group, beyond the independent errors of its bricks.

    It is a posterior mean. The most likely value would be close to zero as soon as the bricks' own
    errors can explain the groups' errors; without a prior, a few groups would allow almost any
    value.
    """
    log_ratios, explained = [], []
    for group in sorted({o.group for o in errors}):
        members = [o for o in errors if o.group == group]
        predicted_s = np.array([o.latency_s * math.exp(-o.error) for o in members])
        sds = predicted_s * [o.log_sd for o in members] / predicted_s.sum()
        log_ratios.append(math.log(sum(o.latency_s for o in members) / predicted_s.sum()))
        explained.append(float((sds**2).sum()))
    biases = np.geomspace(0.01, 1.0, 100)
    variances = np.array(explained) + biases[:, None] ** 2
    unlikely = (np.log(variances) + np.array(log_ratios) ** 2 / variances).sum(axis=1)
    unlikely += (np.log(biases / _TYPICAL_BIAS) / math.log(_BIAS_FACTOR)) ** 2
    likelihoods = np.exp((unlikely.min() - unlikely) / 2)
    return math.sqrt(float((biases**2 * likelihoods).sum() / likelihoods.sum()))


def owners_of(groups: Mapping[str, Collection[str]], known: Collection[str]) -> dict[str, str]:
    """Return the group of each ``known`` brick that belongs to exactly one group."""
    groups_of: dict[str, set[str]] = {key: set() for key in known}
    for group, keys in groups.items():
        for key in keys:
            if key in groups_of:
                groups_of[key].add(group)
    return {key: next(iter(names)) for key, names in groups_of.items() if len(names) == 1}


def _array(latency_s: Mapping[str, float], keys: Sequence[str]) -> Array:
    return np.array([latency_s[key] for key in keys])
