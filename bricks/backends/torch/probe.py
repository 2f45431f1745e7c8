"""Tiny programs whose steps measure the call overhead of Python and the autograd engine.

Their operators compute little, so that overhead dominates a step. The same calls one by one, timed
as bricks are, are subtracted. Must not know how the differences are used.
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

from bricks.backends.base import OwnMemory
from bricks.backends.torch.devices.device import PROCESSOR, Device
from bricks.backends.torch.entry import Program
from bricks.backends.torch.recording import WARM_UP, record
from bricks.backends.torch.replay import replayed
from bricks.errors import BackendError
from bricks.graph.program import FREED, PHASE
from bricks.graph.program_phases import EVICTION, INFERENCE, PER_CALL, PER_PHASE
from bricks.graph.program_traffic import evicted_share, touched_bytes
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

# The domain of the models that represent phases of these programs: see ``measure/overhead_walk``.
DOMAIN = "org.pytorch.probe"

# Programs of few narrow layers, of many, and of wide ones, whose weights evict all other data from
# the caches of a core.
_FEW, _MANY, _WIDE = "few", "many", "wide"
_BLOCKS, _WIDTH, _BATCH = 6, 8, 2
_WIDE_LAYERS, _WIDE_WIDTH = 3, 512

# Steps before the timed one, which so begins with its own code in the caches.
_SETTLE = 1

# Rounds before the first that counts, so that medians are of several; and attempts at a round
# without noise.
_BEFORE, _ATTEMPTS = 4, 20


class _Block(nn.Module):
    """The layers of which most programs consist: products, convolutions, norms, sums."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.first = nn.Linear(_WIDTH, 2 * _WIDTH)
        self.second = nn.Linear(2 * _WIDTH, _WIDTH)
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)
        self.batch_norm = nn.BatchNorm1d(_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the layers, with residual connections."""
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
    """Return a tiny program by its name, for a training step or for inference."""
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

    ``calls`` is the number of calls of each phase, ``displaced`` the sum of the shares of the
    caches that they evict.
    """

    def __init__(
        self,
        which: str,
        training: bool,
        seed: int,
        *,
        compiled: bool,
        device: Device = PROCESSOR,
    ) -> None:
        self._device = device
        with device.default():
            self._program = tiny_program(which, training=training)
        if compiled:
            from bricks.backends.torch import kernels  # slow import

            module = kernels.compiled(self._program.module)
            self._program = replace(self._program, compiled=module)
        state = torch.get_rng_state()
        recorder = record(self._program, seed)
        torch.set_rng_state(state)
        proto = recorder.model(None)
        nodes, types = proto.graph.node, graph_of(proto).types
        notes = [{p.key: p.value for p in node.metadata_props} for node in nodes]
        phases = [note[PHASE] for note in notes]
        freed = [json.loads(note.get(FREED, "[]")) for note in notes]
        self._replayed = list(zip(phases, map(replayed, nodes), freed, strict=True))
        self._begins = {name: t.detach().clone() for name, t in recorder.begins.items()}
        numbers = recorder.numbers.items()
        self._begins |= {n: torch.tensor(v, dtype=torch.float64) for n, v in numbers}
        self.calls = Counter(phases)
        self.displaced = dict.fromkeys(phases, 0.0)
        for phase, node in zip(phases, nodes, strict=True):
            self.displaced[phase] += evicted_share(touched_bytes(node, types))
        for _ in range(WARM_UP):
            self._program.step()

    def step_s(self) -> Mapping[str, float]:
        """Time each phase of a real step in seconds, with its code in the caches."""
        for _ in range(_SETTLE):
            self._program.step()
        self._device.synchronise()
        marks: list[tuple[str, int]] = []
        clock = time.perf_counter_ns
        self._program.step(lambda phase: marks.append((phase, clock())))
        ends = [at for _, at in marks[1:]] + [clock()]
        return {phase: (end - at) * 1e-9 for (phase, at), end in zip(marks, ends, strict=True)}

    def calls_s(self) -> Mapping[str, float]:
        """Time the calls of each phase one by one; seconds by phase."""
        for _ in range(_SETTLE):
            self._one_by_one()
        self._device.synchronise()
        return {phase: ns * 1e-9 for phase, ns in self._one_by_one().items()}

    def _one_by_one(self) -> Mapping[str, int]:
        """Nanoseconds of the calls of each phase; values live as long as in a real step."""
        values = dict(self._begins)
        taken_ns = dict.fromkeys(self.calls, 0)
        for phase, call, freed in self._replayed:
            taken_ns[phase] += call.run(values)
            for name in freed:
                values.pop(name, None)
        return taken_ns


class PhaseProbes:
    """Samples of the probes of all phases; programs take turns, so that drift affects all."""

    def __init__(
        self, training: bool, seed: int, *, compiled: bool, device: Device = PROCESSOR
    ) -> None:
        made = {
            name: TinySteps(name, training, seed, compiled=compiled, device=device)
            for name in _MODULES
        }
        self._programs, self._training = made, training
        self._samples: dict[tuple[str, str, str], float] = {}
        self._overheads_s: dict[tuple[str, str], list[float]] = {}
        for _ in range(_BEFORE):
            self._round()

    def sample(self, phase: str, part: str, kind: str) -> float:
        """Seconds of a probe: of kind ``step`` of a real step, else of the same without ``part``.

        The part ``each`` is per call, ``displaced`` per eviction of the whole caches, both averaged
        over a program; ``once`` is per phase.
        """
        if (phase, part, kind) not in self._samples:
            self._samples |= self._quiet_round()
        return self._samples.pop((phase, part, kind))

    def _quiet_round(self) -> dict[tuple[str, str, str], float]:
        """Take a sample of each probe, again while noise makes one of them negative."""
        for _ in range(_ATTEMPTS):
            samples_s = self._round()
            if min(samples_s.values()) > 0:
                return samples_s
        raise BackendError(
            "other processes disturb the steps of tiny programs so much that they tell nothing:"
            " measure again on a quiet host"
        )

    def _round(self) -> dict[tuple[str, str, str], float]:
        few, many, wide = (self._programs[name] for name in (_FEW, _MANY, _WIDE))
        steps = {name: each.step_s() for name, each in self._programs.items()}
        calls = {name: each.calls_s() for name, each in self._programs.items()}
        samples_s = {}
        for own in many.calls:
            phase = own if self._training else INFERENCE
            real = {name: each[own] for name, each in steps.items()}
            parts = {name: each[own] for name, each in calls.items()}
            # Two programs without evictions separate the overhead per call from the one per phase.
            beyond_s = real[_MANY] - parts[_MANY] - (real[_FEW] - parts[_FEW])
            # Optimisers of GPUs make as many calls for few tensors as for many.
            more = max(1, many.calls[own] - few.calls[own])
            each_s = self._median(own, PER_CALL, beyond_s / more)
            begun_s = real[_FEW] - parts[_FEW] - few.calls[own] * each_s
            once_s = self._median(own, PER_PHASE, begun_s)
            known_s = once_s + wide.calls[own] * each_s
            for part, per, of, without_s in (
                (PER_PHASE, 1, _FEW, parts[_FEW] + few.calls[own] * each_s),
                (PER_CALL, many.calls[own], _MANY, parts[_MANY] + once_s),
                (EVICTION, wide.displaced[own], _WIDE, parts[_WIDE] + known_s),
            ):
                samples_s[phase, part, "step"] = real[of] / per
                samples_s[phase, part, "calls"] = without_s / per
        return samples_s

    def _median(self, phase: str, part: str, overhead_s: float) -> float:
        """The median overhead of a part so far: a single step may be noisy."""
        overheads_s = self._overheads_s.setdefault((phase, part), [])
        overheads_s.append(overhead_s)
        return statistics.median(overheads_s)


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
