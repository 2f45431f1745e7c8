"""Capabilities of backends whose processes are ranks of one job.

Used inside the worker process; see :mod:`bricks.backends.base`. Must not know how ranks are
started.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from bricks.backends.base import Capability

if TYPE_CHECKING:
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
        """Serve the rendezvous of ranks at ``address``; return its port."""

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Become a rank; with the port 0, as the launcher of this process determines."""

    def leave(self) -> None:
        """Leave the group."""

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Time an operation on ``num_bytes`` in each of some passes, while ``computing`` or not."""


class DistributedStep(Protocol):
    """A training step in this rank, isolated or with the gradients of all ranks."""

    def time(self, steps: int, delay_s: float) -> float:
        """Return the mean seconds of consecutive ``steps``, each longer by ``delay_s``."""


class Communicator(Capability):
    """An optional interface of a backend: processes that communicate."""

    lacking: ClassVar[str] = "this runtime has no collectives: choose torch's"

    @abstractmethod
    def collectives(self) -> Collectives:
        """Return this process as a rank that has not joined yet."""


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
        """Return the program as a training of this rank, which has joined the others.

        Data-parallel if ``synchronised``, else without communication.
        """
