"""Steps of a program in data-parallel training, beside solo steps of the same rank.

The program is PyTorch's DistributedDataParallel around the user's module, with its own buckets and
overlap. Must not know how ranks were started, or what the network between them is.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
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


class DistributedStep:
    """A program in this rank, once by itself and once with the other ranks.

    ``make`` makes the program anew. ``bucket_cap_mb`` is DDP's own option; None: its default.
    Gradients of ``accumulation`` batches are added before they are reduced.
    """

    def __init__(
        self,
        make: Callable[[], Program],
        *,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> None:
        self._solo = make()
        if self._solo.optimizer is None:
            raise BackendError(
                f"{self._solo.entry} is no training: data-parallel steps need a loss and an"
                " optimizer"
            )
        self._accumulation = accumulation
        self._synchronised = make()
        with users_errors(self._solo.entry):
            self._step(self._solo)
        self.unused = tuple(
            name
            for name, parameter in self._solo.module.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        )
        self._wrapped = DistributedDataParallel(
            self._synchronised.module,
            bucket_cap_mb=bucket_cap_mb,
            find_unused_parameters=bool(self.unused),
        )
        self._synchronised = replace(self._synchronised, compiled=self._wrapped)
        with users_errors(self._solo.entry):
            for _ in range(_WARM_UP):
                self._step(self._solo)
                self._step(self._synchronised)

    def time(self, passes: int, delay_s: float) -> Mapping[str, Any]:
        """Seconds of a solo step and of a synchronised one, in turn, so many ``passes``.

        All ranks begin a step at once. This one computes for ``delay_s`` longer in each.
        """
        solo_s, synchronised_s = [], []
        with users_errors(self._solo.entry):
            for _ in range(passes):
                solo_s.append(self._timed(self._solo, 0.0))
                synchronised_s.append(self._timed(self._synchronised, delay_s))
        return {"solo_s": solo_s, "synchronised_s": synchronised_s}

    def _timed(self, program: Program, delay_s: float) -> float:
        dist.barrier()
        started = time.perf_counter()
        while time.perf_counter() - started < delay_s:
            pass  # a slow rank computes, it does not sleep
        self._step(program)
        return time.perf_counter() - started

    def _step(self, program: Program) -> None:
        """One step; of the program's own, unless gradients of several batches are added."""
        if self._accumulation == 1:
            program.step()
            return
        assert program.loss is not None and program.optimizer is not None
        module = program.module if program.compiled is None else program.compiled
        program.optimizer.zero_grad(set_to_none=True)
        for number in range(1, self._accumulation + 1):
            apart = program.compiled is not None and number < self._accumulation
            with self._wrapped.no_sync() if apart else nullcontext():
                program.loss(module(*program.inputs)).backward()
        program.optimizer.step()

    def buckets(self) -> list[dict[str, Any]]:
        """The buckets of a step in the order in which they were reduced.

        ``index`` is DDP's own number, ``size_bytes`` that of the gradients in it, ``parameters``
        their names. No step can be timed afterwards: DDP has now a hook of ours.
        """
        names = {id(p): name for name, p in self._synchronised.module.named_parameters()}
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
        self._wrapped.register_comm_hook(None, hook)
        with users_errors(self._solo.entry):
            self._step(self._synchronised)
        return found

    def facts(self) -> Mapping[str, Any]:
        """What DDP says of itself: the sizes of its buckets in bytes, as it numbers them.

        ``broadcast_bytes`` are those of the buffers that it sends before a step, a type at a time.
        """
        data = self._wrapped._get_ddp_logging_data()
        sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
        buffers = Counter[torch.dtype]()
        for buffer in self._synchronised.module.buffers():
            buffers[buffer.dtype] += buffer.numel() * buffer.element_size()
        return {
            "broadcast_bytes": list(buffers.values()),
            "bucket_bytes": [int(float(each)) for each in sizes.split(",") if each.strip()],
            "unused": list(self.unused),
        }
