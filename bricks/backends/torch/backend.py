"""PyTorch on the CPU: eager programs as users write them, inference and whole training steps.

It has an environment of its own (``bricks backends install torch``). A model is a recorded program
(:mod:`bricks.graph.program`); a brick is one of its calls. Whole models are the user's own program,
run as it is: forward, backward, optimiser. Must not know plans or the store.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import torch

from bricks.backends.base import Evaluator, Executed, Isolated, Placement, Profiler
from bricks.backends.instruments import Instrumented
from bricks.backends.programs import InDouble, Recorder, Trainer
from bricks.backends.ranks import Communicator, DistributedTrainer
from bricks.backends.torch.double import ProgramInDouble
from bricks.backends.torch.entry import Program, program, users_errors
from bricks.backends.torch.generator_states import GENERATOR
from bricks.backends.torch.gradients import gradients
from bricks.backends.torch.instruments import TorchInstruments
from bricks.backends.torch.item_orders import item_orders
from bricks.backends.torch.modes import COMPILED, EAGER
from bricks.backends.torch.probe import PhaseProbe, PhaseProbes, probed
from bricks.backends.torch.probe_models import ProbeModel, is_probe_model
from bricks.backends.torch.profile import ProfiledSteps
from bricks.backends.torch.recording import WARM_UP, record
from bricks.backends.torch.replay import LoadedCalls, ReplayedCall, Slots, empty
from bricks.backends.torch.replicated import ReplicatedSteps, replicated_steps
from bricks.backends.torch.stepping import RealStep
from bricks.backends.torch.training import ProgramTraining, made_with, refuse_untrainable
from bricks.backends.torch.trajectories import trajectories
from bricks.backends.torch.values import (
    bounds_of,
    fill,
    fill_rising,
    rising_bounds_of,
    tensor_types,
)
from bricks.decompose.dialects import decisive_values
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.form import DOMAIN, ModelForm, form_of
from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import Origin, call_of, origin_of
from bricks.graph.program_phases import INFERENCE
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, without_values
from bricks.units.sample import Sample
from bricks.zoo import zoo_folder

if TYPE_CHECKING:
    from bricks.backends.torch.collectives import TorchCollectives
    from bricks.backends.torch.distributed_step import DistributedStep

_PAGE_BYTES = 4096


class TorchBackend(
    Evaluator,
    Recorder,
    InDouble,
    Trainer,
    Profiler,
    Isolated,
    Communicator,
    DistributedTrainer,
    Instrumented,
):
    """PyTorch with so many threads within an operator.

    Modules are ``compiled`` by PyTorch's compiler, or run as they are; loss and optimiser always
    run as they are.
    """

    loaders = 1  # tensors are filled by one generator

    def __init__(self, *, threads: int, seed: int, compiled: bool = False) -> None:
        # Before the first operator runs, so that all threads of the pool inherit it: values that
        # are computed again and again may become denormal, and such numbers take long.
        torch.set_flush_denormal(True)
        torch.set_num_threads(threads)
        # Gradients stay enabled: some kernels keep for them what the backward pass reads. No tensor
        # of a replayed call asks for any.
        self._seed, self._compiled = seed, compiled
        if compiled:
            from bricks.backends.torch.kernels import inductor  # it takes long to import

            inductor()
        self._slots: Slots = {}
        self._occupied: Slots = {}
        self._probes: dict[bool, PhaseProbes] = {}

    def record(self, entry: str, folder: str, options: Mapping[str, Any]) -> onnx.ModelProto:
        """The calls of one step of the user's program; see :func:`recording.record`."""
        made = self._made(entry, folder or str(zoo_folder()), options)
        version = torch.__version__.partition("+")[0]
        origin = Origin(entry, folder, made.kind, version, options, self._name)
        with self._keeping():
            return record(made, origin, self._seed).proto

    @property
    def _name(self) -> str:
        return COMPILED if self._compiled else EAGER

    def _made(self, entry: str, folder: str, options: Mapping[str, Any]) -> Program:
        torch.manual_seed(self._seed)
        return self._called(entry, folder, options)

    def _called(self, entry: str, folder: str, options: Mapping[str, Any]) -> Program:
        found = program(entry, folder, options)
        if not self._compiled:
            return found
        from bricks.backends.torch.kernels import compiled

        return replace(found, compiled=compiled(found.module))

    def _keeping(self) -> AbstractContextManager[None]:
        """Meanwhile, compiled kernels are kept, so that they can be recorded."""
        if not self._compiled:
            return nullcontext()
        from bricks.backends.torch.kernels import kernels_kept

        return kernels_kept()

    def stepped(self, proto: onnx.ModelProto) -> RealStep:
        """A real step of the program that was recorded as ``proto``."""
        made = self._program_of(proto)
        torch.manual_seed(self._seed)
        with users_errors(made.entry), self._keeping():
            return RealStep(made, proto, WARM_UP + 1)

    def in_double(self, proto: onnx.ModelProto) -> ProgramInDouble:
        """A step of the program that was recorded as ``proto``, beside the same in double."""
        return ProgramInDouble(lambda: self._program_of(proto), self._seed)

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> ProfiledSteps:
        """The user's program under PyTorch's own profiler."""
        return ProfiledSteps(self._program_of(proto), proto.graph.node)

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> StandaloneProgram:
        """The user's program; it has no files."""
        return StandaloneProgram(lambda: self._program_of(proto))

    def training(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int
    ) -> ProgramTraining:
        """A training of the user's program; see :mod:`bricks.backends.torch.training`."""
        where = folder or str(zoo_folder())
        return ProgramTraining(lambda: self._called(entry, where, options), where, seed)

    def gradients(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int
    ) -> Mapping[str, Any]:
        """The program's gradients; see :func:`bricks.backends.torch.gradients.gradients`."""
        return gradients(self._trainable(entry, folder, options, seed), seed)

    def trajectories(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int, steps: int
    ) -> Mapping[str, Any]:
        """The way of its optimiser; see :mod:`bricks.backends.torch.trajectories`."""
        return trajectories(self._trainable(entry, folder, options, seed), steps)

    def item_orders(
        self, entry: str, folder: str, options: Mapping[str, Any], seed: int, epochs: int
    ) -> Mapping[str, Any]:
        """The order of its data's items; see :mod:`bricks.backends.torch.item_orders`."""
        return item_orders(self._trainable(entry, folder, options, seed), epochs)

    def collectives(self) -> TorchCollectives:
        """This process as a rank; see :mod:`bricks.backends.torch.collectives`."""
        from bricks.backends.torch.collectives import TorchCollectives

        return TorchCollectives()

    def distributed_step(
        self,
        entry: str,
        folder: str,
        options: Mapping[str, Any],
        seed: int,
        *,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> DistributedStep:
        """The user's program in a rank; see :mod:`bricks.backends.torch.distributed_step`."""
        from bricks.backends.torch.distributed_step import DistributedStep

        torch.manual_seed(seed)
        return DistributedStep(
            program(entry, folder or str(zoo_folder()), options),
            synchronised=synchronised,
            bucket_cap_mb=bucket_cap_mb,
            accumulation=accumulation,
        )

    def _trainable(self, entry: str, folder: str, options: Mapping[str, Any], seed: int) -> Program:
        where = folder or str(zoo_folder())
        found = made_with(lambda: program(entry, where, options), seed)
        refuse_untrainable(found)
        return found

    def _program_of(self, proto: onnx.ModelProto) -> Program:
        """The user's program that was recorded as ``proto``."""
        origin = origin_of(proto)
        if origin is None or not origin.entry:
            raise BackendError(
                "its code is not here: it was recorded on another host, and only its calls can be"
                " measured"
            )
        return self._made(origin.entry, origin.folder or str(zoo_folder()), origin.options)

    def occupy(self, events: Sequence[tuple[int, int]]) -> None:
        """Allocate what calls that are left out would, and free what the program frees."""
        for slot, size_bytes in events:
            if size_bytes:
                # In each page a byte is written: in the program, all of them are.
                self._occupied[slot] = torch.empty(size_bytes, dtype=torch.uint8)
                self._occupied[slot][::_PAGE_BYTES].zero_()
            elif slot >= 0:
                self._slots.pop(slot, None)
                self._occupied.pop(slot, None)
            else:
                self._slots.clear()
                self._occupied.clear()

    def instruments(self) -> TorchInstruments:
        """Calls of PyTorch."""
        return TorchInstruments(self._generator)

    def sign_sensitive(self, operator: str) -> bool:
        """False: calls that depend on signs are vectorised."""
        return False

    def executed(self, proto: onnx.ModelProto) -> Executed:
        """The program itself: what was recorded is what runs."""
        _refuse_others(proto)
        origin = origin_of(proto)
        recorded = self._name if origin is None else origin.runtime or EAGER
        if recorded != self._name:
            raise BackendError(
                f"it was recorded as {recorded} runs it: choose --runtime {recorded},"
                " or record its code again"
            )
        return Executed(proto, graph_of(proto).types, {})

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that were recorded."""
        _refuse_others(proto)
        return graph_of(proto).types, ()

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """Nothing: no value of a recorded program steers it."""
        raise BackendError("a recorded program has no steering values")

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> LoadedCalls | LoadedProgram | ProbeModel | PhaseProbe | ReplicatedSteps:
        """The calls of a brick, with synthetic inputs; of a whole model, the user's program."""
        probe = probed(proto)
        if probe is not None:
            return self._probe(*probe)
        replicated = replicated_steps(proto)
        if replicated is not None:
            return replicated
        if is_probe_model(proto):
            return ProbeModel(proto, self._generator(key))
        _refuse_others(proto)
        if origin_of(proto) is not None:
            return LoadedProgram(self._program_of(proto))
        return LoadedCalls(proto, lambda: self._own(proto, key), self._slots, _deciding(proto))

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """The outputs of calls with these weights and inputs."""
        held = {**weights, **feeds}
        values = {name: torch.from_numpy(np.array(array)) for name, array in held.items()}
        for node in proto.graph.node:
            call = ReplayedCall(node)
            positional, named = call.arguments(values)
            values |= call.results(call.operator(*positional, **named), values)
        return [values[info.name].numpy() for info in proto.graph.output]

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[Executed, Mapping[str, np.ndarray]]:
        """The program with the weights as they are."""
        return self.executed(proto), weights

    def _probe(self, phase: str, part: str, kind: str) -> PhaseProbe:
        training = phase != INFERENCE
        if training not in self._probes:
            with self._keeping():
                probes = PhaseProbes(training, self._seed, compiled=self._compiled)
            self._probes[training] = probes
        return PhaseProbe(self._probes[training], phase, part, kind)

    def _generator(self, key: str) -> torch.Generator:
        generator = torch.Generator()
        generator.manual_seed(zlib.crc32(f"{self._seed}/{key}".encode()))
        return generator

    def _own(self, proto: onnx.ModelProto, key: str) -> dict[str, torch.Tensor]:
        """Tensors of its own for every input and weight of a brick, with synthetic values."""
        generator = self._generator(key)
        graph = graph_of(proto)
        known: dict[str, torch.Tensor] = {}
        bounds: dict[str, int] = {}
        rising: dict[str, int] = {}
        outside = [*graph.inputs, *without_values(proto)]
        for node in proto.graph.node:
            bounds |= bounds_of(node, tensor_types(graph.types))
            rising |= rising_bounds_of(node, tensor_types(graph.types))
        for node in proto.graph.node:
            call = call_of(node)
            names = list(node.input)[: len(call.ports)] if call.ports else list(node.input)
            new = [n for n in dict.fromkeys(names) if n in outside and n not in known]
            positions = [names.index(n) for n in new]
            types = [_tensor(graph.types[n], n) for n in new]
            ports = [call.ports[p] for p in positions] if call.ports else []
            known |= dict(zip(new, empty(types, ports), strict=True))
        for name in outside:  # the numbers of calls that have ports
            if name not in known:
                known[name] = empty([_tensor(graph.types[name], name)], [])[0]
        for node in proto.graph.node:
            if node.op_type == "as_strided" and node.input[0] in known:
                _reach(known[node.input[0]], *call_of(node).arguments[0][1:])
        for name, tensor in known.items():
            if name in rising:
                fill_rising(tensor, rising[name])
            else:
                fill(tensor, generator, bounds.get(name))
        for node in proto.graph.node:
            if node.domain == DOMAIN + GENERATOR:  # of which few bytes are a state
                known |= {name: torch.get_rng_state() for name in node.input if name in known}
        return known


class LoadedProgram:
    """The user's program: a step of it is run as a whole."""

    def __init__(self, made: Program) -> None:
        self._program = made
        with users_errors(made.entry):
            for _ in range(WARM_UP):
                made.step()

    def place(self, placement: Placement, region: np.ndarray) -> LoadedProgram:
        """The program holds its own inputs: nothing is bound."""
        return self

    def sample(self) -> Sample:
        """Run one step; what it took."""
        with users_errors(self._program.entry):
            start = time.perf_counter_ns()
            self._program.step()
            return Sample((time.perf_counter_ns() - start) * 1e-9)


class StandaloneProgram:
    """The user's program in a process of its own, for its memory."""

    def __init__(self, make: Callable[[], Program]) -> None:
        self._make = make
        self._program: Program | None = None

    def load(self) -> None:
        """Make the module, its inputs and the optimiser."""
        self._program = self._make()

    def run(self) -> None:
        """Run a step."""
        assert self._program is not None, "load it first"
        with users_errors(self._program.entry):
            self._program.step()


def _deciding(proto: onnx.ModelProto) -> dict[str, Sketch | None]:
    """What of a brick decides how long it takes by its values, by name, with its sketch."""
    graph, sketches = graph_of(proto), sketches_of(proto)
    read = {name for node in graph.nodes for name in decisive_values(node, graph.types)}
    outside = {*graph.inputs, *without_values(proto)}
    return {name: sketches.get(name) for name in sorted(read & outside)}


def _reach(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> None:
    """Let a tensor's storage reach as far as another view of it does."""
    last = offset + sum((s - 1) * step for s, step in zip(shape, strides, strict=True))
    needed = (last + 1) * tensor.element_size()
    if tensor.untyped_storage().nbytes() < needed:
        tensor.untyped_storage().resize_(needed)


def _tensor(type_: ValueType, name: str) -> TensorType:
    if not isinstance(type_, TensorType):
        raise BackendError(f"PyTorch replays tensors alone: {name!r} is {type_}")
    return type_


def _refuse_others(proto: onnx.ModelProto) -> None:
    if form_of(proto) is not ModelForm.PROGRAMS:
        raise BackendError(
            "PyTorch runs recorded programs, not ONNX models: give FILE.py:FUNCTION, or choose"
            " another --runtime"
        )
