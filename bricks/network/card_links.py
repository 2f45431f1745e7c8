"""NVLink between the cards of a host as a network, from its published bandwidth.

NCCL chooses a protocol by the cost model of its own source (NVIDIA/nccl, ``src/graph/tuning.cc``):
a latency of each collective, one of each step round the ring, and a share of the links' bandwidth.
Its constants are used here as published; no collective was run. Must not know what is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.network.formulas import steps, volume
from bricks.network.times import (
    NOTHING,
    PUBLISHED,
    STATED,
    Network,
    NetworkEstimate,
    refuse_impossible,
)
from bricks.system.cards import NvLink, card_of
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.system.accelerator import Accelerator

# How far a collective may be off in either direction. Assumed: none was run.
UNCHECKED_FACTOR = 2.0

# A rank computes this much slower at most while NCCL's channels, 32 of them, occupy as many of the
# 132 multiprocessors of an H100. Assumed of all cards.
_MAX_SLOWDOWN = 132 / (132 - 32)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol of NCCL: seconds of a collective and of a step, and the share of bandwidth."""

    base_s: float
    step_s: float
    bandwidth_share: float


# LL, LL128 and Simple on a ring over NVLink.
PROTOCOLS: Sequence[Protocol] = (
    Protocol(6.6e-6, 0.6e-6, 0.5),
    Protocol(14.0e-6, 1.9e-6, 0.92),
    Protocol(8.4e-6, 3.4e-6, 1.0),
)


@dataclass(frozen=True, slots=True)
class LinkedCards:
    """Cards that ``nvlink`` joins, by NCCL's cost model."""

    nvlink: NvLink
    name: str = "NVLink"
    cores_per_rank: float = 1.0

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`: the time of the fastest protocol."""
        refuse_impossible(operation, num_bytes, ranks)
        if ranks == 1:
            return NOTHING
        messages, sent_bytes = steps(operation, ranks), volume(operation, ranks) * num_bytes
        seconds = min(
            of.base_s
            + messages * of.step_s
            + sent_bytes / (of.bandwidth_share * self.nvlink.one_way_bytes_per_s)
            for of in PROTOCOLS
        )
        return NetworkEstimate(Interval.within_factor(seconds, UNCHECKED_FACTOR), PUBLISHED)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        if ranks == 1:
            return NetworkEstimate(Interval.exact(1.0), STATED)
        return NetworkEstimate(Interval(1.0, 1.0, _MAX_SLOWDOWN), PUBLISHED)


def linked_cards(accelerator: Accelerator | None) -> LinkedCards | None:
    """The cards that NVLink joins with one like ``accelerator``; None if it has none."""
    card = None if accelerator is None else card_of(accelerator)
    return None if card is None or card.nvlink is None else LinkedCards(card.nvlink)


@dataclass(frozen=True, slots=True)
class CardsThenHosts:
    """``cards`` for as many ranks as they are; between more, the network ``hosts``."""

    cards: LinkedCards
    hosts: Network

    @property
    def name(self) -> str:
        """See :class:`~bricks.network.times.Network`."""
        return self.cards.name

    @property
    def cores_per_rank(self) -> float:
        """See :class:`~bricks.network.times.Network`."""
        return self.cards.cores_per_rank

    def time(
        self, operation: str, num_bytes: int, ranks: int, *, computing: bool
    ) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        return self._between(ranks).time(operation, num_bytes, ranks, computing=computing)

    def slowdown(self, ranks: int) -> NetworkEstimate:
        """See :class:`~bricks.network.times.Network`."""
        return self._between(ranks).slowdown(ranks)

    def _between(self, ranks: int) -> Network:
        return self.cards if ranks <= self.cards.nvlink.cards else self.hosts
