"""One card's part of a decoder that several cards divide, as Megatron-LM does.

Heads and columns of the feed-forward network are divided, the last matrix of either by its rows,
and the vocabulary; normalisations are on each card (Shoeybi et al., "Megatron-LM", 2019). Must not
know how cards exchange what they compute.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.errors import ModelError

if TYPE_CHECKING:
    from bricks.architectures.architecture import Architecture


def part_of(name: str, of: Architecture, cards: int) -> Architecture:
    """What each of ``cards`` has of the decoder ``name``; ``of`` itself on a single card.

    Where there are fewer key/value heads than cards, cards share copies of one; the vocabulary is
    padded to a multiple of the cards. Raises :class:`ModelError` for a number of cards that does
    not divide heads and columns.
    """
    if not divides(of, cards):
        most = max(count for count in range(1, cards) if divides(of, count))
        raise ModelError(
            f"{cards} cards cannot divide {name} equally, which has {of.heads} heads,"
            f" {of.kv_heads} of keys and values, and {of.inner} columns: give --tensor-parallel"
            f" {most}"
        )
    return replace(
        of,
        heads=of.heads // cards,
        kv_heads=max(1, of.kv_heads // cards),
        inner=of.inner // cards,
        vocabulary=-(-of.vocabulary // cards),
    )


def divides(of: Architecture, cards: int) -> bool:
    """Whether ``cards`` can divide the decoder."""
    copies = max(of.kv_heads, cards) % min(of.kv_heads, cards)
    return not (of.heads % cards or of.inner % cards or copies)
