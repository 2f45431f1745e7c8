"""Probes as models that are loaded: of the call overhead of phases, instruments, small ONNX models.

ONNX probes are the small models that every target measures: chains, reference kernels, and peaks; a
table of their operators is all that they need. They and the instruments are sequences of PyTorch's
own calls, timed as a whole. Their work never changes, since caches hold their latencies. Must not
know what is measured, nor how the overhead follows from tiny programs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import torch
from onnx import helper

from bricks.backends.base import Binding, BoundModel, OwnMemory
from bricks.backends.instruments import ROW_BYTES, Instruments
from bricks.backends.torch.device import PROCESSOR, Device
from bricks.backends.torch.record import WARM_UP, record
from bricks.backends.torch.run.call_sequences import (
    OPERATORS,
    CallSequence,
    OperatorCall,
    row_maxima,
)
from bricks.backends.torch.run.replay import replayed
from bricks.backends.torch.run.tiny_programs import MODULES, PhaseProbes, TinySteps, tiny_program
from bricks.graph.program import FREED, PHASE, evicted_share, touched_bytes
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

# The domain of the models that represent phases of these programs: see ``measure/sampling_task``.
DOMAIN = "org.pytorch.probe"


def recorded_steps(
    which: str, training: bool, seed: int, *, compiled: bool, device: Device = PROCESSOR
) -> TinySteps:
    """Record a tiny program, and return its steps."""
    with device.default():
        program = tiny_program(which, training=training)
    if compiled:
        from bricks.backends.torch import compiled_kernels  # slow import

        program = replace(program, compiled=compiled_kernels.compiled(program.module))
    state = torch.get_rng_state()
    recorder = record(program, seed)
    torch.set_rng_state(state)
    proto = recorder.model(None)
    nodes, types = proto.graph.node, graph_of(proto).types
    notes = [{p.key: p.value for p in node.metadata_props} for node in nodes]
    phases = [note[PHASE] for note in notes]
    freed = [json.loads(note.get(FREED, "[]")) for note in notes]
    begins = {name: t.detach().clone() for name, t in recorder.begins.items()}
    numbers = recorder.numbers.items()
    begins |= {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers}
    displaced = dict.fromkeys(phases, 0.0)
    for phase, node in zip(phases, nodes, strict=True):
        displaced[phase] += evicted_share(touched_bytes(node, types))
    for _ in range(WARM_UP):
        program.step()
    calls = list(zip(phases, map(replayed, nodes), freed, strict=True))
    return TinySteps(program, calls, begins, displaced, device)


def phase_probes(training: bool, seed: int, *, compiled: bool, device: Device) -> PhaseProbes:
    """Return the probes of all phases of training steps, or of inference."""
    made = {
        name: recorded_steps(name, training, seed, compiled=compiled, device=device)
        for name in MODULES
    }
    return PhaseProbes(made, training)


class PhaseProbe(OwnMemory):
    """The probe of one part of a phase, real or without the part, among ``probes``."""

    def __init__(self, probes: PhaseProbes, phase: str, part: str, kind: str) -> None:
        self._probes, self._which = probes, (phase, part, kind)

    def sample(self) -> Sample:
        """See :meth:`PhaseProbes.sample`."""
        return Sample(self._probes.sample(*self._which))


def probed(proto: onnx.ModelProto) -> tuple[str, str, str] | None:
    """Return phase, part, and ``step`` or ``calls`` of a probe's model; None for other models."""
    nodes: Sequence[onnx.NodeProto] = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != DOMAIN:
        return None
    attributes: Mapping[str, onnx.AttributeProto] = {a.name: a for a in nodes[0].attribute}
    phase, part = attributes["phase"].s.decode(), attributes["part"].s.decode()
    return phase, part, nodes[0].op_type


class TorchInstruments(Instruments):
    """The eviction read as a call of PyTorch."""

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """Return the maximum of each row."""
        return row_maxima(memory, ROW_BYTES)


def is_probe_model(proto: onnx.ModelProto) -> bool:
    """Whether all operators of an ONNX model are in the table of probes."""
    return all(not node.domain and node.op_type in OPERATORS for node in proto.graph.node)


class ProbeModel:
    """A probe with random weights; its inputs may lie in the shared region."""

    def __init__(self, proto: onnx.ModelProto, generator: torch.Generator) -> None:
        graph = graph_of(proto)
        self._calls: list[OperatorCall] = [
            (
                OPERATORS[node.op_type],
                {a.name: helper.get_attribute_value(a) for a in node.attribute},
                list(node.input),
                node.output[0],
            )
            for node in proto.graph.node
        ]
        self._weights = {
            name: torch.rand(tuple(tensor.dims), generator=generator)
            for name, tensor in graph.initializers.items()
        }
        self._inputs = {name: graph.types[name] for name in graph.inputs}

    def bind(self, binding: Binding, region: np.ndarray) -> CallSequence:
        """Bind the inputs; results are always new tensors."""
        values = dict(self._weights)
        for (name, type_), offset in zip(self._inputs.items(), binding.inputs, strict=True):
            assert isinstance(type_, TensorType)
            size = type_.size_bytes
            if offset is None or offset + size > len(region):
                values[name] = torch.full(type_.shape, 0.5)
            else:
                own = region[offset : offset + size].view(np.float32)
                values[name] = torch.from_numpy(own).view(type_.shape)
        return CallSequence(self._calls, values)
