"""Requests to a rank: join others, time collectives and data-parallel steps with them."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.backends.programs import SeededProgram
from bricks.backends.ranks import CollectiveTimes
from bricks.measure.protocol.request import Request
from bricks.system.interface import InterfaceFacts


@dataclass(frozen=True, slots=True)
class ReadInterface(Request[InterfaceFacts]):
    """Facts about a network interface."""

    name: str


@dataclass(frozen=True, slots=True)
class OpenGroup(Request[int]):
    """Open the rendezvous of the ranks at ``address``; the answer is its port."""

    address: str
    patience_s: float


@dataclass(frozen=True, slots=True)
class JoinGroup(Request[None]):
    """Become rank ``rank`` of ``ranks``, pinned to ``cores``.

    The rendezvous is at ``address`` and ``port``; port 0: where the launcher of the ranks says.
    """

    rank: int
    ranks: int
    address: str
    port: int
    interface: str
    cores: tuple[int, ...]
    patience_s: float


@dataclass(frozen=True, slots=True)
class LeaveGroup(Request[None]):
    """Leave the other ranks."""


@dataclass(frozen=True, slots=True)
class TimeCollective(Request[CollectiveTimes]):
    """Run a collective ``passes`` times, ``computing`` meanwhile or not."""

    operation: str
    num_bytes: int
    passes: int
    computing: bool


@dataclass(frozen=True, slots=True)
class BeginSteps(Request[None]):
    """Make the program that all ranks train, data-parallel if ``synchronised``.

    ``bucket_cap_mb`` is the option of that name of DDP; gradients of ``accumulation`` batches are
    added before they are reduced.
    """

    program: SeededProgram
    synchronised: bool
    bucket_cap_mb: float | None
    accumulation: int


@dataclass(frozen=True, slots=True)
class TimeSteps(Request[float]):
    """Run ``steps`` steps, each ``delay_s`` longer; the answer is the seconds of a step."""

    steps: int
    delay_s: float
