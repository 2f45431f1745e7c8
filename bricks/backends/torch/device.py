"""The device on which PyTorch runs calls: the processor, or a GPU with CUDA.

A device places tensors, waits for its work, sets the state of its caches, and tells the kernels of
calls. The processor has nothing to wait for, and starts no kernels. Kernels of a GPU are timed by
CUPTI, through PyTorch's profiler. Host times are never taken under the profiler, whose own cost
would be part of them.

What launching costs is measured with kernels that do next to nothing: gap and duration are those of
kernels queued behind a long one, the latency of a launch that of an idle GPU. Imported where
nothing of this package is, in Python 3.9 or later. Must not know which calls run.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bricks.backends.torch.calls import storage_key
from bricks.backends.torch.trace.kernels import kernels_by_annotation, launched_kernels
from bricks.errors import first_line
from bricks.system.accelerator import CPU, CUDA, AcceleratorState
from bricks.system.nvidia import nvidia_state
from bricks.units.sample import Kernel

_PAGE_BYTES = 4096

# Runs a step of a walk.
StepRun = Callable[[], object]
# The tensors that calls pass to each other, by handle.
TensorHandles = dict[int, torch.Tensor]

# Cycles of a kernel that does nothing.
_BUSY_CYCLES = 4_000_000

_WARM_UP, _QUEUED, _IDLE, _TIMED = 10, 200, 50, 50


class Device:
    """A device that PyTorch calls ``kind``; this class is the processor."""

    kind = CPU

    def default(self) -> AbstractContextManager[object]:
        """Meanwhile, functions that name no device make tensors on this one."""
        return nullcontext()

    def move(self, module: torch.nn.Module) -> None:
        """Move the tensors of a module to the device, in place; the processor moves none."""

    def moved(self, tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        """Return ``tensors`` on the device; the processor moves none."""
        return tensors

    def placed(
        self, tensors: Mapping[str, torch.Tensor], on_host: Collection[str] = ()
    ) -> dict[str, torch.Tensor]:
        """Return ``tensors`` on the device, in the same layouts, except those ``on_host``."""
        return dict(tensors)

    def synchronise(self) -> None:
        """Wait until the device has no work."""

    def state(self) -> AcceleratorState | None:
        """Return the state of the device now; None if it is unknown, and for the processor."""
        return None

    def random_states(self) -> list[torch.Tensor]:
        """Return the states of all random number generators that calls draw from."""
        return [torch.get_rng_state()]

    def restore(self, random_states: Sequence[torch.Tensor]) -> None:
        """Put the generators into earlier states."""
        torch.set_rng_state(random_states[0])

    def touched(self, size_bytes: int) -> torch.Tensor:
        """Allocate memory, as a call would that writes to all of it."""
        tensor = torch.empty(size_bytes, dtype=torch.uint8)
        # One byte in each page causes the page faults of a write to all of it.
        tensor[::_PAGE_BYTES].zero_()
        return tensor

    def displace(self, size_bytes: int) -> None:
        """Write to ``size_bytes`` of other memory, so that the caches hold that."""

    def sampled(self) -> AbstractContextManager[object]:
        """Return the context in which the calls of one sample run."""
        return nullcontext()

    def kernels(self, runs: Sequence[StepRun]) -> list[tuple[Kernel, ...]]:
        """Make all ``runs`` in order; return the kernels that the last sample of each started."""
        for run in runs:
            run()
        return [()] * len(runs)


PROCESSOR = Device()


class Handles:
    """The ``tensors`` that calls pass on; allocates and frees in place of omitted calls."""

    def __init__(self, device: Device) -> None:
        self.tensors: TensorHandles = {}
        self._device = device
        self._touched: TensorHandles = {}

    def apply(self, events: Sequence[Sequence[int]]) -> None:
        """Allocate ``[handle, bytes]``; free a handle for 0 bytes, and all for handle -1."""
        for handle, size_bytes in events:
            if size_bytes:
                self._touched[handle] = self._device.touched(size_bytes)
            elif handle >= 0:
                self.tensors.pop(handle, None)
                self._touched.pop(handle, None)
            else:
                self.clear()

    def clear(self) -> None:
        """Free everything."""
        self.tensors.clear()
        self._touched.clear()


def copied(
    tensors: Mapping[str, torch.Tensor], kind: str, on_host: Collection[str]
) -> dict[str, torch.Tensor]:
    """Copy ``tensors`` to the device ``kind``; those that share a storage share a copy of it."""
    storages: dict[int, torch.UntypedStorage] = {}
    copies = {}
    for name, tensor in tensors.items():
        if name in on_host:
            copies[name] = tensor
            continue
        key = storage_key(tensor)
        if key not in storages:
            data = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            storages[key] = data.to(kind, copy=True).untyped_storage()
        view = tensor.storage_offset(), tensor.shape, tensor.stride()
        copies[name] = torch.empty(0, dtype=tensor.dtype, device=kind).set_(storages[key], *view)
    return copies


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
        context: AbstractContextManager[object] = nullcontext()
        if self._samples is not None:
            self._samples.append(f"bricks {self._number}.{len(self._samples)}")
            context = record_function(self._samples[-1])
        try:
            with context:
                yield
        except RuntimeError as error:
            self._failed(error)
            raise

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


def launch_seconds(device: CudaDevice) -> Mapping[str, Sequence[float]]:
    """Return samples in seconds by the name of the cost, as in ``samples.call_overhead``.

    A cost of kernels has none where the profiler shows no kernels.
    """
    numbers = torch.zeros(32, device=device.kind)

    def launch() -> None:
        numbers.add_(1)

    def queued() -> None:
        device.occupy()
        for _ in range(_QUEUED):
            launch()
        device.synchronise()

    def idle() -> None:
        for _ in range(_IDLE):
            device.synchronise()
            launch()
        device.synchronise()

    for _ in range(_WARM_UP):
        launch()
    device.synchronise()
    ahead = launched_kernels(device.events(queued))[-_QUEUED:]
    alone = launched_kernels(device.events(idle))
    return {
        "gap": [after.begin_s - one.end_s for one, after in pairwise(ahead)],
        "kernel": [kernel.end_s - kernel.begin_s for kernel in ahead],
        "launch": [kernel.begin_s - kernel.launched_s for kernel in alone],
        "round trip": _timed_s(device, launch),
        "synchronise": _timed_s(device, lambda: None),
    }


def _timed_s(device: CudaDevice, run: Callable[[], None]) -> list[float]:
    """Seconds of ``run`` and a wait for the GPU, which was idle before."""
    taken_s = []
    for _ in range(_TIMED):
        device.synchronise()
        start = time.perf_counter()
        run()
        device.synchronise()
        taken_s.append(time.perf_counter() - start)
    return taken_s
