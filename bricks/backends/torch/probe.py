"""A tiny program whose steps show what Python and the engine take around calls.

Its operators have next to nothing to compute, so that a step takes the time of what is around
them. The same calls one by one, timed as bricks are, tell the rest. Must not know how the
difference is used.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

import onnx
import torch
from torch import nn
from torch.nn import functional

from bricks.backends.base import Placement
from bricks.backends.torch.entry import Program
from bricks.backends.torch.recording import WARM_UP, record
from bricks.backends.torch.replay import ReplayedCall
from bricks.graph.program import PHASE, Origin
from bricks.graph.program_phases import INFERENCE, TRAINING

# The domain of the models that stand for phases of this program: see ``measure/overhead_walk``.
DOMAIN = "org.pytorch.probe"

_BLOCKS, _WIDTH, _BATCH = 6, 8, 2


class _Block(nn.Module):
    """The layers that most programs are made of: products, convolutions, norms, sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.first = nn.Linear(_WIDTH, 2 * _WIDTH)
        self.second = nn.Linear(2 * _WIDTH, _WIDTH)
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x`` and what the layers make of it."""
        x = x + self.second(functional.gelu(self.first(self.norm(x))))
        y = self.convolution(x.unsqueeze(1)).squeeze(1)
        return functional.relu(self.batch_norm(y) + x)


def tiny_program(*, training: bool) -> Program:
    """The tiny program, for a training step or for inference."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(*(_Block() for _ in range(_BLOCKS)))
        inputs, labels = (torch.randn(_BATCH, _WIDTH),), torch.arange(_BATCH)
    if not training:
        return Program("probe", module.eval(), inputs)
    optimizer = torch.optim.SGD(module.parameters(), 1e-6, momentum=0.9)
    return Program(
        "probe", module, inputs, lambda y: functional.cross_entropy(y, labels), optimizer
    )


class TinySteps:
    """Steps of the tiny program, and its calls one by one; seconds per call in each phase."""

    def __init__(self, training: bool, seed: int, *, compiled: bool) -> None:
        self._program = tiny_program(training=training)
        if compiled:
            module = torch.compile(self._program.module, dynamic=False)
            self._program = replace(self._program, compiled=module)
        kind = TRAINING if training else INFERENCE
        state = torch.get_rng_state()
        recorded = record(self._program, Origin("probe", "", kind, torch.__version__), seed)
        torch.set_rng_state(state)
        nodes = recorded.proto.graph.node
        self._phases = [{p.key: p.value for p in node.metadata_props}[PHASE] for node in nodes]
        self._calls = [ReplayedCall(node) for node in nodes]
        self._begins = {name: t.detach().clone() for name, t in recorded.values.items()}
        numbers = {t.name: t.double_data for t in recorded.proto.graph.initializer if t.double_data}
        self._begins |= {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers.items()}
        for _ in range(WARM_UP):
            self._program.step()

    def step(self) -> dict[str, float]:
        """A real step."""
        marks: list[tuple[str, int]] = []
        clock = time.perf_counter_ns
        self._program.step(lambda phase: marks.append((phase, clock())))
        ends = [at for _, at in marks[1:]] + [clock()]
        taken = {p: (end - at) * 1e-9 for (p, at), end in zip(marks, ends, strict=True)}
        return {phase: seconds / self._phases.count(phase) for phase, seconds in taken.items()}

    def calls(self) -> dict[str, float]:
        """The calls of a step one by one."""
        values = dict(self._begins)
        taken = dict.fromkeys(self._phases, 0)
        clock = time.perf_counter_ns
        for phase, call in zip(self._phases, self._calls, strict=True):
            positional, named = call.arguments(values)
            operator = call.operator
            start = clock()
            result = operator(*positional, **named)
            taken[phase] += clock() - start
            values.update(call.results(result, values))
        return {p: ns * 1e-9 / self._phases.count(p) for p, ns in taken.items()}


class PhaseProbe:
    """A phase of ``steps``; one real step serves all of its phases."""

    def __init__(self, steps: TinySteps, phase: str, kind: str, shared: dict[str, float]) -> None:
        self._steps, self._phase, self._kind, self._shared = steps, phase, kind, shared

    def place(self, placement: Placement, region: object) -> PhaseProbe:
        """It has memory of its own."""
        return self

    def sample(self) -> float:
        """Seconds per call of the phase."""
        if self._phase not in self._shared:
            self._shared |= self._steps.step() if self._kind == "step" else self._steps.calls()
        return self._shared.pop(self._phase)


def probed(proto: onnx.ModelProto) -> tuple[str, str] | None:
    """The phase that a model stands for, and ``step`` or ``calls``; None for other models."""
    nodes: Sequence[onnx.NodeProto] = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != DOMAIN:
        return None
    given: Mapping[str, onnx.AttributeProto] = {a.name: a for a in nodes[0].attribute}
    return given["phase"].s.decode(), nodes[0].op_type
