"""Samples tasks (walks and the claims that they complete) in the worker.

Keys that run out of memory or crash the worker are tried once more with no other key loaded. It
must not know which walks are worthwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from bricks.measure.progress import Wait
from bricks.measure.sampler import Sampler
from bricks.measure.walk_sampling import WalkSampling

if TYPE_CHECKING:
    from bricks.measure.campaign_result import Tally
    from bricks.measure.deadline import Deadline
    from bricks.measure.further_copies import FurtherCopies
    from bricks.measure.loop import Loop
    from bricks.measure.progress import Progress
    from bricks.measure.sampling_task import SamplingTask
    from bricks.measure.supervisor import Supervisor
    from bricks.samples.measurement import Round
    from bricks.store import Claim

_logger = logging.getLogger(__name__)

# Loading's share of a task's progress.
_LOADING = 0.25


class TaskSampler:
    """Samples the tasks of one campaign: ``loop`` completes claims, ``tally`` counts results.

    A step that takes longer than ``timeout_s`` seconds fails. Further ``copies`` of a task's model
    run while it is sampled.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        loop: Loop,
        tally: Tally,
        progress: Progress,
        timeout_s: float,
        copies: FurtherCopies,
    ) -> None:
        self.loop, self.tally, self.progress = loop, tally, progress
        self._supervisor, self._timeout_s = supervisor, timeout_s
        self._copies = copies

    def claims(
        self, what: str, keys: Collection[str], deadline: Deadline, share: float, *, patient: bool
    ) -> Iterator[list[Claim]]:
        """Claims to ``keys``: see :meth:`Loop.claims`, which waits for others if ``patient``."""

        def waiting(owners: Sequence[str]) -> None:
            others = " and ".join(owners) or "another process"
            self.progress(Wait(others, f": the rest of {what}"), share)

        return self.loop.claims(keys, deadline, waiting=waiting if patient else None)

    def sample(self, task: SamplingTask) -> set[str]:
        """Sample a task's walks, store every round, complete claims; returns the finished keys."""
        _logger.info(
            "%s: to be measured: %d, walks: %d", task.what, len(task.claims), len(task.walks)
        )
        before = self.tally.rounds
        sampler = self._sampler(task)
        sampler.prepare()
        sampling = WalkSampling(
            sampler,
            task.rule,
            task.goals,
            on_round=partial(self._note, task),
            on_turn=lambda share: self._show(task, _LOADING + (1 - _LOADING) * share),
        )
        with self._copies.running(task.copied, timeout_s=self._timeout_s):
            done = self.loop.sample(sampling, task.claims, deadline=task.deadline)
        _logger.info("%s: rounds taken: %d", task.what, self.tally.rounds - before)
        self._note_failed(task, sampler)
        for key in sorted(task.claimed & sampler.failed_keys.suspects.keys()):
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            done |= self.sample(task.isolated(key))
        return done

    def _sampler(self, task: SamplingTask) -> Sampler:
        return Sampler(
            self._supervisor,
            task.walks,
            timeout_s=self._timeout_s,
            on_load=lambda share: self._loaded(task, share),
            on_step=self.loop.renew,
        )

    def _loaded(self, task: SamplingTask, share: float) -> None:
        self._show(task, _LOADING * share)
        self.loop.renew()

    def _note(self, task: SamplingTask, rounds: Mapping[str, Round]) -> None:
        self._copies.check()  # else this round was sampled with fewer copies
        self.tally.add_round(rounds.values())
        self.tally.remeasured |= (rounds.keys() - task.claimed) & task.bricks

    def _note_failed(self, task: SamplingTask, sampler: Sampler) -> None:
        """Record keys that failed, and keys that ran under other conditions than in their model."""
        self.tally.eviction_short |= sampler.eviction_short
        self.tally.separate |= sampler.separate
        failures = sampler.failed_keys.failures
        self.tally.add_failures({key: failures[key] for key in task.claimed & failures.keys()})

    def _show(self, task: SamplingTask, share: float) -> None:
        self.progress(task.what, task.share_of_all(share))
