"""One rank of ``torch.distributed``: joining the others, timing collectives, and training steps.

A step is one of data-parallel training, or of the same program without communication. The program
is PyTorch's DistributedDataParallel around the user's module, with its own buckets and overlap.

Steps of a small program run isolated and under DistributedDataParallel with a single rank. That
sends nothing, so the difference is the overhead of DDP: its code around the forward pass, and for
each gradient its hook with a copy into a bucket and back. As between the layers of a large program,
this code is not in a core's caches: the program evicts it after each gradient.

Must not know how ranks were started, the network between them, or how the difference is used.
"""

from __future__ import annotations

import copy
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import onnx
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bricks.backends.base import OwnMemory
from bricks.backends.ranks import CollectiveTimes
from bricks.backends.torch.entry import Program, users_errors
from bricks.errors import BackendError
from bricks.graph.form import DOMAIN
from bricks.graph.program import ALL_BYTES, REPLICATED, call_of
from bricks.units.sample import Sample

_ITEM_BYTES = 4  # gradients are float32

# Units of computation that are timed before a collective, and the fewest during one from which its
# slowdown follows.
_UNITS_BEFORE, _MIN_UNITS = 8, 4

# The unit is a layer of a small network for images: a few tenths of a millisecond.
_UNIT_BATCH, _UNIT_CHANNELS, _UNIT_SIDE = 8, 16, 32

# The interval in seconds at which Python switches threads while one of them waits.
_SWITCH_S = 1e-4

# Gloo implements a reduce-scatter as an all-reduce, and copies the result in ``wait``: its work is
# completed only there.
_COMPLETED_IN_WAIT = ("reduce_scatter",)

# Steps before the first timed one: DDP rebuilds its buckets after the first.
_WARM_UP = 3

# The elements written after each gradient: more than the caches of a core.
_EVICTING = 4 * ALL_BYTES // 4
# Latencies are positive.
_LEAST_S = 1e-9


def _waited(work: Any) -> Future[None]:
    ended: Future[None] = Future()
    switch_s = sys.getswitchinterval()

    def wait() -> None:
        try:
            work.wait()
        except RuntimeError as exc:
            ended.set_exception(exc)
        else:
            ended.set_result(None)
        finally:
            sys.setswitchinterval(switch_s)

    sys.setswitchinterval(_SWITCH_S)
    threading.Thread(target=wait, daemon=True).start()
    return ended


class TorchCollectives:
    """This process as one rank of a group; :meth:`leave` it before joining another."""

    def __init__(self) -> None:
        self._store: dist.TCPStore | None = None
        self._buffer = torch.empty(0)
        self._ranks = 1
        self._unit: Callable[[], Any] | None = None

    def open_store(self, address: str, timeout_s: float) -> int:
        """Serve the rendezvous of the group at ``address``; return the port."""
        timeout = timedelta(seconds=timeout_s)
        self._store = dist.TCPStore(
            address, 0, None, is_master=True, wait_for_workers=False, timeout=timeout
        )
        return int(self._store.port)

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Become one of ``ranks``, with their rendezvous at ``address``, over gloo.

        With the port 0, the environment of the launcher (torchrun) determines all.
        """
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        timeout = timedelta(seconds=timeout_s)
        self._ranks = ranks
        if not port:
            dist.init_process_group("gloo", timeout=timeout)
            return
        if self._store is None:
            self._store = dist.TCPStore(
                address, port, None, is_master=False, wait_for_workers=False, timeout=timeout
            )
        dist.init_process_group(
            "gloo", store=self._store, rank=rank, world_size=ranks, timeout=timeout
        )

    def leave(self) -> None:
        """Leave the group."""
        if dist.is_initialized():
            dist.destroy_process_group()
        self._store = None

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Time ``operation`` on ``num_bytes`` in each of ``passes``, all ranks at once, in seconds.

        ``samples`` are from this rank's start to its end. With ``computing``, the rank computes
        meanwhile: ``before_s`` is the time of a unit of computation just before, and ``during_s``
        that of one beside the collective, None where too few fit beside it.
        """
        begin = self._operation(operation, num_bytes)
        if not computing:
            return CollectiveTimes(tuple(self._isolated_s(begin) for _ in range(passes)))
        runs = [
            self._with_computation(begin, operation in _COMPLETED_IN_WAIT) for _ in range(passes)
        ]
        return CollectiveTimes(*zip(*runs, strict=True))

    @staticmethod
    def _isolated_s(begin: Callable[[], Any]) -> float:
        dist.barrier()
        started = time.perf_counter()
        begin().wait()
        return time.perf_counter() - started

    def _with_computation(
        self, begin: Callable[[], Any], wait: bool
    ) -> tuple[float, float, float | None]:
        """Seconds of the collective, of a unit before it, and of a unit during it."""
        unit = self._computation()
        dist.barrier()
        started = time.perf_counter()
        for _ in range(_UNITS_BEFORE):
            unit()
        before_s = (time.perf_counter() - started) / _UNITS_BEFORE
        dist.barrier()
        started = time.perf_counter()
        work, count = begin(), 0
        # Asked between units, by the thread that computes: a thread that waited for the end would
        # also wait for Python's lock.
        waited = _waited(work) if wait else None
        completed = work.is_completed if waited is None else waited.done
        while not completed():
            unit()
            count += 1
        taken_s = time.perf_counter() - started
        work.wait() if waited is None else waited.result()
        if not count:
            return taken_s, before_s, None
        unit_s = taken_s / count
        # On average it ended in the middle of the last unit.
        return taken_s - unit_s / 2, before_s, unit_s if count >= _MIN_UNITS else None

    def _computation(self) -> Callable[[], Any]:
        if self._unit is None:
            shape = (_UNIT_BATCH, _UNIT_CHANNELS, _UNIT_SIDE, _UNIT_SIDE)
            data = torch.rand(shape)
            kernel = torch.rand(_UNIT_CHANNELS, _UNIT_CHANNELS, 3, 3)

            def unit() -> None:
                with torch.no_grad():
                    torch.conv2d(data, kernel, padding=1)

            for _ in range(2 * _UNITS_BEFORE):
                unit()
            self._unit = unit
        return self._unit

    def _operation(self, name: str, num_bytes: int) -> Callable[[], Any]:
        """Return a function that begins an operation on ``num_bytes`` and returns its work.

        The tensor has as many items as ranks can share equally. It holds zeros: sums stay finite.
        """
        share = -(-num_bytes // (_ITEM_BYTES * self._ranks))
        needed = share * (self._ranks + 1)
        if self._buffer.numel() < needed:
            self._buffer = torch.zeros(needed)
        whole, part = self._buffer[share:needed], self._buffer[:share]
        begins: dict[str, Callable[[], Any]] = {
            "all_reduce": lambda: dist.all_reduce(whole, async_op=True),
            "broadcast": lambda: dist.broadcast(whole, 0, async_op=True),
            "all_gather": lambda: dist.all_gather_single(whole, part, async_op=True),
            "reduce_scatter": lambda: dist.reduce_scatter_single(part, whole, async_op=True),
        }
        if name not in begins:
            raise BackendError(f"there is no collective {name!r}: give one of {', '.join(begins)}")
        return begins[name]


class TorchDistributedStep:
    """A program in this rank, ``synchronised`` with the other ranks or isolated.

    A process has one program, as a user's does: a second one would share its caches and memory.
    ``bucket_cap_mb`` is DDP's option; None: its default. Gradients of ``accumulation`` batches are
    added before they are reduced.
    """

    def __init__(
        self,
        program: Program,
        *,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> None:
        self._program, self._accumulation = program, accumulation
        if program.optimizer is None:
            raise BackendError(
                f"{program.entry} is no training: data-parallel steps need a loss and an optimizer"
            )
        self._wrapped: DistributedDataParallel | None = None
        with users_errors(program.entry):
            self._step()
        unused = any(p.requires_grad and p.grad is None for p in program.module.parameters())
        if synchronised:
            self._wrapped = DistributedDataParallel(
                program.module,
                bucket_cap_mb=bucket_cap_mb,
                find_unused_parameters=unused,
            )
            self._program = replace(program, compiled=self._wrapped)
        with users_errors(program.entry):
            for _ in range(_WARM_UP):
                self._step()

    def time(self, steps: int, delay_s: float) -> float:
        """Return the mean seconds of consecutive ``steps``, each with ``delay_s`` of computation.

        All ranks begin the step before the first timed one at once.
        """
        dist.barrier()
        with users_errors(self._program.entry):
            self._delayed(delay_s)
            started = time.perf_counter()
            for _ in range(steps):
                self._delayed(delay_s)
        return (time.perf_counter() - started) / steps

    def _delayed(self, delay_s: float) -> None:
        started = time.perf_counter()
        while time.perf_counter() - started < delay_s:
            pass  # a slow rank computes, it does not sleep
        self._step()

    def _step(self) -> None:
        program = self._program
        if self._accumulation == 1:
            program.step()
            return
        assert program.loss is not None and program.optimizer is not None
        wrapped = self._wrapped
        program.optimizer.zero_grad(set_to_none=True)
        for number in range(1, self._accumulation + 1):
            last = number == self._accumulation
            with nullcontext() if last or wrapped is None else wrapped.no_sync():
                program.loss(program.called(*program.inputs)).backward()
        program.optimizer.step()


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
        if not dist.is_initialized():
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        self._input = torch.ones(elements)
        module = _Chain(gradients, elements)
        self._isolated: nn.Module = module
        self._replicated: nn.Module = DistributedDataParallel(copy.deepcopy(module))
        for _ in range(_WARM_UP):
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
