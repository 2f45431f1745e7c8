"""Steps of a small program, isolated and under DistributedDataParallel with a single rank.

A single rank sends nothing, so the difference is the overhead of DDP: its code around the forward
pass, and for each gradient its hook with a copy into a bucket and back. As between the layers of a
large program, this code is not in a core's caches: the program evicts it after each gradient.
Must not know how the difference is used.
"""

from __future__ import annotations

import copy
import os
import time
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bricks.backends.base import OwnMemory
from bricks.graph.form import DOMAIN
from bricks.graph.program import REPLICATED, call_of
from bricks.graph.program_traffic import ALL_BYTES
from bricks.units.sample import Sample

if TYPE_CHECKING:
    import onnx

# The elements written after each gradient: more than the caches of a core.
_EVICTING = 4 * ALL_BYTES // 4
# Steps until DDP has rebuilt its buckets.
_FIRST = 3
# Latencies are positive.
_LEAST_S = 1e-9


class _Evicting(torch.autograd.Function):
    """The identity, whose backward pass evicts the caches of a core."""

    @staticmethod
    def forward(context: Any, x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        context.other = other
        return x.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        context.other.add_(1)
        return gradient, None


class _Chain(nn.Module):
    def __init__(self, gradients: int, elements: int) -> None:
        super().__init__()
        self.factors = nn.ParameterList(torch.ones(elements) for _ in range(gradients))
        self._other = torch.zeros(_EVICTING)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = _Evicting.apply(x * factor, self._other)
        return x


class ReplicatedSteps(OwnMemory):
    """The overhead of DDP in a program with ``gradients`` of ``elements`` each."""

    def __init__(self, gradients: int, elements: int) -> None:
        _begin_group()
        self._input = torch.ones(elements)
        module = _Chain(gradients, elements)
        self._isolated: nn.Module = module
        self._replicated: nn.Module = DistributedDataParallel(copy.deepcopy(module))
        for _ in range(_FIRST):
            self._step_s(self._replicated)

    def sample(self) -> Sample:
        """Time a step under DDP minus an isolated step right before it; positive."""
        more_s = -self._settled_s(self._isolated) + self._settled_s(self._replicated)
        return Sample(max(_LEAST_S, more_s))

    def _settled_s(self, called: nn.Module) -> float:
        """Time a step in seconds, whose forward pass begins with its own code in the caches."""
        self._step_s(called)
        return self._step_s(called)

    def _step_s(self, called: nn.Module) -> float:
        start = time.perf_counter_ns()
        called.zero_grad(set_to_none=True)
        with torch.enable_grad():
            called(self._input).sum().backward()
        return (time.perf_counter_ns() - start) * 1e-9


def replicated_steps(proto: onnx.ModelProto) -> ReplicatedSteps | None:
    """Return the steps that a brick represents; None for other models."""
    nodes = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != DOMAIN + REPLICATED:
        return None
    gradients, elements = call_of(nodes[0]).arguments[0]
    return ReplicatedSteps(int(gradients), int(elements))


def _begin_group() -> None:
    """Initialise a group of this single process, which needs no network."""
    if not dist.is_initialized():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
