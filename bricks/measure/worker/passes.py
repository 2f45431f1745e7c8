"""Makes passes over the steps of a walk: step by step, announced or not, or in few calls.

Several steps run in one call where the runtime can; such calls are kept between walks. Watching
kernels on a device slows the host, so the kernels of a walk are timed in a pass of their own, after
those that time the host. Must not know how many passes there are, nor what happens between passes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from bricks.backends.base import Backend, BoundModel, FusedRunner
from bricks.backends.kernel_timing import KernelTimer
from bricks.backends.programs import Recorder
from bricks.errors import BackendError
from bricks.measure.protocol.request import Announce
from bricks.measure.protocol.walking import AllocationEvent
from bricks.measure.worker.loaded_pieces import BoundPiece
from bricks.units.sample import Sample

# Runs a step once, and returns its sample.
StepRun = Callable[[], Sample]

# Runs all steps once, in order, and returns a sample of each.
Pass = Callable[[], list[Sample]]

# Steps between two waits for the device, whose queue of launches would fill up otherwise.
_PACE = 48


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


@dataclass(frozen=True, slots=True)
class DevicePasses:
    """Passes over ``runs`` on the device of ``timer``; ``end`` follows the last step of each.

    Before each step the device touches ``displaced_bytes`` of other memory. None: only what the
    walk touches; 0: the step itself runs right before.
    """

    timer: KernelTimer
    runs: Sequence[StepRun]
    end: Callable[[], None]
    displaced_bytes: int | None

    def one_pass(self) -> list[Sample]:
        """Run all steps; return their samples on the host."""
        samples = []
        for number, run in enumerate(self._in_state):
            if number % _PACE == 0:
                self.timer.synchronise()
            samples.append(run())
        self.timer.synchronise()
        self.end()
        return samples

    def with_kernels(self, passes: Sequence[Sequence[Sample]]) -> list[list[Sample]]:
        """Run all steps once more for their kernels, which all samples of a step get."""
        kernels = self.timer.kernels(self._in_state)
        self.end()
        return [
            [
                replace(sample, kernels=tuple(own), displaced_bytes=self.displaced_bytes)
                for sample, own in zip(samples, kernels, strict=True)
            ]
            for samples in passes
        ]

    def announced(self, announced: Callable[[Sequence[StepRun]], Pass]) -> Pass:
        """A pass of ``announced`` steps, each to the end of its kernels.

        So an error of the device belongs to the step that made it.
        """

        def to_the_end(run: StepRun) -> Sample:
            sample = run()
            self.timer.synchronise()
            return sample

        return ending(announced([partial(to_the_end, run) for run in self.runs]), self.end)

    @property
    def _in_state(self) -> list[StepRun]:
        displaced_bytes = self.displaced_bytes
        if displaced_bytes is None:
            return [*self.runs]

        def after_others(run: StepRun) -> Sample:
            if displaced_bytes:
                self.timer.displace(displaced_bytes)
            else:
                run()
            return run()

        return [partial(after_others, run) for run in self.runs]


@dataclass(frozen=True, slots=True)
class _FusedCall:
    """One call of the runtime that runs the steps called ``names``, with a sample of each."""

    names: Sequence[str]
    sample: Callable[[], Sequence[Sample]]


class FusedSteps:
    """Steps in as few calls as the runtime allows, and the bytes to read before the first call.

    Steps called ``separate`` have calls of their own.
    """

    def __init__(self, calls: Sequence[_FusedCall], eviction_bytes: int) -> None:
        self._calls, self.eviction_bytes = calls, eviction_bytes
        self.separate = frozenset(call.names[0] for call in calls if len(call.names) == 1)
        names = [name for call in calls for name in call.names]
        self._numbers = {name: number for number, name in enumerate(names)}

    def covers(self, names: Sequence[str]) -> bool:
        """Whether all steps called ``names`` are run."""
        return self._numbers.keys() >= set(names)

    def sample(self, names: Sequence[str]) -> list[Sample]:
        """Run all steps once, and return a sample of each step in ``names``."""
        samples = [sample for call in self._calls for sample in call.sample()]
        return [samples[self._numbers[name]] for name in names]


class FusedRuns:
    """Keeps fused steps until other models are loaded or bound.

    Fusing takes as long as loading a model, and running more steps than needed does not. So a walk
    over some of the steps of an earlier walk runs all steps of the earlier one.
    """

    def __init__(self) -> None:
        self._kept: list[FusedSteps] = []
        self._refused: set[tuple[str, ...]] = set()

    def clear(self) -> None:
        """Drop all fused steps: their bindings are no longer valid."""
        self._kept.clear()
        self._refused.clear()

    def of(
        self,
        backend: Backend,
        bound: Mapping[str, BoundModel],
        names: Sequence[str],
        eviction_bytes: int,
    ) -> FusedSteps | None:
        """Fuse the steps called ``names``; None where the runtime fuses none of them."""
        if not isinstance(backend, FusedRunner) or tuple(names) in self._refused:
            return None
        for kept in self._kept:
            if kept.covers(names):
                return kept
        calls = _calls(backend, bound, names) if len(names) > 1 else None
        if calls is None:
            self._refused.add(tuple(names))
            return None
        self._kept.append(FusedSteps(calls, eviction_bytes))
        return self._kept[-1]


def _calls(
    backend: FusedRunner, bound: Mapping[str, BoundModel], names: Sequence[str]
) -> list[_FusedCall] | None:
    """The calls that run the steps called ``names``; None where the runtime fuses no such steps.

    Steps that cannot run in one call are halved, until a step that cannot be fused has its own.
    """
    if len(names) == 1:
        (name,) = names
        return [_FusedCall(names, lambda: [bound[name].sample()])]
    try:
        fused = backend.fused([bound[name] for name in names])
    except (BackendError, MemoryError):  # a step that fails says so when it runs separately
        middle = len(names) // 2
        halves = [_calls(backend, bound, part) for part in (names[:middle], names[middle:])]
        return None if None in halves else [call for half in halves for call in half or ()]
    return None if fused is None else [_FusedCall(names, fused.sample)]
