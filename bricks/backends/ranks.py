"""What a backend may offer for processes that are ranks of one job.

All of it is used inside the worker process; see :mod:`bricks.backends.base`. Must not know how
ranks are started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class Collectives(Protocol):
    """This process as one rank of a group of processes that communicate."""

    def open_store(self, address: str, timeout_s: float) -> int:
        """Serve the place where ranks meet at ``address``; the port that it has."""
        ...

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Become a rank; with the port 0, as the launcher of this process says."""
        ...

    def leave(self) -> None:
        """Leave the group."""
        ...

    def time(
        self, operation: str, num_bytes: int, passes: int, computing: bool
    ) -> Mapping[str, Any]:
        """Lists with an entry for each pass: ``samples``, and beside computing the units of it."""
        ...


class SynchronisedStep(Protocol):
    """A step of a training in this rank, alone and with the gradients of all ranks."""

    def time(self, passes: int, delay_s: float) -> Mapping[str, Any]:
        """``solo_s`` and ``synchronised_s`` of so many passes, in turn."""
        ...

    def buckets(self) -> Sequence[Mapping[str, Any]]:
        """The buckets of gradients in the order in which they are reduced."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What the runtime says of its buckets."""
        ...


class Communicator(Protocol):
    """An optional interface of a backend: processes that are ranks of one job."""

    def collectives(self) -> Collectives:
        """This process as a rank, which has yet to join the others."""
        ...

    def synchronised_step(
        self,
        entry: str,
        folder: str,
        options: Mapping[str, Any],
        seed: int,
        *,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> SynchronisedStep:
        """The program as a data-parallel training of all ranks; it has joined them."""
        ...
