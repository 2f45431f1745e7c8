"""The device on which PyTorch runs calls, and the processor as one.

A device places tensors, waits for its work, sets the state of its caches, and tells the kernels of
calls. The processor has nothing to wait for, and starts no kernels. Must not know which calls run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.call_arguments import storage_key
from bricks.system.accelerator import CPU

if TYPE_CHECKING:
    from bricks.system.accelerator_state import AcceleratorState
    from bricks.units.sample import Kernel

_PAGE_BYTES = 4096

# Runs a step of a walk.
StepRun = Callable[[], object]


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
            storages[key] = _copy(tensor.untyped_storage(), kind)
        view = tensor.storage_offset(), tensor.shape, tensor.stride()
        copies[name] = torch.empty(0, dtype=tensor.dtype, device=kind).set_(storages[key], *view)
    return copies


def _copy(storage: torch.UntypedStorage, kind: str) -> torch.UntypedStorage:
    data = torch.empty(0, dtype=torch.uint8).set_(storage)
    return data.to(kind, copy=True).untyped_storage()
