"""Steps of a program in data-parallel training, or of the same program without communication.

The program is PyTorch's DistributedDataParallel around the user's module, with its own buckets and
overlap. Must not know how ranks were started, or what the network between them is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bricks.backends.torch.entry import Program, users_errors
from bricks.errors import BackendError

# Steps before the first that is timed: buckets are made anew after the first one.
_WARM_UP = 3


class TorchDistributedStep:
    """A program in this rank: ``synchronised`` with the other ranks, or by itself.

    A process holds one program, as a user's does: a second one would share its caches and its
    memory. ``bucket_cap_mb`` is DDP's own option; None: its default. Gradients of ``accumulation``
    batches are added before they are reduced.
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
        self.unused = tuple(
            name
            for name, parameter in program.module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        )
        if synchronised:
            self._wrapped = DistributedDataParallel(
                program.module,
                bucket_cap_mb=bucket_cap_mb,
                find_unused_parameters=bool(self.unused),
            )
            self._program = replace(program, compiled=self._wrapped)
        with users_errors(program.entry):
            for _ in range(_WARM_UP):
                self._step()

    def time(self, steps: int, delay_s: float) -> float:
        """Seconds of a step, over so many ``steps`` that follow one another.

        All ranks begin the step before the first of them at once; nothing is between steps. This
        rank computes for ``delay_s`` longer in each.
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
        """One step; of the program's own, unless gradients of several batches are added."""
        program = self._program
        if self._accumulation == 1:
            program.step()
            return
        assert program.loss is not None and program.optimizer is not None
        module = program.module if program.compiled is None else program.compiled
        program.optimizer.zero_grad(set_to_none=True)
        for number in range(1, self._accumulation + 1):
            last = self._wrapped is None or number == self._accumulation
            with nullcontext() if last else self._replica.no_sync():
                program.loss(module(*program.inputs)).backward()
        program.optimizer.step()

    def buckets(self) -> list[dict[str, Any]]:
        """The buckets of a step in the order in which they were reduced.

        ``index`` is DDP's own number, ``size_bytes`` that of the gradients in it, ``parameters``
        their names. No step can be timed afterwards: DDP has now a hook of ours.
        """
        names = {id(p): name for name, p in self._program.module.named_parameters()}
        found: list[dict[str, Any]] = []

        def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            buffer = bucket.buffer()
            found.append(
                {
                    "index": bucket.index(),
                    "size_bytes": buffer.numel() * buffer.element_size(),
                    "parameters": [names.get(id(p), "") for p in bucket.parameters()],
                }
            )
            future = dist.all_reduce(buffer, async_op=True).get_future()
            return future.then(lambda done: done.value()[0] / dist.get_world_size())

        hook.__annotations__.clear()  # DDP refuses those that are text, as all are here
        self._replica.register_comm_hook(None, hook)
        with users_errors(self._program.entry):
            self._step()
        return found

    def facts(self) -> Mapping[str, Any]:
        """What DDP says of itself: the sizes of its buckets in bytes, as it numbers them.

        ``broadcast_bytes`` are those of the buffers that it sends before a step, a type at a time.
        """
        data = self._replica._get_ddp_logging_data()
        sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
        buffers = Counter[torch.dtype]()
        for buffer in self._program.module.buffers():
            buffers[buffer.dtype] += buffer.numel() * buffer.element_size()
        return {
            "broadcast_bytes": list(buffers.values()),
            "bucket_bytes": [int(float(each)) for each in sizes.split(",") if each.strip()],
            "unused": list(self.unused),
        }

    @property
    def _replica(self) -> DistributedDataParallel:
        if self._wrapped is None:
            raise BackendError(f"{self._program.entry} runs by itself here: it has no buckets")
        return self._wrapped
