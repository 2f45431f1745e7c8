"""PyTorch on the CPU: programs as users write them, inference and whole training steps.

It has an environment of its own (``bricks backends install torch``). A model is a recorded program
(:mod:`bricks.graph.program`); a brick is one of its calls. Whole models are the user's own program,
run as it is: forward, backward, optimiser. Must not know plans or the store.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch

from bricks.backends.base import BindableModel, Evaluator, ExecutedGraph, Profiler, StandaloneLoader
from bricks.backends.instruments import Instrumented
from bricks.backends.programs import (
    DoublePrecision,
    ProgramSource,
    Recorder,
    SeededProgram,
    Trainer,
)
from bricks.backends.ranks import Communicator, DistributedTrainer
from bricks.backends.torch.cut import deciding_values, recipes_of
from bricks.backends.torch.device import PROCESSOR, Device, Handles
from bricks.backends.torch.entry import users_errors
from bricks.backends.torch.record import WARM_UP, record
from bricks.backends.torch.run.distributed import (
    TorchCollectives,
    TorchDistributedStep,
    replicated_steps,
)
from bricks.backends.torch.run.double_precision import ProgramInDouble, gradients
from bricks.backends.torch.run.probes import (
    PhaseProbe,
    ProbeModel,
    TorchInstruments,
    is_probe_model,
    phase_probes,
    probed,
)
from bricks.backends.torch.run.replay import LoadedCalls, RealStep, replayed
from bricks.backends.torch.run.tiny_programs import PhaseProbes
from bricks.backends.torch.run.training import ProgramTraining
from bricks.backends.torch.run.training_checks import item_orders, trajectories
from bricks.backends.torch.run.whole_programs import (
    LoadedProgram,
    ProfiledSteps,
    StandaloneProgram,
    UserPrograms,
)
from bricks.backends.training_checks import GradientDeviations, ItemOrders, OptimizerTrajectories
from bricks.errors import BackendError
from bricks.graph.call import INFERENCE
from bricks.graph.form import ModelForm, form_of
from bricks.graph.program import origin_of
from bricks.graph.types import ValueType
from bricks.graph.view import graph_of


class TorchBackend(
    Evaluator,
    Recorder,
    DoublePrecision,
    Trainer,
    Profiler,
    StandaloneLoader,
    Communicator,
    DistributedTrainer,
    Instrumented,
):
    """PyTorch with ``threads`` threads within an operator.

    Modules are ``compiled`` by PyTorch's compiler, or run as they are written; loss and optimiser
    always run as they are written.
    """

    loaders = 1  # tensors are filled by one generator

    def __init__(
        self,
        name: str,
        *,
        threads: int,
        seed: int,
        compiled: bool = False,
        device: Device = PROCESSOR,
    ) -> None:
        # Before the first operator runs, so that all threads of the pool inherit it: values that
        # are computed repeatedly may become denormal, which is slow.
        torch.set_flush_denormal(True)
        torch.set_num_threads(threads)
        # Gradients stay enabled: some kernels save values for the backward pass. No tensor of a
        # replayed call requires a gradient.
        self._seed, self._compiled, self._device = seed, compiled, device
        self._programs = UserPrograms(name, seed, compiled=compiled, device=device)
        if compiled:
            from bricks.backends.torch.compiled_kernels import inductor  # slow import

            inductor()
        self._handles = Handles(device)
        self._probes: dict[bool, PhaseProbes] = {}

    def record(self, program: ProgramSource) -> onnx.ModelProto:
        """Record the calls of one step of the user's program; see :func:`recording.record`."""
        made = self._programs.seeded(program)
        origin = self._programs.origin(program, made.kind)
        with self._programs.keeping_kernels():
            return record(made, self._seed).model(origin)

    def real_step(self, proto: onnx.ModelProto) -> RealStep:
        """Run a step of the program that was recorded as ``proto``."""
        made = self._programs.of(proto)
        torch.manual_seed(self._seed)
        with users_errors(made.entry), self._programs.keeping_kernels():
            return RealStep(made, proto, WARM_UP + 1, self._device)

    def in_double(self, proto: onnx.ModelProto) -> ProgramInDouble:
        """Return the program that was recorded as ``proto``, as it is and in double."""
        return ProgramInDouble(lambda: self._programs.of(proto), self._seed)

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledSteps:
        """Return the user's program under PyTorch's own profiler."""
        return ProfiledSteps(self._programs.of(proto), proto.graph.node)

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneProgram:
        """Return the user's program, which has no files."""
        return StandaloneProgram(lambda: self._programs.of(proto))

    def training(self, program: SeededProgram) -> ProgramTraining:
        """Return a training of a program; see :mod:`bricks.backends.torch.run.training`."""
        folder = self._programs.folder(program)
        return ProgramTraining(lambda: self._programs.made(program), folder, program.seed)

    def gradients(self, program: SeededProgram) -> GradientDeviations:
        """Compare its gradients; see :mod:`bricks.backends.torch.run.double_precision`."""
        return gradients(self._programs.trainable(program), program.seed)

    def trajectories(self, program: SeededProgram, steps: int) -> OptimizerTrajectories:
        """Trace its optimiser; see :mod:`bricks.backends.torch.run.training_checks`."""
        return trajectories(self._programs.trainable(program), steps)

    def item_orders(self, program: SeededProgram, epochs: int) -> ItemOrders:
        """Trace the order of its data; see :mod:`bricks.backends.torch.run.training_checks`."""
        return item_orders(self._programs.trainable(program), epochs)

    def collectives(self) -> TorchCollectives:
        """Return this process as a rank; see :mod:`bricks.backends.torch.run.distributed`."""
        return TorchCollectives()

    def distributed_step(
        self,
        program: SeededProgram,
        *,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> TorchDistributedStep:
        """Return the program in this rank; see :mod:`bricks.backends.torch.run.distributed`."""
        torch.manual_seed(program.seed)
        return TorchDistributedStep(
            self._programs.eager(program),
            synchronised=synchronised,
            bucket_cap_mb=bucket_cap_mb,
            accumulation=accumulation,
        )

    def pre_touch(self, events: Sequence[tuple[int, int]]) -> None:
        """Allocate for calls that a walk omits, and free as the program does."""
        self._handles.apply(events)

    def instruments(self) -> TorchInstruments:
        """Return instruments that are calls of PyTorch."""
        return TorchInstruments()

    def sign_sensitive(self, operator: str) -> bool:
        """Return False: calls that depend on signs are vectorised."""
        return False

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """Return the program itself: recorded calls are executed calls."""
        _refuse_others(proto)
        self._programs.refuse_other_runtime(proto)
        return ExecutedGraph(proto, graph_of(proto).types, {})

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """Return the recorded types."""
        _refuse_others(proto)
        return graph_of(proto).types, ()

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Raise: no value of a recorded program steers it."""
        raise BackendError("a recorded program has no steering values")

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> BindableModel:
        """Load the calls of a brick, or for a whole model the user's program."""
        probe = probed(proto)
        if probe is not None:
            training = probe[0] != INFERENCE
            if training not in self._probes:
                with self._programs.keeping_kernels():
                    self._probes[training] = phase_probes(
                        training, self._seed, compiled=self._compiled, device=self._device
                    )
            return PhaseProbe(self._probes[training], *probe)
        replicated = replicated_steps(proto)
        if replicated is not None:
            return replicated
        if is_probe_model(proto):
            return ProbeModel(proto, self._generator(key))
        _refuse_others(proto)
        if origin_of(proto) is not None:
            return LoadedProgram(self._programs.of(proto), self._device)
        return LoadedCalls(
            proto,
            recipes_of(proto),
            lambda: self._generator(key),
            self._handles.tensors,
            deciding_values(proto),
            self._device,
        )

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """Replay the calls on these weights and inputs; return the outputs."""
        arrays = {**weights, **feeds}
        made = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        values = self._device.placed(made)
        for node in proto.graph.node:
            replayed(node).run(values)
        return [values[info.name].cpu().numpy() for info in proto.graph.output]

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[ExecutedGraph, Mapping[str, np.ndarray]]:
        """Return the program with unchanged weights."""
        return self.executed(proto), weights

    def _generator(self, key: str) -> torch.Generator:
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{self._seed}/{key}".encode()))
        return generator


def _refuse_others(proto: onnx.ModelProto) -> None:
    if form_of(proto) is not ModelForm.PROGRAMS:
        raise BackendError(
            "PyTorch runs recorded programs, not ONNX models: give FILE.py:FUNCTION, or choose"
            " another --runtime"
        )
