"""Steps of a program in data-parallel training, or of the same program without communication.

The program is PyTorch's DistributedDataParallel around the user's module, with its own buckets and
overlap. Must not know how ranks were started, or the network.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from bricks.backends.torch.entry import Program, users_errors
from bricks.errors import BackendError

# Steps before the first timed one: DDP rebuilds its buckets after the first.
_WARM_UP = 3


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
        """Run one step of the program, or accumulate the gradients of several batches."""
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
