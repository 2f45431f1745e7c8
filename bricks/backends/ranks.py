"""What a backend may offer for processes that are ranks of one job.

All of it is used inside the worker process; see :mod:`bricks.backends.base`. Must not know how
ranks are started.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from bricks.backends.capability import Capability


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


class DistributedStep(Protocol):
    """A step of a training in this rank, by itself or with the gradients of all ranks."""

    def time(self, steps: int, delay_s: float) -> float:
        """Seconds of a step, over so many that follow one another, each longer by ``delay_s``."""
        ...

    def buckets(self) -> Sequence[Mapping[str, Any]]:
        """The buckets of gradients in the order in which they are reduced."""
        ...

    def facts(self) -> Mapping[str, Any]:
        """What the runtime says of its buckets."""
        ...


class Communicator(Capability):
    """An optional interface of a backend: processes that communicate."""

    lacking: ClassVar[str] = "this runtime has no collectives: choose torch's"

    @abstractmethod
    def collectives(self) -> Collectives:
        """This process as a rank, which has yet to join the others."""


class DistributedTrainer(Capability):
    """An optional interface of a communicator: data-parallel training."""

    lacking: ClassVar[str] = "this runtime has no data-parallel training: choose torch"

    @abstractmethod
    def distributed_step(
        self,
        entry: str,
        folder: str,
        options: Mapping[str, Any],
        seed: int,
        *,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> DistributedStep:
        """The program as a training of this rank, which has joined the others.

        If ``synchronised``, it is data-parallel; else ranks do the same without communicating.
        """
