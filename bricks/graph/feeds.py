"""Choose the values of inputs for a run: known values where there are any, else synthetic ones.

Synthetic values follow the sketch of an input, where there is one. Separate so that running a model
and checking it follow one rule. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import onnx

from bricks.graph.graph import Graph
from bricks.graph.model_metadata import known_values, natural, noted_sketches
from bricks.graph.sketch import Sketch
from bricks.graph.synthesis import Pool, Range


def feeds(
    proto: onnx.ModelProto,
    graph: Graph,
    ranges: Mapping[str, Range],
    pool: Pool,
    prefix: str = "",
) -> dict[str, Callable[[], Any]]:
    """A function per input of ``proto`` (as ``graph``) that returns the input's value.

    Synthetic integers lie within ``ranges``; ``prefix`` and the input's name determine them.
    """
    held, sketches = known_values(proto), noted_sketches(proto)

    def maker(name: str) -> Callable[[], Any]:
        if name in held:
            return partial(natural, held[name], graph.types[name])
        random = partial(pool.value, f"{prefix}{name}", graph.types[name], ranges.get(name))
        if name in sketches:
            return partial(_drawn, sketches[name], random)
        return random

    return {name: maker(name) for name in graph.inputs}


def _drawn(sketch: Sketch, random: Callable[[], Any]) -> Any:
    return sketch.drawn(random(), seed=0)
