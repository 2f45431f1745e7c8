"""The user's program as a whole: a new instance for each use, by name or from a recording.

Its steps are timed, or run to measure memory, or run under PyTorch's own profiler, as events of the
recorded calls. The profiler sees more than the recorder: operators that only call others, and
operators that kernels call. Recorded calls are matched with its events in order; events inside a
call and all others are dropped. Must not know what programs are used for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import onnx
import torch
from torch.profiler import ProfilerActivity, profile

from bricks.backends.base import NodeEvent, OwnMemory
from bricks.backends.programs import ProgramSource, SeededProgram
from bricks.backends.torch.device import PROCESSOR, Device
from bricks.backends.torch.entry import Program, program, users_errors
from bricks.backends.torch.record import WARM_UP
from bricks.backends.torch.run.training import made_with, refuse_untrainable
from bricks.errors import BackendError
from bricks.graph.program import Origin, call_of, origin_of
from bricks.units.sample import Sample
from bricks.zoo import zoo_folder

# The runtime of recordings that name none.
_UNNAMED = "torch"


class UserPrograms:
    """Makes programs from a seed for the ``runtime``, as they are written or ``compiled``.

    Their tensors are made on the ``device``.
    """

    def __init__(
        self, runtime: str, seed: int, *, compiled: bool, device: Device = PROCESSOR
    ) -> None:
        self._runtime, self._seed, self._compiled = runtime, seed, compiled
        self._device = device

    def seeded(self, source: ProgramSource) -> Program:
        """Make a program after seeding PyTorch."""
        torch.manual_seed(self._seed)
        return self.made(source)

    def made(self, source: ProgramSource) -> Program:
        """Make a program without seeding, compiled if this backend compiles."""
        eager = self.eager(source)
        if not self._compiled:
            return eager
        from bricks.backends.torch.compiled_kernels import compiled

        return replace(eager, compiled=compiled(eager.module))

    def eager(self, source: ProgramSource) -> Program:
        """Make a program without seeding, as it is written."""
        made = program(source.entry, self.folder(source), source.options, self._device)
        return made if self._device is PROCESSOR else _placed(made, self._device)

    @staticmethod
    def folder(source: ProgramSource) -> str:
        """Return the folder that relative files start from; the zoo's by default."""
        return source.folder or str(zoo_folder())

    def trainable(self, source: SeededProgram) -> Program:
        """Make a program as it is written, from its own seed; raises if it cannot be trained."""
        made = made_with(lambda: self.eager(source), source.seed)
        refuse_untrainable(made)
        return made

    def of(self, proto: onnx.ModelProto) -> Program:
        """Make the program that was recorded as ``proto``."""
        origin = origin_of(proto)
        if origin is None or not origin.entry:
            raise BackendError(
                "its code is not here: it was recorded on another host, and only its calls can be"
                " measured"
            )
        return self.seeded(ProgramSource(origin.entry, origin.folder, origin.options))

    def origin(self, source: ProgramSource, kind: str) -> Origin:
        """Return the origin that is noted in a recording: ``kind`` is training or inference."""
        version = torch.__version__.partition("+")[0]
        return Origin(source.entry, source.folder, kind, version, source.options, self._runtime)

    def refuse_other_runtime(self, proto: onnx.ModelProto) -> None:
        """Raise :class:`BackendError` if ``proto`` was recorded by another runtime."""
        origin = origin_of(proto)
        recorded = self._runtime if origin is None else origin.runtime or _UNNAMED
        if recorded != self._runtime:
            raise BackendError(
                f"it was recorded as {recorded} runs it: choose --runtime {recorded},"
                " or record its code again"
            )

    def keeping_kernels(self) -> AbstractContextManager[None]:
        """Meanwhile, keep the source of compiled kernels, so that they can be recorded."""
        if not self._compiled:
            return nullcontext()
        from bricks.backends.torch.compiled_kernels import kernels_kept

        return kernels_kept()


def _placed(made: Program, device: Device) -> Program:
    """Return ``made``, or if its step makes tensors on the host, with ``device`` as the default.

    A default costs each call of the host some time, so only programs have it that need it.
    """
    with users_errors(made.entry):
        try:
            made.step()
        except RuntimeError as exc:
            if "device" not in str(exc):
                raise
            return replace(made, default=device.default)
    return made


class LoadedProgram(OwnMemory):
    """The user's program, of which a sample is one step, until the ``device`` has ended it."""

    def __init__(self, made: Program, device: Device = PROCESSOR) -> None:
        self._program, self._device = made, device
        with users_errors(made.entry):
            for _ in range(WARM_UP):
                made.step()

    def sample(self) -> Sample:
        """Run and time one step."""
        with users_errors(self._program.entry):
            self._device.synchronise()
            with self._device.sampled():
                start = time.perf_counter_ns()
                self._program.step()
                self._device.synchronise()
                return Sample((time.perf_counter_ns() - start) * 1e-9)


class StandaloneProgram:
    """The user's program in a process of its own, to measure its memory."""

    def __init__(self, make: Callable[[], Program]) -> None:
        self._make = make
        self._program: Program | None = None

    def load(self) -> None:
        """Make the program: its module, inputs and optimiser."""
        self._program = self._make()

    def run(self) -> None:
        """Run a step."""
        assert self._program is not None, "load it first"
        with users_errors(self._program.entry):
            self._program.step()


class ProfiledSteps:
    """Profiled steps of ``program``; ``nodes`` are its recorded calls, with distinct names."""

    def __init__(self, program: Program, nodes: Sequence[onnx.NodeProto]) -> None:
        self._program = program
        self._calls = []
        for node in nodes:
            call = call_of(node)
            title = f"{call.namespace}::{call.operator.partition('.')[0]}"  # in the profiler
            self._calls.append((node.name, node.op_type, title))
        self._runs: list[tuple[float, list[Any]]] = []
        with users_errors(program.entry):
            for _ in range(WARM_UP):
                program.step()

    def sample(self) -> float:
        """Run a step; return the latency in seconds, which profiling increases."""
        with users_errors(self._program.entry), profile(activities=[ProfilerActivity.CPU]) as seen:
            self._program.step()
        events = sorted(seen.events(), key=lambda e: (e.time_range.start, -e.time_range.end))
        events = [event for event in events if event.name.startswith(("aten::", "bricks::"))]
        begin_us = events[0].time_range.start if events else 0.0
        end_us = max((event.time_range.end for event in events), default=0.0)
        self._runs.append((begin_us, events))
        return float(end_us - begin_us) * 1e-6

    def runs(self) -> list[list[NodeEvent]]:
        """Return the events of recorded calls for each step so far."""
        return [self._matched(begin_us, events) for begin_us, events in self._runs]

    def _matched(self, begin_us: float, events: Sequence[Any]) -> list[NodeEvent]:
        matched: list[NodeEvent] = []
        busy_until_us = 0.0
        for event in events:
            span = event.time_range
            if len(matched) == len(self._calls) or span.start < busy_until_us:
                continue
            name, operator, title = self._calls[len(matched)]
            if event.name != title:
                continue
            busy_until_us = span.end
            matched.append(
                NodeEvent(
                    name=name,
                    operator=operator,
                    begin_s=(span.start - begin_us) * 1e-6,
                    end_s=(span.end - begin_us) * 1e-6,
                    thread=int(event.thread),
                )
            )
        return matched
