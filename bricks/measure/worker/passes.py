"""Makes passes over the steps of a walk: step by step, announced or not, or in few calls.

Must not know how many passes there are, nor what happens between passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from bricks.backends.base import BoundModel
from bricks.backends.programs import Recorder
from bricks.measure.allocation_events import AllocationEvent
from bricks.measure.worker.fused_runs import FusedSteps
from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.loaded_pieces import BoundPiece
from bricks.units.sample import Sample

# Runs a step once, and returns its sample.
StepRun = Callable[[], Sample]

# Runs all steps once, in order, and returns a sample of each.
Pass = Callable[[], list[Sample]]


def between_stops(run: StepRun) -> StepRun:
    """``run`` without the time for which a quota below one processor stopped its thread.

    A run within a quota is stopped where the budget of a period ends, so that one which takes
    longer is always. The processor time of this process has no stops; where it is longer than the
    run, that is what prepared the run.
    """

    def timed() -> Sample:
        before_s = time.process_time()
        sample = run()
        return replace(sample, host_s=min(sample.host_s, time.process_time() - before_s))

    return timed


def one_by_one(runs: Sequence[StepRun]) -> Pass:
    """A pass with a call of the runtime for each step."""
    return lambda: [run() for run in runs]


def announced(runs: Sequence[StepRun], announce: Announce) -> Pass:
    """A pass with a call for each step, which is announced before it runs."""

    def one_pass() -> list[Sample]:
        samples = []
        for number, run in enumerate(runs):
            announce(number)
            samples.append(run())
        return samples

    return one_pass


def together(fused: FusedSteps, names: Sequence[str], steps: Sequence[BoundPiece]) -> Pass:
    """A pass over ``fused`` steps, after all preparations; samples of those called ``names``."""
    before = [prepare for step in steps for prepare in step.before]

    def one_pass() -> list[Sample]:
        for prepare in before:
            prepare()
        return fused.sample(names)

    return one_pass


def evicting(read: BoundModel, one_pass: Pass) -> Pass:
    """A pass after a ``read`` of other memory, which evicts the caches."""

    def evicted() -> list[Sample]:
        read.sample()
        return one_pass()

    return evicted


def allocating(
    recorder: Recorder, runs: Sequence[StepRun], memory: Sequence[Sequence[AllocationEvent]]
) -> tuple[list[StepRun], Callable[[], None]]:
    """``runs`` that allocate and free before they run, and a function for after the last run."""

    def after(events: Sequence[AllocationEvent], run: StepRun) -> StepRun:
        def prepared() -> Sample:
            recorder.pre_touch(events)
            return run()

        return prepared if events else run

    *before, last = memory
    prepared = [after(events, run) for events, run in zip(before, runs, strict=True)]
    return prepared, lambda: recorder.pre_touch(last)


def ending(one_pass: Pass, end: Callable[[], None]) -> Pass:
    """A pass with ``end`` after its last step."""

    def ended() -> list[Sample]:
        samples = one_pass()
        end()
        return samples

    return ended
