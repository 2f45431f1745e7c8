"""Choose the values of inputs for a run: known values if the metadata has any, else synthetic ones.

Synthetic values follow the sketch of an input, if the metadata has one. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bricks.graph.model_metadata import known_values, noted_sketches, runtime_value

if TYPE_CHECKING:
    import onnx

    from bricks.graph.graph import Graph
    from bricks.graph.sketch import Sketch
    from bricks.graph.synthesis import Pool, Range


def feeds(
    proto: onnx.ModelProto,
    graph: Graph,
    ranges: Mapping[str, Range],
    pool: Pool,
    prefix: str = "",
) -> dict[str, Callable[[], Any]]:
    """Return a function for each input of ``proto`` (as ``graph``) that makes the input's value.

    Synthetic integers lie within ``ranges``; ``prefix`` and the input's name determine them.
    """
    values, sketches = known_values(proto), noted_sketches(proto)

    def maker(name: str) -> Callable[[], Any]:
        if name in values:
            return partial(runtime_value, values[name], graph.types[name])
        random = partial(pool.value, f"{prefix}{name}", graph.types[name], ranges.get(name))
        if name in sketches:
            return partial(_drawn, sketches[name], random)
        return random

    return {name: maker(name) for name in graph.inputs}


def _drawn(sketch: Sketch, random: Callable[[], Any]) -> Any:
    return sketch.drawn(random(), seed=0)
