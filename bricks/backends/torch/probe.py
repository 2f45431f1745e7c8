"""Tiny programs whose steps show what Python and the engine take around calls.

Their operators have little to compute, so that a step takes the time of what is around them. The
same calls one by one, timed as bricks are, tell the rest. Must not know how the differences are
used.
"""

from __future__ import annotations

import json
import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import onnx
import torch
from torch import nn
from torch.nn import functional

from bricks.backends.base import Binding
from bricks.backends.torch.entry import Program
from bricks.backends.torch.modes import EAGER
from bricks.backends.torch.recording import WARM_UP, record
from bricks.backends.torch.replay import ReplayedCall
from bricks.errors import BackendError
from bricks.graph.program import FREED, PHASE, Origin
from bricks.graph.program_phases import DISPLACED, EACH, INFERENCE, ONCE, TRAINING
from bricks.graph.program_traffic import displacement, touched_bytes
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

# The domain of the models that stand for phases of this program: see ``measure/overhead_walk``.
DOMAIN = "org.pytorch.probe"

# Of few narrow layers, of many, and of wide ones, whose weights displace all else from a core's
# caches.
_FEW, _MANY, _WIDE = "few", "many", "wide"
_BLOCKS, _WIDTH, _BATCH = 6, 8, 2
_WIDE_LAYERS, _WIDE_WIDTH = 3, 512

# Steps before the one that is timed: it begins with its own code in the caches.
_SETTLE = 1

# Rounds of steps before the first that counts, so that medians are of several; and how often one is
# taken that is disturbed.
_BEFORE, _ATTEMPTS = 4, 20


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


def _perceptron(layers: int, width: int) -> nn.Module:
    return nn.Sequential(
        *(each for _ in range(layers) for each in (nn.Linear(width, width), nn.ReLU()))
    )


_MODULES: Mapping[str, tuple[int, Callable[[], nn.Module]]] = {
    _FEW: (_WIDTH, lambda: _perceptron(1, _WIDTH)),
    _MANY: (_WIDTH, lambda: nn.Sequential(*(_Block() for _ in range(_BLOCKS)))),
    _WIDE: (_WIDE_WIDTH, lambda: _perceptron(_WIDE_LAYERS, _WIDE_WIDTH)),
}


def tiny_program(which: str, *, training: bool) -> Program:
    """One of the tiny programs, for a training step or for inference."""
    width, module_of = _MODULES[which]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = module_of()
        inputs, labels = (torch.randn(_BATCH, width),), torch.arange(_BATCH)
    if not training:
        return Program("probe", module.eval(), inputs)
    optimizer = torch.optim.SGD(module.parameters(), 1e-6, momentum=0.9)
    return Program(
        "probe", module, inputs, lambda y: functional.cross_entropy(y, labels), optimizer
    )


class TinySteps:
    """Steps of a tiny program, and its calls one by one.

    ``calls`` are those of each phase, ``displaced`` is how much of the caches they displace in sum.
    """

    def __init__(self, which: str, training: bool, seed: int, *, compiled: bool) -> None:
        self._program = tiny_program(which, training=training)
        if compiled:
            from bricks.backends.torch import kernels  # the compiler takes long to import

            module = kernels.compiled(self._program.module)
            self._program = replace(self._program, compiled=module)
        kind = TRAINING if training else INFERENCE
        state = torch.get_rng_state()
        recorded = record(
            self._program, Origin("probe", "", kind, torch.__version__, runtime=EAGER), seed
        )
        torch.set_rng_state(state)
        nodes, types = recorded.proto.graph.node, graph_of(recorded.proto).types
        notes = [{p.key: p.value for p in node.metadata_props} for node in nodes]
        phases = [note[PHASE] for note in notes]
        freed = [json.loads(note.get(FREED, "[]")) for note in notes]
        self._replayed = list(zip(phases, map(ReplayedCall, nodes), freed, strict=True))
        self._begins = {name: t.detach().clone() for name, t in recorded.values.items()}
        numbers = {t.name: t.double_data for t in recorded.proto.graph.initializer if t.double_data}
        self._begins |= {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers.items()}
        self.calls = Counter(phases)
        self.displaced = dict.fromkeys(phases, 0.0)
        for phase, node in zip(phases, nodes, strict=True):
            self.displaced[phase] += displacement(touched_bytes(node, types))
        for _ in range(WARM_UP):
            self._program.step()

    def step_s(self) -> Mapping[str, float]:
        """The seconds of each phase of a real step, when its code is in the caches."""
        for _ in range(_SETTLE):
            self._program.step()
        marks: list[tuple[str, int]] = []
        clock = time.perf_counter_ns
        self._program.step(lambda phase: marks.append((phase, clock())))
        ends = [at for _, at in marks[1:]] + [clock()]
        return {phase: (end - at) * 1e-9 for (phase, at), end in zip(marks, ends, strict=True)}

    def calls_s(self) -> Mapping[str, float]:
        """The seconds that the calls of each phase take one by one."""
        for _ in range(_SETTLE):
            self._one_by_one()
        return {phase: ns * 1e-9 for phase, ns in self._one_by_one().items()}

    def _one_by_one(self) -> Mapping[str, int]:
        """Nanoseconds of the calls of each phase; values live as long as in a real step."""
        values = dict(self._begins)
        taken = dict.fromkeys(self.calls, 0)
        clock = time.perf_counter_ns
        for phase, call, freed in self._replayed:
            positional, named = call.arguments(values)
            operator = call.operator
            start = clock()
            result = operator(*positional, **named)
            taken[phase] += clock() - start
            values.update(call.results(result, values))
            del result, positional, named
            for name in freed:
                values.pop(name, None)
        return taken


class PhaseProbes:
    """Samples of all probes of the phases; programs take turns, so that drift meets all."""

    def __init__(self, training: bool, seed: int, *, compiled: bool) -> None:
        made = {name: TinySteps(name, training, seed, compiled=compiled) for name in _MODULES}
        self._programs, self._training = made, training
        self._samples: dict[tuple[str, str, str], float] = {}
        self._known: dict[tuple[str, str], list[float]] = {}
        for _ in range(_BEFORE):
            self._taken()

    def sample(self, phase: str, part: str, kind: str) -> float:
        """Seconds of a probe: real steps for ``step``, what they would take without the part else.

        The part ``each`` is per call and ``displaced`` per displacement of all that is in the
        caches, both on average over a program; ``once`` is that of a whole phase.
        """
        if (phase, part, kind) not in self._samples:
            self._samples |= self._undisturbed()
        return self._samples.pop((phase, part, kind))

    def _undisturbed(self) -> dict[tuple[str, str, str], float]:
        """A sample of each probe; taken again where other processes disturbed it beyond sense."""
        for _ in range(_ATTEMPTS):
            found = self._taken()
            if min(found.values()) > 0:
                return found
        raise BackendError(
            "other processes disturb the steps of tiny programs so much that they tell nothing:"
            " measure again on a quiet host"
        )

    def _taken(self) -> dict[tuple[str, str, str], float]:
        few, many, wide = (self._programs[name] for name in (_FEW, _MANY, _WIDE))
        steps = {name: each.step_s() for name, each in self._programs.items()}
        calls = {name: each.calls_s() for name, each in self._programs.items()}
        found = {}
        for own in many.calls:
            phase = own if self._training else INFERENCE
            real = {name: each[own] for name, each in steps.items()}
            parts = {name: each[own] for name, each in calls.items()}
            # Two programs without displacement tell what is done once from what for each call.
            beyond_s = real[_MANY] - parts[_MANY] - (real[_FEW] - parts[_FEW])
            each_s = self._middle(own, EACH, beyond_s / (many.calls[own] - few.calls[own]))
            begun_s = real[_FEW] - parts[_FEW] - few.calls[own] * each_s
            once_s = self._middle(own, ONCE, begun_s)
            known_s = once_s + wide.calls[own] * each_s
            for part, per, of, without_s in (
                (ONCE, 1, _FEW, parts[_FEW] + few.calls[own] * each_s),
                (EACH, many.calls[own], _MANY, parts[_MANY] + once_s),
                (DISPLACED, wide.displaced[own], _WIDE, parts[_WIDE] + known_s),
            ):
                found[phase, part, "step"] = real[of] / per
                found[phase, part, "calls"] = without_s / per
        return found

    def _middle(self, phase: str, part: str, taken_s: float) -> float:
        """The median of what a part has taken so far: one step that was disturbed tells nothing."""
        so_far = self._known.setdefault((phase, part), [])
        so_far.append(taken_s)
        return statistics.median(so_far)


class PhaseProbe:
    """One of ``probes``."""

    def __init__(self, probes: PhaseProbes, phase: str, part: str, kind: str) -> None:
        self._probes, self._which = probes, (phase, part, kind)

    def bind(self, binding: Binding, region: object) -> PhaseProbe:
        """It has memory of its own."""
        return self

    def sample(self) -> Sample:
        """See :meth:`PhaseProbes.sample`."""
        return Sample(self._probes.sample(*self._which))


def probed(proto: onnx.ModelProto) -> tuple[str, str, str] | None:
    """The phase and part that a model stands for, and ``step`` or ``calls``; None for others."""
    nodes: Sequence[onnx.NodeProto] = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != DOMAIN:
        return None
    given: Mapping[str, onnx.AttributeProto] = {a.name: a for a in nodes[0].attribute}
    return given["phase"].s.decode(), given["part"].s.decode(), nodes[0].op_type
