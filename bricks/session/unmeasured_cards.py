"""Systems with a GPU that nobody measured, known by the card's published peaks alone.

Their host and runtime are taken to be those of a measured system. Must not know what is predicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from bricks.system.accelerator import ACCELERATOR
from bricks.system.cards import card_named, cards_called
from bricks.system.target import System, Target


def unmeasured_systems(name: str, known: Iterable[System]) -> list[System]:
    """A system with the card that ``name`` names, like one of ``known`` with another card.

    Empty where ``name`` names no card, or no known system has one. Raises
    :class:`~bricks.errors.NameUnknown` for a name that several cards have.
    """
    measured = [system for system in known if system.accelerator is not None]
    if not measured or not cards_called(name):
        return []
    accelerator = card_named(name).accelerator
    like = min(measured, key=lambda system: system.name)
    title = "-".join(accelerator.name.lower().split())
    identity = {**like.identity, ACCELERATOR: accelerator.to_json()}
    return [replace(like, name=title, identity=identity, recorded={})]


def unmeasured_targets(systems: Sequence[System], known: Sequence[Target]) -> Iterator[Target]:
    """``systems`` of :func:`unmeasured_systems` with the runtimes of measured cards."""
    runtimes = {t.runtime for t in known if t.system.accelerator is not None}
    for system in systems:
        if system.accelerator is not None:
            yield from (Target(system, runtime) for runtime in sorted(runtimes, key=str))
