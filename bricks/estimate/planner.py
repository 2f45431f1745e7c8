"""Which bricks are worth measuring, where the others can be predicted.

What a brick's uncertainty does to the estimates of the models that need it, for the time that
measuring it takes: the largest first, until the models are known well enough (active learning). It
must not know how anything is measured, nor how it is predicted.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from bricks.measure.statistics import median

# Seconds that a brick takes to load, and runs that its latency is counted with: its own at several
# places, and those of what leads in. Only their proportion matters.
_LOAD_S, _RUNS = 6e-3, 40.0


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured: until a model's estimate is known to ± ``deviation``.

    That is the relative standard deviation which predicted bricks add. Zero: none is predicted.
    """

    name: str
    deviation: float

    @property
    def complete(self) -> bool:
        """Whether everything is measured."""
        return self.deviation == 0.0


EFFORTS = {
    effort.name: effort
    for effort in (Effort("full", 0.0), Effort("balanced", 0.025), Effort("quick", 0.06))
}


@dataclass(frozen=True, slots=True)
class Belief:
    """What is believed of a brick's latency: its median, and its relative standard deviation."""

    latency_s: float
    deviation: float
    measured: bool = False


@dataclass(frozen=True, slots=True)
class Outlook:
    """How well models are known by now: relative standard deviations, by model."""

    deviations: Mapping[str, float]

    @property
    def typical(self) -> float:
        """That of the model in the middle."""
        return median(list(self.deviations.values())) if self.deviations else 0.0


class Planner:
    """Chooses for some models, by what is believed of their bricks.

    ``counts`` tells by model how often each brick counts. ``bias`` is the relative standard
    deviation by which predictions err together within a model.
    """

    def __init__(
        self,
        counts: Mapping[str, Mapping[str, int]],
        beliefs: Mapping[str, Belief],
        bias: float,
    ) -> None:
        self._counts = counts
        self._beliefs = beliefs
        self._bias = bias
        self._models: dict[str, list[str]] = defaultdict(list)
        for model, count in counts.items():
            for key in count:
                self._models[key].append(model)
        self._total_s = {m: self._sum(m, count) or math.inf for m, count in counts.items()}
        self._open_s = dict.fromkeys(counts, 0.0)  # seconds of a model that are predicted
        self._squares = dict.fromkeys(counts, 0.0)  # of what each of these may be off, in seconds
        for key, belief in beliefs.items():
            if not belief.measured:
                self._move(key, +1)

    def outlook(self) -> Outlook:
        """How well the models are known."""
        return Outlook({m: math.sqrt(self._variance(m)) / self._total_s[m] for m in self._counts})

    def choose(
        self,
        goal: float,
        *,
        most: int | None = None,
        most_s: float = math.inf,
        kind: Callable[[str], Hashable] | None = None,
    ) -> list[str]:
        """The bricks to measure, the most worthwhile first, until all models meet the ``goal``.

        That is a relative standard deviation. Not more than ``most``, nor than take about
        ``most_s`` seconds. Of one ``kind``, each that is chosen makes the others worth less: for as
        long as nothing has been learned from any.
        """
        chosen: list[str] = []
        spent_s = 0.0
        of_kind: Counter[Hashable] = Counter()

        def worth(key: str) -> float:
            likes = of_kind[kind(key)] if kind is not None else 0
            return self._gain(key, goal) / self.cost_s(key) / (1 + likes)

        open_keys = [key for key, belief in self._beliefs.items() if not belief.measured]
        heap = [(-worth(key), key) for key in open_keys]
        heapq.heapify(heap)
        while heap and (most is None or len(chosen) < most):
            _, key = heapq.heappop(heap)
            now = worth(key)
            if now <= 0.0:
                continue
            if heap and now < -heap[0][0]:  # worth less by now: maybe another is worth more
                heapq.heappush(heap, (-now, key))
                continue
            spent_s += self.cost_s(key)
            if chosen and spent_s > most_s:
                break
            chosen.append(key)
            self._move(key, -1)
            if kind is not None:
                of_kind[kind(key)] += 1
        return chosen

    def cost_s(self, key: str) -> float:
        """About how long measuring a brick takes, in seconds."""
        return _LOAD_S + _RUNS * self._beliefs[key].latency_s

    def _sum(self, model: str, count: Mapping[str, int]) -> float:
        return sum(abs(n) * self._beliefs[k].latency_s for k, n in count.items())

    def _part(self, model: str, key: str) -> tuple[float, float]:
        """Seconds that a brick is of a model, and how many of them it may be off."""
        seconds = abs(self._counts[model][key]) * self._beliefs[key].latency_s
        return seconds, seconds * self._beliefs[key].deviation

    def _move(self, key: str, sign: int) -> None:
        for model in self._models[key]:
            seconds, off_s = self._part(model, key)
            self._open_s[model] = max(0.0, self._open_s[model] + sign * seconds)
            self._squares[model] = max(0.0, self._squares[model] + sign * off_s**2)

    def _variance(self, model: str) -> float:
        return self._squares[model] + (self._bias * self._open_s[model]) ** 2

    def _gain(self, key: str, goal: float) -> float:
        """How much nearer to the goal all models come, as squares of relative deviations."""
        gain = 0.0
        for model in self._models[key]:
            total_s = self._total_s[model]
            excess = self._variance(model) - (goal * total_s) ** 2
            if excess <= 1e-9 * total_s**2 and not (goal == 0.0 and self._open_s[model] > 0.0):
                continue
            seconds, off_s = self._part(model, key)
            left_s = max(0.0, self._open_s[model] - seconds)
            less = off_s**2 + self._bias**2 * (self._open_s[model] ** 2 - left_s**2)
            gain += min(less, max(excess, 0.0)) / total_s**2 if goal else less / total_s**2
        return gain
