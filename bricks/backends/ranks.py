"""What a backend may offer for processes that are ranks of one job.

All of it is used inside the worker process; see :mod:`bricks.backends.base`. Must not know how
ranks are started.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from bricks.backends.capability import Capability
from bricks.backends.programs import SeededProgram


@dataclass(frozen=True, slots=True)
class CollectiveTimes:
    """Seconds of a collective in each pass; of one unit of computation before and during it.

    Units are timed where the rank computes; None where the collective was too short for one.
    """

    samples: tuple[float, ...]
    before_s: tuple[float | None, ...] = ()
    during_s: tuple[float | None, ...] = ()


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

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Time an operation on ``num_bytes`` in each of some passes, while ``computing`` or not."""
        ...


class DistributedStep(Protocol):
    """A step of a training in this rank, by itself or with the gradients of all ranks."""

    def time(self, steps: int, delay_s: float) -> float:
        """Seconds of a step, over so many that follow one another, each longer by ``delay_s``."""
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
        program: SeededProgram,
        *,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> DistributedStep:
        """The program as a training of this rank, which has joined the others.

        If ``synchronised``, it is data-parallel; else ranks do the same without communicating.
        """
