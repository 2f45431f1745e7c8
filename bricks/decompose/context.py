"""The context of a brick: what matters of the model around it.

A runtime reads all of a model's weights in every run. If they are more than the caches hold, each
brick finds its own in memory; if they are few, in a cache. For a brick that does little work for
each byte of its weights, that is a factor of two and more: a matrix product with one row takes
52 µs for 4 MiB of weights in a model that a cache of 32 MiB holds twice, and 126 µs in one sixteen
times larger than the cache. So such bricks are different bricks in models of different sizes. All
others stay what they are, so that models of a family share them.

Must not know caches: a brick must have the same key on every host.
"""

from __future__ import annotations

from collections.abc import Mapping

from bricks.decompose.plan import SURROUNDING_BYTES, Brick
from bricks.graph.containers import ValueType
from bricks.graph.graph import Graph
from bricks.graph.model_metadata import LOG_WEIGHT_BYTES, noted_weight_bytes
from bricks.graph.payload import is_referenced, type_of
from bricks.graph.view import parse_model

# Fewer bytes of weights are in a cache wherever the brick is.
_HEAVY_BYTES = 1 << 16

# Operations for each byte of weights. With more, computing takes ten times as long as reading them
# from memory. With fewer, an operator selects from its weights, and reads hardly any.
_MIN_INTENSITY, _MAX_INTENSITY = 0.1, 16.0

# Any model with fewer bytes of weights than two to the power of the first fits into any processor's
# second-level cache, and one with more than that of the second into no cache.
_MIN_LOG, _MAX_LOG = 20, 30


def weight_bound(weights: Mapping[str, ValueType], flops: int | None) -> bool:
    """Whether a brick may take longer where its weights are in no cache."""
    size_bytes = sum(t.size_bytes for t in weights.values() if t.dtype != "STRING")
    if flops is None or size_bytes < _HEAVY_BYTES:
        return False
    return _MIN_INTENSITY * size_bytes <= flops <= _MAX_INTENSITY * size_bytes


def context_of(graph: Graph) -> dict[str, int]:
    """The size of all weights of ``graph``, as bricks note it."""
    types = (type_of(t) for t in graph.initializers.values() if is_referenced(t))
    size_bytes = sum(type_.size_bytes for type_ in types if type_.dtype != "STRING")
    return {LOG_WEIGHT_BYTES: min(_MAX_LOG, max(_MIN_LOG, int(size_bytes).bit_length() - 1))}


def surrounding_bytes(brick: Brick) -> int:
    """The bytes of weights around a brick that is measured without its model."""
    noted = noted_weight_bytes(parse_model(brick.model))
    return (
        SURROUNDING_BYTES
        if noted is None
        else max(SURROUNDING_BYTES, int(noted) - brick.weight_bytes)
    )
