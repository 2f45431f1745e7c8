"""A GPU with CUDA: kernels are timed by CUPTI, through PyTorch's profiler.

Host times are never taken under the profiler, whose own cost would be part of them. Must not know
which calls run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bricks.backends.torch.devices.device import Device, StepRun, copied
from bricks.backends.torch.devices.kernel_trace import kernels_by_annotation
from bricks.errors import first_line
from bricks.system.accelerator import CUDA
from bricks.system.nvidia import nvidia_state

if TYPE_CHECKING:
    from bricks.system.accelerator_state import AcceleratorState
    from bricks.units.sample import Kernel

# Cycles of a kernel that does nothing.
_BUSY_CYCLES = 4_000_000


class CudaDevice(Device):
    """The first GPU that this process may use; PyTorch calls it ``kind``.

    The profiler watches ``activities``.
    """

    kind = CUDA
    activities: tuple[ProfilerActivity, ...] = (ProfilerActivity.CPU, ProfilerActivity.CUDA)

    def __init__(self) -> None:
        self._samples: list[str] | None = None  # annotations of the samples of a traced run
        self._number = 0
        self._other = torch.empty(0, dtype=torch.uint8, device=self.kind)
        self._turn = 0

    def default(self) -> AbstractContextManager[object]:
        """Meanwhile, functions that name no device make tensors on the GPU."""
        context: AbstractContextManager[object] = torch.device(self.kind)
        return context

    def move(self, module: torch.nn.Module) -> None:
        """Move the tensors of a module to the GPU; an optimiser keeps its parameters."""
        module.to(self.kind)

    def moved(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return ``tensors`` on the GPU."""
        return tuple(tensor.to(self.kind) for tensor in tensors)

    def placed(
        self, tensors: Mapping[str, torch.Tensor], on_host: Collection[str] = ()
    ) -> dict[str, torch.Tensor]:
        """Copy ``tensors`` to the GPU, except those ``on_host``."""
        return copied(tensors, self.kind, on_host)

    def synchronise(self) -> None:
        """Wait until all launched kernels have ended; see :meth:`_failed` for their errors."""
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            self._failed(error)
            raise

    def state(self) -> AcceleratorState | None:
        """Return clock, power and throttling of the GPU now; None if its driver does not tell."""
        return nvidia_state()

    def random_states(self) -> list[torch.Tensor]:
        """Return the states of the generators of the host and of the GPU."""
        return [torch.get_rng_state(), torch.cuda.get_rng_state()]

    def restore(self, random_states: Sequence[torch.Tensor]) -> None:
        """Put both generators into earlier states."""
        on_host, on_gpu = random_states
        torch.set_rng_state(on_host)
        torch.cuda.set_rng_state(on_gpu)

    def touched(self, size_bytes: int) -> torch.Tensor:
        """Allocate memory of the GPU, which has no page faults."""
        return torch.empty(size_bytes, dtype=torch.uint8, device=self.kind)

    def displace(self, size_bytes: int) -> None:
        """Write to ``size_bytes`` of memory of its own, which is kept for the next time."""
        if size_bytes > self._other.numel():
            self._other = torch.empty(size_bytes, dtype=torch.uint8, device=self.kind)
        self._turn = 1 - self._turn
        self._other[:size_bytes].fill_(self._turn)

    @contextmanager
    def sampled(self) -> Iterator[None]:
        """Annotate a sample if kernels are traced now; see :meth:`_failed` for its errors."""
        try:
            with self._annotation():
                yield
        except RuntimeError as error:
            self._failed(error)
            raise

    def _annotation(self) -> AbstractContextManager[object]:
        if self._samples is None:
            return nullcontext()
        name = f"bricks {self._number}.{len(self._samples)}"
        self._samples.append(name)
        context: AbstractContextManager[object] = record_function(name)
        return context

    def _failed(self, error: RuntimeError) -> None:
        """Free what nothing uses; end the process if no kernel can run in it any more.

        After an illegal access every later call would fail, so the bricks of these would be blamed.
        """
        gc.collect()
        try:
            torch.cuda.empty_cache()
            torch.cuda.synchronize()
        except RuntimeError:
            print(first_line(error), file=sys.stderr, flush=True)
            os._exit(1)

    def kernels(self, runs: Sequence[StepRun]) -> list[tuple[Kernel, ...]]:
        """Make all ``runs`` in order under the profiler; return the kernels of each."""
        names: list[str] = []

        def every() -> None:
            for self._number, run in enumerate(runs):
                self._samples = []
                run()
                names.append(self._samples[-1] if self._samples else "")
            self.synchronise()

        try:
            found = kernels_by_annotation(self.events(every))
        finally:
            self._samples = None
        return [found.get(name, ()) for name in names]

    def occupy(self) -> None:
        """Keep the GPU busy for about two milliseconds, so that launches queue behind."""
        torch.cuda._sleep(_BUSY_CYCLES)

    def events(self, run: Callable[[], None]) -> Sequence[Mapping[str, Any]]:
        """Make ``run`` under the profiler; return the events of its trace, as Kineto writes it."""
        with profile(activities=self.activities) as seen:
            run()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "trace.json")
            seen.export_chrome_trace(str(path))
            events: Sequence[Mapping[str, Any]] = json.loads(path.read_bytes())["traceEvents"]
        return events
