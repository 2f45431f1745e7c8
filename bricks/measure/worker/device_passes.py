"""Passes over the steps of a walk whose kernels run on a device next to the host.

Watching kernels slows the host, so the kernels of a walk are timed in a pass of their own, after
those that time the host. Must not know how kernels are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bricks.backends.kernel_timing import KernelTimer
from bricks.measure.worker.passes import Pass, StepRun
from bricks.units.sample import Sample

# Steps between two waits for the device, whose queue of launches would fill up otherwise.
_PACE = 48


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
        one_pass = announced([self._to_the_end(run) for run in self.runs])

        def ended() -> list[Sample]:
            samples = one_pass()
            self.end()
            return samples

        return ended

    @property
    def _in_state(self) -> list[StepRun]:
        return [self._after_others(run) for run in self.runs]

    def _after_others(self, run: StepRun) -> StepRun:
        displaced_bytes = self.displaced_bytes
        if displaced_bytes is None:
            return run

        def prepared() -> Sample:
            if displaced_bytes:
                self.timer.displace(displaced_bytes)
            else:
                run()
            return run()

        return prepared

    def _to_the_end(self, run: StepRun) -> StepRun:
        def waited() -> Sample:
            sample = run()
            self.timer.synchronise()
            return sample

        return waited
