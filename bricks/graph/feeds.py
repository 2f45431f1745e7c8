"""Choose the values of inputs for a run: known values if the metadata has any, else synthetic ones.

Synthetic values follow the sketch of an input, if the metadata has one. There are any number of
sets of them, of the same distribution, so that inputs can change from run to run. Must not know
runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from bricks.graph.model_metadata import known_values, noted_sketches, runtime_value

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph
    from bricks.graph.synthesis import Pool, Range


class InputMaker(Protocol):
    """Makes the value of an input."""

    def __call__(self, turn: int = 0) -> Any:
        """Return the value in set number ``turn``; a known value is the same in all sets."""


def feeds(
    proto: onnx.ModelProto,
    graph: Graph,
    ranges: Mapping[str, Range],
    pool: Pool,
    prefix: str = "",
) -> dict[str, InputMaker]:
    """Return a function for each input of ``proto`` (as ``graph``) that makes the input's value.

    Synthetic integers lie within ``ranges``; ``prefix`` and the input's name determine them.
    """
    values, sketches = known_values(proto), noted_sketches(proto)

    def made(name: str, turn: int = 0) -> Any:
        if name in values:
            return runtime_value(values[name], graph.types[name])
        of_turn = f"{prefix}{name}/{turn}" if turn else f"{prefix}{name}"
        random = pool.value(of_turn, graph.types[name], ranges.get(name))
        return sketches[name].drawn(random, turn) if name in sketches else random

    return {name: partial(made, name) for name in graph.inputs}
