"""Predicts latencies on a target with few measurements, from those on other targets.

The latency of a brick on other targets explains most of its latency here. The rest is how much
faster or slower this target is at bricks of that kind and size, which a few dozen measured bricks
show. A ridge regression weights the other targets; a Gaussian process interpolates its residuals,
as it does for rooflines (:mod:`bricks.predict.predictor`). The error is found by leaving out some
families of models after others. Must not know how measurements came about.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from sklearn.linear_model import Ridge

from bricks.predict.covariance import COVARIANCE_PARAMS, feature_matrix, noise_of
from bricks.predict.features import BrickFeatures
from bricks.predict.interpolation import Interpolation
from bricks.predict.observations import StatesSeen
from bricks.predict.prediction import Prediction
from bricks.predict.predictor import (
    HeldOutError,
    Predictor,
    bias_of,
    learn,
    owners_of,
    scales_of,
)

Array = np.ndarray

_KINDS = tuple(COVARIANCE_PARAMS)

# The strength of the ridge penalty, and the variance of its residuals relative to those of
# rooflines. Found on half of the families, with targets that are in no report.
_PULL, _SHRINK = 1.0, 0.25

# The error of a measured latency, as a standard deviation of its logarithm.
_MEASURED_SD = 0.03

# The correlation between the errors of a target's own prediction and of a transferred one.
_ALIKE = 0.6

# How quickly the weight of a source target falls when it predicts worse than the best one.
_STRICT = 3.0

_FOLDS = 8


@dataclass(frozen=True, slots=True)
class SourceTarget:
    """A source target: the bricks that were measured there, and the predictor learned from them.

    ``kernels`` are those with a measured brick. A predictor that tells machine states apart is
    asked for ``state_s``, as it has ``seen`` it.
    """

    target_key: str
    latency_s: Mapping[str, float]
    predictor: Predictor
    kernels: frozenset[str] = frozenset()
    seen: StatesSeen | None = None
    state_s: float | None = None

    def logs(self, features: Mapping[str, BrickFeatures]) -> tuple[Array, Array]:
        """Logarithms of the latencies there, measured or predicted, and standard deviations."""
        missing = {key: t for key, t in features.items() if self.latency_s.get(key, 0.0) <= 0.0}
        if self.seen is not None:
            missing = self.seen.in_state(missing, self.state_s)
        predicted = self.predictor.predict(missing)
        found = [
            (math.log(predicted[key].latency_s), predicted[key].log_sd)
            if key in predicted
            else (math.log(self.latency_s[key]), _MEASURED_SD)
            for key in features
        ]
        logs, sds = zip(*found, strict=True) if found else ((), ())
        return np.array(logs), np.array(sds)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Bricks as seen by the source targets: a row for each brick, a column for each target.

    ``trust`` is the weight of each target.
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
    ) -> _Seen:
        columns = [other.logs(features) for other in others]
        logs = np.stack([log for log, _ in columns], axis=1)
        sds = np.stack([sd for _, sd in columns], axis=1)
        return cls(
            list(features.values()), logs, sds, np.ones(len(others)) if trust is None else trust
        )

    def part(self, rows: Array) -> _Seen:
        """The rows of some of the bricks."""
        features = [self.features[i] for i in rows]
        return _Seen(features, self.logs[rows], self.sds[rows], self.trust)

    def trusted(self, logs: Array) -> _Seen:
        """The same, each target trusted according to how well it predicts the latencies here.

        A factor and a power for bricks of each kind are fitted first, and do not count as errors.
        """
        off = []
        for theirs in self.logs.T:
            left = logs - theirs
            for kind in _KINDS:
                mine = self.of_kind(kind)
                if not len(mine):
                    continue
                left[mine] -= left[mine].mean()
                size = theirs[mine] - theirs[mine].mean()
                if len(mine) > 2 and (size**2).sum() > 0:
                    left[mine] -= size * (size @ left[mine]) / (size**2).sum()
            off.append(max(0.02, float(np.quantile(np.abs(left), 0.683))))
        trust = (min(off) / np.array(off)) ** _STRICT
        return replace(self, trust=trust)

    def of_kind(self, kind: str) -> Array:
        """The rows of the bricks of a kind."""
        return np.array([i for i, t in enumerate(self.features) if t.kind == kind], int)

    @property
    def weights(self) -> Array:
        """The weight of each target for each brick."""
        found: Array = self.trust / (self.sds**2 + 0.05**2)
        return found

    @property
    def middle(self) -> Array:
        """The weighted mean of all targets; more certain targets weigh more."""
        weights = self.weights
        found: Array = (self.logs * weights).sum(axis=1) / weights.sum(axis=1)
        return found

    @property
    def design(self) -> Array:
        """The regression's inputs: kinds, sizes, and how far each target is from the mean.

        A target that has not measured a brick counts less the less certain its prediction is.
        """
        kinds = np.array([[t.kind == kind for kind in _KINDS] for t in self.features], float)
        middle = self.middle
        size = np.clip((middle - math.log(1e-4)) / 2.0, -2.5, 2.5)[:, None]
        sure = 1.0 / (1.0 + (self.sds / 0.1) ** 2)
        apart = np.clip(self.logs - middle[:, None], -1.0, 1.0) * sure * self.trust
        return np.concatenate([kinds, kinds * size, apart], axis=1)


@dataclass(frozen=True, slots=True)
class _Fit:
    """The correction for this target: the regression, and by kind the process of its residuals."""

    ridge: Ridge
    processes: Mapping[str, Interpolation]

    @classmethod
    def of(cls, seen: _Seen, logs: Array) -> _Fit:
        """Fitted to bricks whose log-latencies are known here."""
        noise = _noise(seen, logs)
        left = logs - seen.middle
        sure = 1.0 / noise
        ridge = Ridge(alpha=_PULL / float(sure.mean()))
        ridge.fit(seen.design, left, sample_weight=sure / sure.mean())
        residuals = left - ridge.predict(seen.design)
        processes = {}
        for kind in _KINDS:
            mine = seen.of_kind(kind)
            if not len(mine):
                continue
            params = COVARIANCE_PARAMS[kind]
            at = feature_matrix([seen.features[i] for i in mine], np.exp(seen.middle[mine]), params)
            processes[kind] = Interpolation.fit(params, at, residuals[mine], noise[mine] / _SHRINK)
        return cls(ridge, processes)

    def predict(self, seen: _Seen) -> tuple[Array, Array]:
        """Logarithms of latencies and their standard deviations."""
        middle = seen.middle
        logs = middle + self.ridge.predict(seen.design)
        variances = np.zeros(len(logs))
        for kind in _KINDS:
            mine = seen.of_kind(kind)
            if not len(mine):
                continue
            params = COVARIANCE_PARAMS[kind]
            if kind not in self.processes:
                variances[mine] = _SHRINK * params.prior
                continue
            at = feature_matrix([seen.features[i] for i in mine], np.exp(middle[mine]), params)
            found, left = self.processes[kind].predict(at)
            logs[mine] += found
            variances[mine] = _SHRINK * left
        variances += _noise(seen, logs)
        return logs, np.sqrt(variances)


def _noise(seen: _Seen, logs: Array) -> Array:
    """The noise of both latencies: variance that no other brick or target explains."""
    of_kind = np.zeros(len(logs))
    for kind in _KINDS:
        mine = seen.of_kind(kind)
        of_kind[mine] = noise_of(COVARIANCE_PARAMS[kind], np.exp(logs[mine]))
    weights = seen.weights / seen.weights.sum(axis=1)[:, None]
    found: Array = of_kind + ((weights * seen.sds) ** 2).sum(axis=1)
    return found


@dataclass(frozen=True, slots=True)
class Transfer:
    """Predicts bricks of one target from its own measurements, and from other targets.

    Used as a :class:`Predictor` is. The two predictions are weighted by their certainty.
    """

    own: Predictor
    bias: float
    _others: Sequence[SourceTarget]
    _trust: Array
    _fit: _Fit
    _scales: Mapping[str, float]

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick, by the keys of ``features``."""
        if not features:
            return {}
        own = self.own.predict(features)
        logs, sds = self._fit.predict(_Seen.of(features, self._others, self._trust))
        found = {}
        for key, log, sd in zip(features, logs, sds, strict=True):
            scale = self._scales.get(features[key].kind, self._scales[""])
            found[key] = _both(own[key], Prediction(math.exp(log), float(sd) * scale))
        return found

    def scale(self, features: BrickFeatures) -> float:
        """The error of predictions of such a brick, relative to the expected error."""
        return self.own.scale(features)


# How much faster or slower a system is than others, if nothing is measured there: the standard
# deviation of a logarithm, so that about one system in twenty is beyond half to double.
_UNKNOWN = 0.35


@dataclass(frozen=True, slots=True)
class Borrowed:
    """Predicts bricks of a target on which too little is measured, from other targets alone.

    Used as a :class:`Predictor` is. Each brick is expected to take as long as on the others; by how
    much this target differs is unknown, and common to all bricks.
    """

    _others: Sequence[SourceTarget]
    bias: float = _UNKNOWN

    @property
    def target_keys(self) -> tuple[str, ...]:
        """The other targets."""
        return tuple(other.target_key for other in self._others)

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick, by the keys of ``features``."""
        if not features:
            return {}
        seen = _Seen.of(features, self._others)
        sds = np.sqrt(_noise(seen, seen.middle))
        return {
            key: Prediction(math.exp(log), float(sd))
            for key, log, sd in zip(features, seen.middle, sds, strict=True)
        }

    def scale(self, features: BrickFeatures) -> float:
        """Predictions of all bricks are as good as expected."""
        return 1.0


def _both(one: Prediction, other: Prediction) -> Prediction:
    """Combine two predictions of one brick, whose errors are correlated."""
    weight = 1.0 / (1.0 + (one.log_sd / other.log_sd) ** 2)  # of the first
    log = weight * math.log(one.latency_s) + (1.0 - weight) * math.log(other.latency_s)
    mine, theirs = weight * one.log_sd, (1.0 - weight) * other.log_sd
    return Prediction(math.exp(log), math.sqrt(mine**2 + theirs**2 + 2 * _ALIKE * mine * theirs))


def expected(
    features: Mapping[str, BrickFeatures], others: Sequence[SourceTarget]
) -> dict[str, float]:
    """The expected seconds of each brick from other targets, before any measurement here."""
    if not features:
        return {}
    middle = np.exp(_Seen.of(features, others).middle)
    return {key: float(s) for key, s in zip(features, middle, strict=True)}


def learn_transfer(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
    others: Sequence[SourceTarget],
) -> Transfer | None:
    """Learn from bricks that are measured here, and from the data of ``others``.

    None if too few are measured, or there are no others. Arguments are as those of
    :func:`bricks.predict.predictor.learn`.
    """
    own = learn(features, latency_s, groups) if others else None
    if own is None:
        return None
    known = sorted(key for key in features if latency_s.get(key, 0.0) > 0)
    logs = np.log([latency_s[key] for key in known])
    seen = _Seen.of({key: features[key] for key in known}, others).trusted(logs)
    owners = owners_of(groups, known)
    # A family is left out as a whole: its bricks tell more about each other than about others.
    folds = np.array([crc32(owners.get(key, key).encode()) % _FOLDS for key in known])
    outcomes: list[HeldOutError] = []
    for fold in sorted(set(folds.tolist())):
        kept, left = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
        if not len(kept):
            continue
        found, sds = _Fit.of(seen.part(kept), logs[kept]).predict(seen.part(left))
        outcomes += [
            HeldOutError(
                owners.get(known[i], ""),
                seen.features[i].kind,
                math.exp(logs[i]),
                float(logs[i] - log),
                float(sd),
            )
            for i, log, sd in zip(left.tolist(), found, sds, strict=True)
        ]
    fit, scales = _Fit.of(seen, logs), scales_of(outcomes)
    families = [
        replace(o, log_sd=o.log_sd * scales.get(o.name, scales[""])) for o in outcomes if o.group
    ]
    return Transfer(own, bias_of(families), list(others), seen.trust, fit, scales)
