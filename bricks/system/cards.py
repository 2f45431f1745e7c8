"""Cards: GPUs with their published peaks, for answers about a GPU that nobody measured.

``cards.csv`` has a row for each card: the facts of NVIDIA's datasheets and whitepapers. Peaks are
dense, in units of 1e12 operations a second; those of matrix products in 8 to 19 bits are of tensor
cores that accumulate in FP32. NVLink's bandwidth is that of a card in both directions together, as
datasheets state it, between at most ``nvlink_cards`` cards. An empty cell: the card has no such
units. Must not know what is predicted from the facts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources

from bricks.errors import NameUnknown, UsageError
from bricks.system.accelerator import Accelerator

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")

# A message names at most this many cards that a text may mean.
_MAX_NAMED = 4


@dataclass(frozen=True, slots=True)
class NvLink:
    """NVLink of a card: published bytes a second in both directions, and the cards it joins."""

    both_ways_bytes_per_s: float
    cards: int

    @property
    def one_way_bytes_per_s(self) -> float:
        """Bytes a second that a card sends while it receives as many."""
        return self.both_ways_bytes_per_s / 2


@dataclass(frozen=True, slots=True)
class Card:
    """A model of GPU, and its published peaks.

    ``bandwidth_bytes_per_s`` is that of its memory, ``flops_per_s`` has the precisions (of
    ``PRECISIONS``) that its units compute in. ``aliases`` are short names, which only this card
    has. ``source`` is the document with these facts. ``nvlink`` joins it with others, None if
    nothing but PCIe does.
    """

    accelerator: Accelerator
    bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float] = field(repr=False)
    aliases: tuple[str, ...]
    source: str
    nvlink: NvLink | None = None

    @property
    def name(self) -> str:
        """The card's name, as its driver calls it."""
        return self.accelerator.name

    @property
    def words(self) -> frozenset[str]:
        """All words of its name and of its aliases, in lower case."""
        return frozenset(word for name in (self.name, *self.aliases) for word in _words(name))


@cache
def cards() -> tuple[Card, ...]:
    """All cards whose peaks are known here."""
    text = resources.files(__package__).joinpath("cards.csv").read_text(encoding="utf-8")
    return tuple(map(_card, csv.DictReader(text.splitlines())))


def card_named(text: str) -> Card:
    """The card that ``text`` names: an alias such as ``h100``, or words that only one card has.

    Case and what stands between words do not matter. Raises :class:`NameUnknown` for a text that no
    card or several cards have.
    """
    found = cards_called(text)
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(card.name for card in found[:_MAX_NAMED])
        more = f" or {len(found) - _MAX_NAMED} others" if len(found) > _MAX_NAMED else ""
        raise NameUnknown(f"{text!r} may be {names}{more}: add a word that only one of them has")
    raise NameUnknown(f"no card is called {text!r}; there are {', '.join(known_aliases())}")


def cards_called(text: str) -> list[Card]:
    """The cards that ``text`` may name: the one with this name or alias, or all with its words."""
    words = _words(text)
    for card in cards():
        if words in [_words(name) for name in (card.name, *card.aliases)]:
            return [card]
    return [card for card in cards() if words and card.words.issuperset(words)]


def known_aliases() -> tuple[str, ...]:
    """The shortest alias of each card, in the order of the table."""
    return tuple(min(card.aliases, key=len) for card in cards())


def card_of(accelerator: Accelerator) -> Card | None:
    """The card of a GPU, found by the name that its driver gives; None if it is not known here."""
    name = _words(accelerator.name)
    return next((card for card in cards() if _words(card.name) == name), None)


def card_with_peaks(accelerator: Accelerator) -> Card:
    """The card of an accelerator; UsageError if its published peaks are not known."""
    card = card_of(accelerator)
    if card is None:
        raise UsageError(
            f"the published peaks of {accelerator.name!r} are not known: measure the model there"
        )
    return card


def _words(text: str) -> tuple[str, ...]:
    return tuple(re.findall(r"[a-z0-9]+", text.lower()))


def _card(row: Mapping[str, str]) -> Card:
    peaks = {name: float(row[name]) * 1e12 for name in PRECISIONS if row[name]}
    bandwidth = float(row["bandwidth_gb_per_s"]) * 1e9
    aliases = tuple(row["aliases"].split())
    accelerator = Accelerator(
        row["name"],
        int(row["memory_gb"]) * 10**9,
        int(row["l2_mb"]) << 20,
        int(row["multiprocessors"]),
        row["capability"],
        clock_hz=float(row["clock_mhz"]) * 1e6,
        power_limit_w=float(row["power_w"]),
    )
    nvlink = None
    if published := row["nvlink_gb_per_s"]:
        nvlink = NvLink(float(published) * 1e9, int(row["nvlink_cards"]))
    return Card(accelerator, bandwidth, peaks, aliases, row["source"], nvlink)
