"""How the latency of a brick changes between machine states, as a model of its kernel and sizes.

Between states the cost of communication between cores changes, and the reference workload, which is
mostly communication, changes with it. A brick pays for communication twice: its threads wait for
each other, and they read values that another core has written. Its latency therefore changes as a
power of the reference's change, and the power is the share of such costs in its latency: near zero
where a brick computes for long, or is so small that one thread does it all; largest for bricks that
move up to some megabytes and compute little. Kernels differ from this rule by deviations of their
own. All is learned from bricks that were measured in two states (Gaussian process regression with
Student-t noise; Rasmussen and Williams, 2006, sections 2.7 and 9.3). Must not know how latencies
were measured, nor how sizes are derived from a brick.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bricks.samples.one_thread import one_thread
from bricks.samples.statistics import median

if TYPE_CHECKING:
    from bricks.samples.measurement import Measurement

# Prior: everything in this block was chosen on the first half of the zoo's families, on two EPYC
# cores (research/states.md reports the other half), and rounded. Standard deviations of shared
# coefficients are wider than that one host would have them.

# Shares of costs in a latency: a cost c in a latency l has the share c / (c + l). A byte exchanged
# costs this share of a reference, up to as many bytes as caches exchange; threads that wait, so
# many references.
_EXCHANGE_PER_BYTE, _MAX_EXCHANGED_BYTES = 1.35e-6, 1.5e6
_WAITING = 0.75
# Power for a share of one, and the standard deviation of that: of exchange, and of waiting. The
# last is of any brick's power, whatever its shares (the clock).
_EXCHANGE, _EXCHANGE_SD = 0.4, 0.15
_WAITING_POWER, _WAITING_SD = 0.1, 0.1
_ANY_SD = 0.05
# Deviation of bricks of one kernel, for a share of exchange of one, and the distance of logarithms
# of latency over which it holds; of bytes, over more.
_KERNEL_SD, _KERNEL_WIDTH, _BYTES_WEIGHT = 0.3, 1.5, 0.5
# Scale of a single brick's deviation (Student's t): of any, and for shares of one of exchange, of a
# call, and of reading weights, which are now cached and now not if they are no larger than caches.
# A call takes about this long, and so many bytes of weights are read in a second.
_OWN_SD, _OWN_EXCHANGE_SD, _OWN_CALL_SD, _OWN_WEIGHTS_SD = 0.03, 0.4, 0.5, 0.35
_CALL_S, _WEIGHTS_PER_S = 3e-6, 1e10
_DEGREES = 4.0
# Where sizes are unknown: bytes exchanged per second of latency, and how much wider deviations are.
_USUAL_BYTES_PER_S, _UNKNOWN = 2e10, 1.25
# The reference's latency in seconds, if no state is known.
_USUAL_REFERENCE_S = 1e-4

# Powers outside this range are noise: slower communication makes no brick faster.
_MIN, _MAX = 0.0, 1.5

# Rounds show a power where references differ by more than this (a logarithm): 10 %.
_MIN_LOG_RATIO = 0.1
# Deviations above are for states with a ratio of two; then the deviation of a single round.
_LOG_RATIO, _ROUND_SD = math.log(2), 0.05
# The most measurements to learn from: the ones with the least noise.
MAX_LEARNED = 300
# Repetitions until the weights of outliers are settled; until a latency in the middle state is, to
# this difference of logarithms, at most. Each changes it by a tenth of the change before.
_REWEIGHTED, _SETTLING, _SETTLED = 5, 12, 1e-9
# A few measurements do not show that deviations are larger: the prior counts as so many.
_PRIOR_COUNT = 40

# No clock distinguishes shorter latencies.
_BRIEF_S = 1e-9

_Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SizeFacts:
    """The facts of a brick that decide how its latency changes between states.

    ``kernel`` is the runtime's kernel; ``exchanged_bytes`` are the bytes of values that it reads
    and writes, without the ``weight_bytes``, which no other core has written.
    """

    kernel: str
    exchanged_bytes: float
    weight_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class Power:
    """The power of the reference's change by which a latency changes.

    ``shared_sd`` is the standard deviation of the error that it has in common with other bricks,
    ``independent_sd`` that of its own error.
    """

    mean: float
    shared_sd: float
    independent_sd: float


@dataclass(frozen=True, slots=True)
class _Observation:
    """A brick in two states: the logarithm of its latency in their middle, and its power.

    ``middle`` is the logarithm of the reference in the middle of the states, ``log_ratio`` the
    difference of their logarithms. ``sampling`` is the variance of the power from noise of rounds.
    """

    log_s: float
    power: float
    middle: float
    log_ratio: float
    sampling: float
    facts: SizeFacts | None


class StateModel:
    """The model, learned from ``measurements``; ``facts`` are facts of bricks by key.

    Powers of bricks without facts follow from their latency only.
    """

    def __init__(
        self,
        measurements: Iterable[Measurement] = (),
        facts: Mapping[str, SizeFacts] | None = None,
    ) -> None:
        self._facts = {} if facts is None else dict(facts)
        observations = (_observation(m, self._facts.get(m.key)) for m in measurements)
        seen = [observation for observation in observations if observation is not None]
        seen.sort(key=lambda observation: (-observation.log_ratio, observation.log_s))
        self._observations = seen[:MAX_LEARNED]
        self._reference = math.log(_USUAL_REFERENCE_S)
        self._scale = 1.0
        if self._observations:
            weights = np.array([observation.log_ratio**2 for observation in self._observations])
            middles = np.array([observation.middle for observation in self._observations])
            self._reference = float(np.average(middles, weights=weights))
            with one_thread():
                self._fit()

    def with_facts(self, facts: Mapping[str, SizeFacts]) -> StateModel:
        """This model with further ``facts`` of bricks by key."""
        model = copy(self)
        model._facts = {**self._facts, **facts}
        return model

    @property
    def learned_from(self) -> int:
        """How many bricks it was learned from."""
        return len(self._observations)

    def knows(self, key: str) -> bool:
        """Whether it has this brick's facts."""
        return key in self._facts

    def powers(
        self, keys: Sequence[str], latencies_s: Sequence[float], states_s: Sequence[float]
    ) -> list[Power]:
        """The power of each brick with its key, latency and state; seconds.

        A power belongs to a brick's latency in the middle of all states, so that a correction to
        another state and back changes nothing.
        """
        if not keys:
            return []
        bricks = self._settled(keys, latencies_s, states_s)
        shared, own = self._variances(bricks)
        columns = zip(self._mean(bricks), np.sqrt(shared), np.sqrt(own), strict=True)
        return [Power(*map(float, moments)) for moments in columns]

    def shared_sd(
        self,
        keys: Sequence[str],
        latencies_s: Sequence[float],
        states_s: Sequence[float],
        weights: Sequence[float],
    ) -> float:
        """The standard deviation of the weighted sum of powers, from their common errors.

        Bricks are given as in :meth:`powers`. Independent errors do not count; common errors count
        by the covariance of each pair.
        """
        if not keys:
            return 0.0
        bricks = self._settled(keys, latencies_s, states_s)
        by = np.array(weights, float)
        variance = by @ _covariance(bricks, bricks) @ by
        if self._observations:
            known = by @ _covariance(bricks, self._bricks)
            variance -= known @ self._inverse @ known
        return math.sqrt(max(0.0, float(variance)))

    def _settled(
        self, keys: Sequence[str], latencies_s: Sequence[float], states_s: Sequence[float]
    ) -> _Bricks:
        """The bricks at the middle of all states."""
        facts = [self._facts.get(key) for key in keys]
        logs = np.log(np.maximum(np.array(latencies_s, float), _BRIEF_S))
        away = self._reference - np.log(np.array(states_s, float))
        middles = logs
        for _ in range(_SETTLING):
            before, middles = middles, logs + self._mean(_Bricks(facts, middles, self)) * away
            if np.abs(middles - before).max() < _SETTLED:
                break
        return _Bricks(facts, middles, self)

    def _mean(self, bricks: _Bricks) -> _Array:
        mean = bricks.mean
        if self._observations:
            mean = mean + _covariance(bricks, self._bricks) @ self._solution
        return np.clip(mean, _MIN, _MAX)

    def _variances(self, bricks: _Bricks) -> tuple[_Array, _Array]:
        """The variances of the error in common with others, and of each brick's own."""
        shared = bricks.variance
        if self._observations:
            between = _covariance(bricks, self._bricks)
            shared = shared - np.einsum("ij,ij->i", between @ self._inverse, between)
        # The variance of Student's t, whose scale the noise is.
        own = bricks.noise * self._scale**2 * _DEGREES / (_DEGREES - 2)
        return np.maximum(0.0, shared), own

    @property
    def reference_s(self) -> float:
        """The latency of the reference in the middle of the states, in seconds."""
        return math.exp(self._reference)

    def _fit(self) -> None:
        seen = self._observations
        logs = [
            observation.log_s + observation.power * (self._reference - observation.middle)
            for observation in seen
        ]
        self._bricks = _Bricks([observation.facts for observation in seen], np.array(logs), self)
        log_ratio = np.array([observation.log_ratio for observation in seen])
        own = self._bricks.noise * (_LOG_RATIO / log_ratio) ** 2
        sampling = np.array([observation.sampling for observation in seen])
        residual = np.array([observation.power for observation in seen]) - self._bricks.mean
        shared = _covariance(self._bricks, self._bricks)
        weights = np.ones(len(seen))
        for _ in range(_REWEIGHTED):
            noise = self._scale**2 * own + sampling
            self._inverse = np.linalg.inv(shared + np.diag(noise / weights))
            self._solution = self._inverse @ residual
            squares = (residual - shared @ self._solution) ** 2
            weights = (_DEGREES + 1) / (_DEGREES + squares / noise)
            scale_squared = (_PRIOR_COUNT + float((weights * squares / (own + sampling)).sum())) / (
                _PRIOR_COUNT + len(seen)
            )
            # Never below the prior: a session in which bricks agree says little about the next.
            self._scale = max(1.0, math.sqrt(scale_squared))


class _Bricks:
    """Bricks at the middle of the states, in columns: all that the model sees of them."""

    def __init__(self, facts: Sequence[SizeFacts | None], logs: _Array, model: StateModel) -> None:
        self.log_s = logs
        latency_s = np.exp(self.log_s)
        usual = _USUAL_BYTES_PER_S * latency_s
        known = np.array([of_brick is not None for of_brick in facts])
        exact = np.array(
            [0.0 if of_brick is None else of_brick.exchanged_bytes for of_brick in facts]
        )
        moved = np.where(known, exact, usual)
        self.kernels = np.array(["" if of_brick is None else of_brick.kernel for of_brick in facts])
        self.log_bytes = np.log(moved + 1e3)
        exchanged_s = _EXCHANGE_PER_BYTE * np.minimum(moved, _MAX_EXCHANGED_BYTES)
        self.exchange = _share(exchanged_s * model.reference_s, latency_s)
        self.waiting = _share(np.full(len(logs), _WAITING * model.reference_s), latency_s)
        call = _share(np.full(len(logs), _CALL_S), latency_s)
        self.mean = _EXCHANGE * self.exchange + _WAITING_POWER * self.waiting
        exchange_sd = np.where(known, 1.0, _UNKNOWN) * _OWN_EXCHANGE_SD * self.exchange
        self.variance = _ANY_SD**2 + (_EXCHANGE_SD**2 + _KERNEL_SD**2) * self.exchange**2
        self.variance += (_WAITING_SD * self.waiting) ** 2
        read = np.array([0.0 if of_brick is None else of_brick.weight_bytes for of_brick in facts])
        weights = _share(np.minimum(read, _MAX_EXCHANGED_BYTES) / _WEIGHTS_PER_S, latency_s)
        self.noise = _OWN_SD**2 + exchange_sd**2
        self.noise += (_OWN_CALL_SD * call) ** 2 + (_OWN_WEIGHTS_SD * weights) ** 2


def _share(cost_s: _Array, latency_s: _Array) -> _Array:
    return cost_s / (cost_s + latency_s)


def _covariance(one: _Bricks, other: _Bricks) -> _Array:
    """The covariance of powers of two sets of bricks."""
    far = (one.log_s[:, None] - other.log_s) ** 2
    far += _BYTES_WEIGHT * (one.log_bytes[:, None] - other.log_bytes) ** 2
    same = one.kernels[:, None] == other.kernels
    kernel = same * _KERNEL_SD**2 * np.exp(-far / (2 * _KERNEL_WIDTH**2))
    covariance: _Array = (_EXCHANGE_SD**2 + kernel) * one.exchange[:, None] * other.exchange
    covariance += _ANY_SD**2 + _WAITING_SD**2 * one.waiting[:, None] * other.waiting
    return covariance


def _observation(measurement: Measurement, facts: SizeFacts | None) -> _Observation | None:
    """How rounds follow the reference; None if that was about equal in all of them.

    The slower half of the states' range against the faster half: medians of each, which single
    rounds do not move.
    """
    points = [
        (math.log(r.state_s), math.log(r.latency_s))
        for r in measurement.quiet_rounds
        if r.state_s is not None and r.latency_s > 0
    ]
    states = [state for state, _ in points]
    if not points or max(states) - min(states) < _MIN_LOG_RATIO:
        return None
    middle = (max(states) + min(states)) / 2
    sides = [[point for point in points if (point[0] > middle) == slow] for slow in (False, True)]
    (fast, fast_log), (slow, slow_log) = (
        (median([x for x, _ in side]), median([y for _, y in side])) for side in sides
    )
    log_ratio = slow - fast
    noise = _ROUND_SD**2 * sum(1 / len(side) for side in sides)
    return _Observation(
        log_s=(fast_log + slow_log) / 2,
        power=min(2.0, max(-1.0, (slow_log - fast_log) / log_ratio)),
        middle=(fast + slow) / 2,
        log_ratio=log_ratio,
        sampling=noise / log_ratio**2,
        facts=facts,
    )
