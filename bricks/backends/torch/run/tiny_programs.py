"""Tiny programs whose steps measure the call overhead of Python and the autograd engine.

Their operators compute little, so that overhead dominates a step. Their calls one by one, timed as
bricks are and by phase, are subtracted from real steps. Must not know how the differences are used.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from bricks.backends.torch.device import PROCESSOR, Device
from bricks.backends.torch.entry import Program
from bricks.errors import BackendError
from bricks.graph.call import EVICTION, INFERENCE, PER_CALL, PER_PHASE

# Programs of few narrow layers, of many, and of wide ones, whose weights evict all other data from
# the caches of a core.
FEW, MANY, WIDE = "few", "many", "wide"
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


MODULES: Mapping[str, tuple[int, Callable[[], nn.Module]]] = {
    FEW: (_WIDTH, lambda: _perceptron(1, _WIDTH)),
    MANY: (_WIDTH, lambda: nn.Sequential(*(_Block() for _ in range(_BLOCKS)))),
    WIDE: (_WIDE_WIDTH, lambda: _perceptron(_WIDE_LAYERS, _WIDE_WIDTH)),
}


def tiny_program(which: str, *, training: bool) -> Program:
    """Return a tiny program by its name, for a training step or for inference."""
    width, module_of = MODULES[which]
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


class TimedCall(Protocol):
    """A call that reads and writes values by name."""

    def run(self, values: Any) -> int:
        """Make the call on ``values``; nanoseconds of the operator."""


# The phase of a call, the call, and the names of values that are freed after it.
PhasedCall = tuple[str, TimedCall, Sequence[Hashable]]


class TinySteps:
    """Steps of ``program``, and its ``phased`` calls on values that ``begin`` a step.

    ``calls`` is the number of calls of each phase, ``displaced`` the sum of the shares of the
    caches that they evict.
    """

    def __init__(
        self,
        program: Program,
        phased: Sequence[PhasedCall],
        begins: Mapping[Any, torch.Tensor],
        displaced: Mapping[str, float],
        device: Device = PROCESSOR,
    ) -> None:
        self._program, self._device = program, device
        self._replayed, self._begins = phased, begins
        self.calls = Counter(phase for phase, _, _ in phased)
        self.displaced = displaced

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

    def __init__(self, programs: Mapping[str, TinySteps], training: bool) -> None:
        self._programs, self._training = programs, training
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
            for _ in range(_ATTEMPTS):  # again while noise makes one of them negative
                samples_s = self._round()
                if min(samples_s.values()) > 0:
                    break
            else:
                raise BackendError(
                    "other processes disturb the steps of tiny programs so much that they tell"
                    " nothing: measure again on a quiet host"
                )
            self._samples |= samples_s
        return self._samples.pop((phase, part, kind))

    def _round(self) -> dict[tuple[str, str, str], float]:
        few, many, wide = (self._programs[name] for name in (FEW, MANY, WIDE))
        steps = {name: each.step_s() for name, each in self._programs.items()}
        calls = {name: each.calls_s() for name, each in self._programs.items()}
        samples_s = {}
        for own in many.calls:
            phase = own if self._training else INFERENCE
            real = {name: each[own] for name, each in steps.items()}
            parts = {name: each[own] for name, each in calls.items()}
            # Two programs without evictions separate the overhead per call from the one per phase.
            beyond_s = real[MANY] - parts[MANY] - (real[FEW] - parts[FEW])
            # Optimisers of GPUs make as many calls for few tensors as for many.
            more = max(1, many.calls[own] - few.calls[own])
            each_s = self._median(own, PER_CALL, beyond_s / more)
            begun_s = real[FEW] - parts[FEW] - few.calls[own] * each_s
            once_s = self._median(own, PER_PHASE, begun_s)
            known_s = once_s + wide.calls[own] * each_s
            for part, per, of, without_s in (
                (PER_PHASE, 1, FEW, parts[FEW] + few.calls[own] * each_s),
                (PER_CALL, many.calls[own], MANY, parts[MANY] + once_s),
                (EVICTION, wide.displaced[own], WIDE, parts[WIDE] + known_s),
            ):
                samples_s[phase, part, "step"] = real[of] / per
                samples_s[phase, part, "calls"] = without_s / per
        return samples_s

    def _median(self, phase: str, part: str, overhead_s: float) -> float:
        """The median overhead of a part so far: a single step may be noisy."""
        overheads_s = self._overheads_s.setdefault((phase, part), [])
        overheads_s.append(overhead_s)
        return statistics.median(overheads_s)
