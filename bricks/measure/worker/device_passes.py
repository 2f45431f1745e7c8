"""Passes over the steps of a walk whose kernels run on a device next to the host.

A pass makes all steps twice: first for their times on the host, then for those of their kernels,
since watching kernels slows the host. Must not know how kernels are timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from bricks.backends.kernel_timing import KernelTimer
from bricks.measure.worker.passes import Pass, StepRun
from bricks.units.sample import Sample

# Steps between two waits for the device, whose queue of launches would fill up otherwise.
_PACE = 48


def on_device(
    timer: KernelTimer,
    runs: Sequence[StepRun],
    end: Callable[[], None],
    displaced_bytes: int | None,
) -> Pass:
    """A pass whose samples have kernels; ``end`` follows the last step.

    Before each step the device touches ``displaced_bytes`` of other memory. None: only what the
    walk touches; 0: the step itself runs right before.
    """
    states = [_in_state(timer, run, displaced_bytes) for run in runs]

    def one_pass() -> list[Sample]:
        samples = []
        for number, run in enumerate(states):
            if number % _PACE == 0:
                timer.synchronise()
            samples.append(run())
        timer.synchronise()
        end()
        kernels = timer.kernels(states)
        end()
        return [
            replace(sample, kernels=tuple(own), displaced_bytes=displaced_bytes)
            for sample, own in zip(samples, kernels, strict=True)
        ]

    return one_pass


def waiting(timer: KernelTimer, runs: Sequence[StepRun]) -> list[StepRun]:
    """``runs`` that end with the device, so that its errors belong to the step that made them."""

    def waited(run: StepRun) -> StepRun:
        def to_the_end() -> Sample:
            sample = run()
            timer.synchronise()
            return sample

        return to_the_end

    return list(map(waited, runs))


def _in_state(timer: KernelTimer, run: StepRun, displaced_bytes: int | None) -> StepRun:
    if displaced_bytes is None:
        return run

    def prepared() -> Sample:
        if displaced_bytes:
            timer.displace(displaced_bytes)
        else:
            run()
        return run()

    return prepared
