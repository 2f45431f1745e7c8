"""The network between cards that divide a decoder, and how many of them hold it.

Must not know what is predicted of steps.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from bricks.architectures.tensor_parallel import divides
from bricks.errors import UsageError
from bricks.network.card_links import LinkedCards, linked_cards
from bricks.network.times import PUBLISHED, STATED, Network, StatedNetwork
from bricks.studies.generation.result import DividedOver

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture
    from bricks.studies.generation.options import CardOptions
    from bricks.system import System


def network_between(system: System, options: CardOptions) -> Network | None:
    """The network between the cards of ``system`` that ``options`` ask for; None for one card.

    Raises :class:`UsageError` for cards that NVLink does not join, unless a network is stated.
    """
    if options.tensor_parallel == 1:
        return None
    if options.bandwidth is not None and options.latency is not None:
        return StatedNetwork(options.bandwidth, options.latency)
    linked, asked = linked_cards(system.accelerator), options.tensor_parallel
    if linked is None or asked > linked.nvlink.cards:
        joined = 0 if linked is None else linked.nvlink.cards
        raise UsageError(
            f"--tensor-parallel {asked}: NVLink joins {joined or 'no'} cards of {system.name}, by"
            " its data sheet: state the network between them, such as --bandwidth 400Gbit"
            " --latency 5us"
        )
    return linked


def divided_over(cards: int, network: Network | None) -> DividedOver:
    """The facts of ``cards`` and of the ``network`` between them."""
    if isinstance(network, StatedNetwork):
        return DividedOver(cards, network.name, STATED, network.bandwidth, network.latency_s)
    if isinstance(network, LinkedCards):
        bandwidth = network.nvlink.one_way_bytes_per_s
        return DividedOver(cards, network.name, PUBLISHED, bandwidth)
    return DividedOver(cards)


def fitting_cards(
    system: System, of: Architecture, more_than: int, needed_bytes: Callable[[int], int]
) -> int | None:
    """The fewest cards that NVLink joins and whose memory holds the decoder; None if none do.

    ``needed_bytes`` are those of each of so many cards.
    """
    linked, card = linked_cards(system.accelerator), system.accelerator
    if linked is None or card is None:
        return None
    counts = range(more_than + 1, linked.nvlink.cards + 1)
    fitting = (n for n in counts if divides(of, n) and needed_bytes(n) <= card.memory_bytes)
    return next(fitting, None)
