"""Steps of a small program by itself, and under DistributedDataParallel with a single rank.

With a single rank nothing is sent, so the difference is what DDP itself does: its code around the
forward pass, and for each gradient its hook with a copy into a bucket and back. As between the
layers of a large program, that code is not in a core's caches: the program displaces it after each
gradient. Must not know how the difference is used.
"""

from __future__ import annotations

import copy
import os
import time
from typing import Any

import onnx
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bricks.backends.base import Binding
from bricks.graph.form import DOMAIN
from bricks.graph.program import REPLICATED, call_of
from bricks.graph.program_traffic import ALL_BYTES
from bricks.units.sample import Sample

# Written after each gradient: more than a core's own caches hold.
_DISPLACED = 4 * ALL_BYTES // 4
# Steps until DDP has made its buckets anew.
_FIRST = 3
# Latencies are more than nothing.
_LEAST_S = 1e-9


class _Displacing(torch.autograd.Function):
    """The identity; its backward pass writes as much as displaces all in a core's caches."""

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
        self._other = torch.zeros(_DISPLACED)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for factor in self.factors:
            x = _Displacing.apply(x * factor, self._other)
        return x


class ReplicatedSteps:
    """What DDP adds to a program with so many ``gradients`` of so many elements."""

    def __init__(self, gradients: int, elements: int) -> None:
        _begin_group()
        self._input = torch.ones(elements)
        module = _Chain(gradients, elements)
        self._alone: nn.Module = module
        self._replicated: nn.Module = DistributedDataParallel(copy.deepcopy(module))
        for _ in range(_FIRST):
            self._step_s(self._replicated)

    def bind(self, binding: Binding, region: object) -> ReplicatedSteps:
        """It has memory of its own."""
        return self

    def sample(self) -> Sample:
        """What a step takes longer under DDP than right before; more than nothing."""
        more_s = -self._settled_s(self._alone) + self._settled_s(self._replicated)
        return Sample(max(_LEAST_S, more_s))

    def _settled_s(self, called: nn.Module) -> float:
        """Seconds of a step whose forward pass begins with its own code in the caches."""
        self._step_s(called)
        return self._step_s(called)

    def _step_s(self, called: nn.Module) -> float:
        start = time.perf_counter_ns()
        called.zero_grad(set_to_none=True)
        with torch.enable_grad():
            called(self._input).sum().backward()
        return (time.perf_counter_ns() - start) * 1e-9


def replicated_steps(proto: onnx.ModelProto) -> ReplicatedSteps | None:
    """The steps that a brick stands for; None for other models."""
    nodes = proto.graph.node
    if len(nodes) != 1 or nodes[0].domain != DOMAIN + REPLICATED:
        return None
    gradients, elements = call_of(nodes[0]).arguments[0]
    return ReplicatedSteps(int(gradients), int(elements))


def _begin_group() -> None:
    """A group of this process alone, which needs no network."""
    if not dist.is_initialized():
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
