"""Passes over the steps of a walk: one by one, announced or not, or in few calls of the runtime.

Must not know how many passes there are, nor what is between them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bricks.backends.base import BoundModel
from bricks.backends.programs import Recorder
from bricks.measure.allocation_events import AllocationEvent
from bricks.measure.worker.fused_runs import FusedSteps
from bricks.measure.worker.handlers import Announce
from bricks.measure.worker.loaded_pieces import BoundPiece
from bricks.units.sample import Sample

# Runs a step once; what it took.
StepRun = Callable[[], Sample]

# Runs all steps once, in order; what each of them took.
Pass = Callable[[], list[Sample]]


def one_by_one(runs: Sequence[StepRun]) -> Pass:
    """Each step in a call of its own."""
    return lambda: [run() for run in runs]


def announced(runs: Sequence[StepRun], announce: Announce) -> Pass:
    """Each step in a call of its own, and announced before."""

    def one_pass() -> list[Sample]:
        taken = []
        for number, run in enumerate(runs):
            announce(number)
            taken.append(run())
        return taken

    return one_pass


def at_once(joint: FusedSteps, names: Sequence[str], steps: Sequence[BoundPiece]) -> Pass:
    """The steps called ``names`` together, after what is to run before each of them."""
    before = [prepare for step in steps for prepare in step.before]

    def one_pass() -> list[Sample]:
        for prepare in before:
            prepare()
        return joint.sample(names)

    return one_pass


def evicting(read: BoundModel, one_pass: Pass) -> Pass:
    """A pass that finds the caches as other weights have left them."""

    def evicted() -> list[Sample]:
        read.sample()
        return one_pass()

    return evicted


def allocating(
    recorder: Recorder, runs: Sequence[StepRun], memory: Sequence[Sequence[AllocationEvent]]
) -> tuple[list[StepRun], Callable[[], None]]:
    """``runs`` that allocate and free before, and what to allocate and free after the last one."""

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
        taken = one_pass()
        end()
        return taken

    return ended
