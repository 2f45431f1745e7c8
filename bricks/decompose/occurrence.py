"""Occurrences of bricks in a model, and how often a model uses each brick.

Frozen data; must not know the content of bricks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One occurrence of a brick in a model.

    ``inputs`` and ``outputs`` number the model's values, in the brick's canonical order, and
    ``weights`` its weights, which several occurrences may share (empty if that isn't known).
    ``in_place`` is the position of the input whose memory the runtime reuses for the first output;
    None if the output has memory of its own.

    Where bricks overlap (see ``overlap``), a layer that two bricks share also has an occurrence of
    its own, whose latency is subtracted once. It comes right before the second brick, and its
    ``repeats`` is the position of the first. A recomputed value has a number of its own. ``hidden``
    lists values that the brick computes but does not output, and that an overlapping brick reads:
    k and the value's number for the brick's value ``v<k>``.
    """

    brick: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    nodes: int = 1
    in_place: int | None = None
    weights: tuple[int, ...] = ()
    repeats: int | None = None
    hidden: tuple[tuple[int, int], ...] = ()

    @property
    def sign(self) -> int:
        """1 if the occurrence's latency is added to the model's, -1 if it is subtracted."""
        return 1 if self.repeats is None else -1

    @property
    def made(self) -> tuple[int, ...]:
        """Numbers of the values that this occurrence produces, hidden ones included."""
        return (*self.outputs, *(value for _, value in self.hidden))

    def to_json(self) -> list[Any]:
        """A JSON list; fields that only overlapping bricks have are omitted for all others."""
        data = [
            self.brick, list(self.inputs), list(self.outputs), self.nodes, self.in_place,
            list(self.weights),
        ]  # fmt: skip
        if self.repeats is None and not self.hidden:
            return data
        return [*data, self.repeats, [list(pair) for pair in self.hidden]]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Occurrence:
        """The inverse of :meth:`to_json`; plans of earlier versions record no weights."""
        brick, inputs, outputs, nodes, in_place, *more = data
        missing: list[Any] = [(), None, ()]
        weights, repeats, hidden = [*more, *missing[len(more) :]]
        return cls(
            brick, tuple(inputs), tuple(outputs), nodes, in_place, tuple(weights),
            repeats, tuple((k, value) for k, value in hidden),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Usage:
    """A model's use of a brick: the numbers of its occurrences and of their distinct weights.

    An occurrence of unknown weights has its own set.
    """

    occurrences: int
    copies: int


def usage_of(occurrences: Sequence[Occurrence]) -> dict[str, Usage]:
    """The usage of each brick, by key."""
    counts = Counter(o.brick for o in occurrences)
    weight_sets = {(o.brick, o.weights or i) for i, o in enumerate(occurrences)}
    copies = Counter(key for key, _ in weight_sets)
    return {key: Usage(count, copies[key]) for key, count in counts.items()}
