"""Predicts latencies on a target with few measurements, from latencies on other targets.

The latency of a brick on the other (source) targets explains most of its latency on this target.
The rest is the relative speed of this target for bricks of a kind and size, which a few dozen
measured bricks show. A ridge regression weights the sources; a Gaussian process interpolates its
residuals, as it does for rooflines (:mod:`bricks.predict.predictor`). Cross-validation over
families of models gives the errors. Must not know how bricks were measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np

from bricks.predict.covariance import COVARIANCE_PARAMS, Interpolation, feature_matrix, noise_of
from bricks.predict.features import CONVOLUTION, slowed
from bricks.predict.prediction import Prediction
from bricks.predict.predictor import (
    HeldOutError,
    Predictor,
    bias_of,
    learn,
    owners_of,
    scales_of,
)
from bricks.samples.sensitivity import BrickWork, Sensitivities, changes
from bricks.system.host_conditions import KERNELS

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures
    from bricks.system.host_conditions import HostConditions

Array = np.ndarray

_KINDS = tuple(COVARIANCE_PARAMS)

# The strength of the ridge penalty, and the variance of its residuals relative to those of
# rooflines. Found on half of the families, with targets that are in no report.
_RIDGE_PENALTY, _RESIDUAL_VARIANCE_RATIO = 1.0, 0.25

# The error of a measured latency, as a standard deviation of its logarithm.
_MEASURED_SD = 0.03

# The correlation between the errors of a target's own prediction and of a transferred one.
_ERROR_CORRELATION = 0.6

# The exponent of a source target's weight in the ratio of the best source's error to its own.
_TRUST_EXPONENT = 3.0

_FOLDS = 8


@dataclass(frozen=True, slots=True)
class SourceTarget:
    """A source target: the latencies measured on it in seconds, and the predictor learned from it.

    ``kernels`` are the kernels with a measured brick. Predictions are for ``slowness``. ``host``
    says how long reference kernels take there, as far as it is known or predicted.
    """

    target_key: str
    latency_s: Mapping[str, float]
    predictor: Predictor
    kernels: frozenset[str] = frozenset()
    slowness: float = 0.0
    host: HostConditions | None = None

    def logs(self, features: Mapping[str, BrickFeatures]) -> tuple[Array, Array]:
        """Logarithms of the source's latencies, measured or predicted, and standard deviations."""
        missing = {key: t for key, t in features.items() if self.latency_s.get(key, 0.0) <= 0.0}
        predicted = self.predictor.predict(slowed(missing, self.slowness))
        logs_and_sds = [
            (math.log(predicted[key].latency_s), predicted[key].log_sd)
            if key in predicted
            else (math.log(self.latency_s[key]), _MEASURED_SD)
            for key in features
        ]
        logs, sds = zip(*logs_and_sds, strict=True) if logs_and_sds else ((), ())
        return np.array(logs), np.array(sds)


@dataclass(frozen=True, slots=True)
class _SourceLatencies:
    """Log-latencies on the source targets: a row for each brick, a column for each source.

    ``sds`` are their standard deviations, of the same shape; ``trust`` is a weight for each source.
    """

    features: Sequence[BrickFeatures]
    logs: Array
    sds: Array
    trust: Array

    @classmethod
    def of(
        cls,
        features: Mapping[str, BrickFeatures],
        others: Sequence[SourceTarget],
        trust: Array | None = None,
    ) -> _SourceLatencies:
        columns = [other.logs(features) for other in others]
        logs = np.stack([log for log, _ in columns], axis=1)
        sds = np.stack([sd for _, sd in columns], axis=1)
        return cls(
            list(features.values()), logs, sds, np.ones(len(others)) if trust is None else trust
        )

    def part(self, rows: Array) -> _SourceLatencies:
        features = [self.features[i] for i in rows]
        return _SourceLatencies(features, self.logs[rows], self.sds[rows], self.trust)

    def with_trust(self, logs: Array) -> _SourceLatencies:
        """A copy with weights of the sources by their errors for ``logs``, measured on this target.

        A factor and a power for bricks of each kind are fitted first, and do not count as errors.
        """
        errors = []
        for source_logs in self.logs.T:
            residuals = logs - source_logs
            for kind in _KINDS:
                members = self.of_kind(kind)
                if not len(members):
                    continue
                residuals[members] -= residuals[members].mean()
                size = source_logs[members] - source_logs[members].mean()
                if len(members) > 2 and (size**2).sum() > 0:
                    residuals[members] -= size * (size @ residuals[members]) / (size**2).sum()
            errors.append(max(0.02, float(np.quantile(np.abs(residuals), 0.683))))
        trust = (min(errors) / np.array(errors)) ** _TRUST_EXPONENT
        return replace(self, trust=trust)

    def of_kind(self, kind: str) -> Array:
        return np.array([i for i, t in enumerate(self.features) if t.kind == kind], int)

    @property
    def weights(self) -> Array:
        weights: Array = self.trust / (self.sds**2 + 0.05**2)
        return weights

    @property
    def weighted_mean(self) -> Array:
        """The weighted mean of all sources; more certain sources weigh more."""
        weights = self.weights
        mean: Array = (self.logs * weights).sum(axis=1) / weights.sum(axis=1)
        return mean

    @property
    def design(self) -> Array:
        """The regression's inputs: kinds, sizes, and the deviation of each source from the mean.

        Where a source only predicts a brick, its deviation is scaled by the certainty.
        """
        kinds = np.array([[t.kind == kind for kind in _KINDS] for t in self.features], float)
        weighted_mean = self.weighted_mean
        size = np.clip((weighted_mean - math.log(1e-4)) / 2.0, -2.5, 2.5)[:, None]
        certainty = 1.0 / (1.0 + (self.sds / 0.1) ** 2)
        deviations = np.clip(self.logs - weighted_mean[:, None], -1.0, 1.0) * certainty * self.trust
        return np.concatenate([kinds, kinds * size, deviations], axis=1)


@dataclass(frozen=True, slots=True)
class _Fit:
    """The correction for this target: a ridge regression, and Gaussian processes of its residuals.

    ``slopes`` and ``intercept`` are those of the regression; ``processes`` are by kind of brick.
    """

    slopes: Array
    intercept: float
    processes: Mapping[str, Interpolation]

    @classmethod
    def of(cls, sources: _SourceLatencies, logs: Array) -> _Fit:
        """Fitted to bricks whose log-latencies are known here."""
        from sklearn.linear_model import Ridge  # evaluating what was learned needs none of it

        noise = _noise(sources, logs)
        residuals = logs - sources.weighted_mean
        certainty = 1.0 / noise
        ridge = Ridge(alpha=_RIDGE_PENALTY / float(certainty.mean()))
        ridge.fit(sources.design, residuals, sample_weight=certainty / certainty.mean())
        residuals = residuals - ridge.predict(sources.design)
        processes = {}
        for kind in _KINDS:
            members = sources.of_kind(kind)
            if not len(members):
                continue
            params = COVARIANCE_PARAMS[kind]
            at = feature_matrix(
                [sources.features[i] for i in members],
                np.exp(sources.weighted_mean[members]),
                params,
            )
            processes[kind] = Interpolation.fit(
                params, at, residuals[members], noise[members] / _RESIDUAL_VARIANCE_RATIO
            )
        return cls(ridge.coef_, float(ridge.intercept_), processes)

    def predict(self, sources: _SourceLatencies) -> tuple[Array, Array]:
        """Logarithms of latencies and their standard deviations."""
        weighted_mean = sources.weighted_mean
        logs = weighted_mean + (sources.design @ self.slopes + self.intercept)
        variances = np.zeros(len(logs))
        for kind in _KINDS:
            members = sources.of_kind(kind)
            if not len(members):
                continue
            params = COVARIANCE_PARAMS[kind]
            if kind not in self.processes:
                variances[members] = _RESIDUAL_VARIANCE_RATIO * params.prior
                continue
            at = feature_matrix(
                [sources.features[i] for i in members], np.exp(weighted_mean[members]), params
            )
            correction, variance = self.processes[kind].predict(at)
            logs[members] += correction
            variances[members] = _RESIDUAL_VARIANCE_RATIO * variance
        variances += _noise(sources, logs)
        return logs, np.sqrt(variances)


def _noise(sources: _SourceLatencies, logs: Array) -> Array:
    """The noise variance of each brick, of its latency here and on the sources."""
    of_kind = np.zeros(len(logs))
    for kind in _KINDS:
        members = sources.of_kind(kind)
        of_kind[members] = noise_of(COVARIANCE_PARAMS[kind], np.exp(logs[members]))
    weights = sources.weights / sources.weights.sum(axis=1)[:, None]
    noise: Array = of_kind + ((weights * sources.sds) ** 2).sum(axis=1)
    return noise


@dataclass(frozen=True, slots=True)
class Transfer:
    """Predicts bricks of one target from its own measurements, and from other targets.

    It has the interface of :class:`Predictor`. The two predictions are weighted by their certainty.
    """

    target_predictor: Predictor
    bias: float
    _others: Sequence[SourceTarget]
    _trust: Array
    _fit: _Fit
    _scales: Mapping[str, float]

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick, by the keys of ``features``."""
        if not features:
            return {}
        own = self.target_predictor.predict(features)
        logs, sds = self._fit.predict(_SourceLatencies.of(features, self._others, self._trust))
        predictions = {}
        for key, log, sd in zip(features, logs, sds, strict=True):
            scale = self._scales.get(features[key].kind, self._scales[""])
            predictions[key] = _combined(own[key], Prediction(math.exp(log), float(sd) * scale))
        return predictions

    def scale(self, features: BrickFeatures) -> float:
        """The error of predictions for the kernel of a brick, relative to the expected error."""
        return self.target_predictor.scale(features)


# The standard deviation of the logarithm of an unmeasured system's speed relative to others: about
# one system in twenty is beyond half to double. And the same once its reference kernels are known:
# on an Intel Xeon of 2024, kinds of bricks took up to 0.30 less or more than four published targets
# and the kernels said, 0.16 in the mean of squares (research/conditions.md).
_UNKNOWN_TARGET_SD, _SCALED_TARGET_SD = 0.35, 0.17

# The kernels that scale sources; without one of them, a target's speed counts as unknown.
_SCALES = frozenset(KERNELS) - {"exchange"}


@dataclass(frozen=True, slots=True)
class ZeroShotTransfer:
    """Predicts bricks of a target without enough measurements, from source targets only.

    It has the interface of :class:`Predictor`. Each brick is expected to take as long as on the
    sources, scaled by what reference kernels take on the ``host`` of this target with ``threads``
    threads and on theirs. What remains of its speed relative to them is an error common to all
    bricks; all of it, where the kernels were not timed.
    """

    _others: Sequence[SourceTarget]
    host: HostConditions | None = None
    threads: int = 1

    @property
    def bias(self) -> float:
        """The standard deviation of the error that all predictions have in common."""
        return _SCALED_TARGET_SD if self.scalable and self.host is not None else _UNKNOWN_TARGET_SD

    @property
    def scalable(self) -> bool:
        """Whether arithmetic, memory and calls are known of all sources, as reference kernels."""
        return all(
            other.host is not None and _SCALES <= other.host.by_kernel.keys()
            for other in self._others
        )

    @property
    def target_keys(self) -> tuple[str, ...]:
        """The keys of the source targets."""
        return tuple(other.target_key for other in self._others)

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick, by the keys of ``features``."""
        if not features:
            return {}
        sources = _SourceLatencies.of(features, self._others)
        sources = replace(sources, logs=sources.logs + self._changes(features, sources.logs))
        sds = np.sqrt(_noise(sources, sources.weighted_mean))
        return {
            key: Prediction(math.exp(log), float(sd))
            for key, log, sd in zip(features, sources.weighted_mean, sds, strict=True)
        }

    def _changes(self, features: Mapping[str, BrickFeatures], logs: Array) -> Array:
        """The logarithm of each brick's change from the host of each source to this one."""
        work = {key: _work_of(of) for key, of in features.items()}
        sensitivities = Sensitivities(work, self.threads, self.host)
        followed = [
            [sensitivities.of(key, math.exp(log)) for log in of]
            for key, of in zip(features, logs, strict=True)
        ]
        hosts = [other.host if self.scalable else None for other in self._others]
        changed = np.stack([changes(host, self.host) for host in hosts])
        found: Array = (np.array(followed) * changed).sum(axis=2)
        return found

    def scale(self, features: BrickFeatures) -> float:
        """Predictions of all bricks are as good as expected."""
        return 1.0


def _work_of(features: BrickFeatures) -> BrickWork:
    """The work of a brick, which says how it follows reference kernels."""
    values = features.read_bytes + features.written_bytes
    nodes = features.operator.count("+") + 1
    convolves = features.kind == CONVOLUTION
    return BrickWork(features.flops, values, features.weight_bytes, nodes, convolves)


def _combined(one: Prediction, other: Prediction) -> Prediction:
    """Combine two predictions of one brick, whose errors are correlated."""
    weight = 1.0 / (1.0 + (one.log_sd / other.log_sd) ** 2)  # of the first
    log = weight * math.log(one.latency_s) + (1.0 - weight) * math.log(other.latency_s)
    first, second = weight * one.log_sd, (1.0 - weight) * other.log_sd
    variance = first**2 + second**2 + 2 * _ERROR_CORRELATION * first * second
    return Prediction(math.exp(log), math.sqrt(variance))


def expected_s(
    features: Mapping[str, BrickFeatures], others: Sequence[SourceTarget]
) -> dict[str, float]:
    """Return the expected latency in seconds of each brick on an unmeasured target, by key."""
    if not features:
        return {}
    weighted_mean = np.exp(_SourceLatencies.of(features, others).weighted_mean)
    return {key: float(s) for key, s in zip(features, weighted_mean, strict=True)}


def learn_transfer(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
    others: Sequence[SourceTarget],
) -> Transfer | None:
    """Learn from bricks measured on this target, and from source targets, ``others``.

    None if too few bricks are measured, or there are no sources. Other arguments are as for
    :func:`bricks.predict.predictor.learn`.
    """
    own = learn(features, latency_s, groups) if others else None
    if own is None:
        return None
    known = sorted(key for key in features if latency_s.get(key, 0.0) > 0)
    logs = np.log([latency_s[key] for key in known])
    sources = _SourceLatencies.of({key: features[key] for key in known}, others).with_trust(logs)
    owners = owners_of(groups, known)
    # A family is left out as a whole, since its bricks are closely correlated.
    folds = np.array([crc32(owners.get(key, key).encode()) % _FOLDS for key in known])
    outcomes: list[HeldOutError] = []
    for fold in sorted(set(folds.tolist())):
        training, left_out = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if not len(training):
            continue
        logs_left_out, sds = _Fit.of(sources.part(training), logs[training]).predict(
            sources.part(left_out)
        )
        outcomes += [
            HeldOutError(
                owners.get(known[i], ""),
                sources.features[i].kind,
                math.exp(logs[i]),
                float(logs[i] - log),
                float(sd),
            )
            for i, log, sd in zip(left_out.tolist(), logs_left_out, sds, strict=True)
        ]
    fit, scales = _Fit.of(sources, logs), scales_of(outcomes)
    families = [
        replace(o, log_sd=o.log_sd * scales.get(o.name, scales[""])) for o in outcomes if o.group
    ]
    return Transfer(own, bias_of(families), list(others), sources.trust, fit, scales)
