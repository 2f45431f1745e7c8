"""Adaptive measurement: as many bricks as an effort needs, or as a time budget allows.

Some bricks are measured and the others are predicted from them. The predictions decide which bricks
to measure next: those whose uncertainty matters most to the models' estimates. The loop ends when
the estimates are certain enough, or the time is up. Must not know how bricks are measured.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bricks.measure.campaign_result import CampaignResult, Progress
from bricks.measure.jobs import Importance, ModelJob, needs_of
from bricks.samples.measurement import combined
from bricks.samples.statistics import NORMAL_95, median

if TYPE_CHECKING:
    from bricks.predict.effort import Effort
    from bricks.predict.planner import Planner, Posterior
    from bricks.session.latencies import Latencies

# If measuring everything takes less than about this, planning is skipped: on an unknown machine it
# would take as long, mostly to import the libraries for predictions.
SOON_S = 4.0

# The same where a session has learned to predict already: one model more is planned at once.
REPLANNED_S = 0.1

# Planning what to measure takes seconds. Within so short a budget, what takes longest is measured.
PLANNED_S = 10.0
# Of the time that is left, for one stage of that; and so much time is left for the answer.
STAGE, _ANSWER_S = 0.6, 0.4

# Bricks that the first predictions are learned from; each later stage has at most this many times
# as many.
_FIRST, _GROWTH = 120, 2.0

# Closer to a goal than this, another stage is not worthwhile.
_NEARLY = 1.15

# The share of the remaining time that is planned ahead: later choices are better informed.
_AHEAD = 0.5

# The share of the remaining progress that the next stage stands for: if the goal should be met
# after it, and if more stages follow, each of which takes longer than the one before.
_LAST, _ONE_OF_SEVERAL = 0.9, 0.3

# The goal of probing, as a relative standard deviation: smaller than any effort's.
_WELL = 0.001

# Runs a campaign over jobs, which may take this many seconds.
Run = Callable[[Sequence[ModelJob], float | None, Progress], CampaignResult]


class AdaptiveMeasurement:
    """Measures ``jobs`` up to an effort, and within a budget in seconds if there is one."""

    def __init__(
        self,
        jobs: Sequence[ModelJob],
        latencies: Latencies,
        effort: Effort,
        budget_s: float | None,
        progress: Progress,
    ) -> None:
        self._jobs = jobs
        self._latencies = latencies
        self._effort = effort
        self._budget_s = budget_s
        self._progress = progress
        self._started = time.monotonic()
        self._keys = _keys(jobs)
        for job in jobs:  # already in memory: they need not be loaded again
            latencies.add_model(job.decomposition)
        self._span = 0.0, 0.0  # the next stage's part of all progress
        self._planner: Planner | None = None

    @property
    def untried(self) -> bool:
        """Whether no brick is measured or failed yet."""
        return bool(self._keys) and not self._latencies.target.resolved(self._keys)

    def run(self, run: Run) -> CampaignResult:
        """Measure stage by stage; returns the merged result of all stages."""
        if self._soon_done():
            return run(self._jobs, None, self._progress)
        short = self._budget_s is not None and self._budget_s < PLANNED_S
        if short and self._effort.complete:  # other efforts need planning to end early
            return self._costliest(run)
        done: list[CampaignResult] = []
        whole = any(job.whole for job in self._jobs)
        while whole or not done or not (self._left_s() == 0.0):
            chosen, precision_text = self._choose()
            if not chosen and not whole:
                break
            jobs = [
                replace(job, whole=job.whole and whole, chosen=frozenset(chosen))
                for job in self._jobs
            ]
            result = run(jobs, self._left_s(), self._shown(precision_text))
            self._latencies.invalidate(result.remeasured)
            done.append(result)
            whole = False
            if result.unfinished:
                break
        return _combined(done, self._unfinished(done))

    def _costliest(self, run: Run) -> CampaignResult:
        """Measure the bricks with the longest expected time in the models, within the budget."""
        latency_s = self._latencies.target.usual_s(self._keys)
        counts = Counter[str]()
        for job in self._jobs:
            counts.update(job.decomposition.plan.counts)
        waiting = sorted(
            self._keys - self._latencies.target.resolved(self._keys),
            key=lambda key: (-counts[key] * latency_s[key], key),
        )
        cost_s = _usual_s(self._jobs, self._latencies, waiting)
        done: list[CampaignResult] = []
        while (left_s := self._left_s() or 0.0) > _ANSWER_S:
            chosen = affordable(waiting, cost_s, STAGE * left_s)
            if not chosen:
                break
            waiting = [key for key in waiting if key not in chosen]
            jobs = [replace(job, whole=False, chosen=chosen) for job in self._jobs]
            self._span = self._span[1], 1.0
            done.append(run(jobs, left_s - _ANSWER_S, self._shown("")))
            self._latencies.invalidate(done[-1].remeasured)
        return _combined(done, self._unfinished(done))

    def _soon_done(self) -> bool:
        """Whether measuring everything is faster than planning what to measure.

        Not if whole models are run too: their comparison has to show how good an effort's
        predictions are.
        """
        if self._budget_s is not None or any(job.whole for job in self._jobs):
            return False
        unknown = self._keys - self._latencies.target.resolved(self._keys)
        planning_s = REPLANNED_S if self._latencies.learned else SOON_S
        return sum(_usual_s(self._jobs, self._latencies, unknown).values()) <= planning_s

    def _unfinished(self, done: Sequence[CampaignResult]) -> frozenset[str]:
        """The bricks for which there was no time: among all bricks, or among the chosen ones."""
        if self._effort.complete:
            return frozenset(self._keys - self._latencies.target.resolved(self._keys))
        return done[-1].unfinished if done else frozenset()

    def _choose(self) -> tuple[list[str], str]:
        """The bricks of the next stage, and the models' precision before it, in words."""
        posteriors = self._latencies.posteriors(self._keys)
        if self._planner is None:
            self._planner = _planner(self._jobs, self._latencies, posteriors)
        else:
            self._planner.update(posteriors)
        measured, goal = sum(b.measured for b in posteriors.values()), self._effort.deviation
        typical = NORMAL_95 * median([float(d) for d in self._planner.deviations()])
        left_s, chosen = self._left_s(), list[str]()
        least = self._latencies.model().missing_count  # with fewer, the others cannot be predicted
        known = not self._effort.complete and self._planner.meets(goal, _NEARLY)
        if least or not measured or not known:
            chosen = self._planner.choose(
                goal,
                min_count=least,
                max_count=max(_FIRST, int(_GROWTH * measured)),
                max_s=math.inf if left_s is None else max(1.0, _AHEAD * left_s),
            )
        begin = self._span[1]
        part = _LAST if self._planner.meets(goal, _NEARLY) else _ONE_OF_SEVERAL
        self._span = begin, begin + (1.0 - begin) * part
        return chosen, f"models known to ± {100 * typical:.1f} %, " if measured else ""

    def _left_s(self) -> float | None:
        if self._budget_s is None:
            return None
        return max(0.0, self._budget_s - (time.monotonic() - self._started))

    def _shown(self, prefix: str) -> Progress:
        begin, end = self._span

        def show(what: str, share: float) -> None:
            done = begin + (end - begin) * share
            if self._budget_s:
                done = max(done, (time.monotonic() - self._started) / self._budget_s)
            self._progress(prefix + what, min(1.0, done))

        return show


def probes(jobs: Sequence[ModelJob], latencies: Latencies, most: int) -> list[str]:
    """The ``most`` bricks of ``jobs`` that are most informative about a target, given others."""
    return _planner(jobs, latencies, latencies.posteriors(_keys(jobs))).choose(
        _WELL, max_count=most
    )


def deviation(jobs: Sequence[ModelJob], latencies: Latencies) -> float | None:
    """The median of the relative standard deviations of the models' estimates; None without any."""
    if latencies.model().missing_count or not jobs:
        return None
    planner = _planner(jobs, latencies, latencies.posteriors(_keys(jobs)))
    return median([float(d) for d in planner.deviations()])


def affordable(keys: Sequence[str], cost_s: Mapping[str, float], left_s: float) -> frozenset[str]:
    """The first of ``keys`` whose costs add up to no more than ``left_s``; dearer ones are skipped.

    A brick with hundreds of megabytes of weights takes longer to load than a short budget lasts.
    """
    chosen = set()
    for key in keys:
        if cost_s[key] <= left_s:
            chosen.add(key)
            left_s -= cost_s[key]
    return frozenset(chosen)


def _usual_s(
    jobs: Sequence[ModelJob], latencies: Latencies, keys: Collection[str]
) -> dict[str, float]:
    """About how many seconds measuring each of ``keys`` takes on an unknown machine."""
    if not keys:
        return {}
    from bricks.predict.cost import typical_cost_s

    latency_s = latencies.target.usual_s(_keys(jobs))
    shares = Importance(needs_of(jobs), {}).of(latency_s)
    features = latencies.target.features(sorted(keys))
    rows = [
        (brick_features.weight_bytes, latency_s[key], shares[key])
        for key, brick_features in features.items()
    ]
    return dict(zip(features, typical_cost_s(*np.array(rows).T).tolist(), strict=True))


def _keys(jobs: Sequence[ModelJob]) -> set[str]:
    return {key for job in jobs for key in job.decomposition.plan.keys}


def _planner(
    jobs: Sequence[ModelJob], latencies: Latencies, posteriors: Mapping[str, Posterior]
) -> Planner:
    # Imported here, since its libraries take a second to import.
    from bricks.predict.planner import Planner

    counts = {job.model.digest: job.decomposition.plan.counts for job in jobs}
    features = latencies.target.features(sorted(posteriors))
    known_kernels = frozenset[str]().union(*(other.kernels for other in latencies.others))
    return Planner(counts, features, posteriors, known_kernels)


def _combined(results: Sequence[CampaignResult], unfinished: frozenset[str]) -> CampaignResult:
    """The merged result of several campaigns, as of a single one that left ``unfinished``."""
    measured: dict[str, frozenset[str]] = {}
    for result in results:
        for digest, keys in result.measured.items():
            measured[digest] = measured.get(digest, frozenset()) | keys
    return CampaignResult(
        measured,
        tuple(failure for result in results for failure in result.failures),
        unfinished,
        **combined(results).sampling_fields,
    )
