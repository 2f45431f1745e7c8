"""The context of a brick: the size of all weights of its model.

A runtime reads all of a model's weights in every run. If they exceed the caches, each brick reads
its own from memory; if not, from a cache. For a brick that does little work for each byte of its
weights, the difference is a factor of two and more: a matrix product with one row takes 52 µs for
4 MiB of weights in a model half as large as a cache of 32 MiB, and 126 µs in a model sixteen times
larger than the cache. So such bricks have different keys in models of different sizes. All other
bricks have keys without a context, so that models of a family share them.

Must not know caches: a brick must have the same key on every host.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.decompose.plan import SURROUNDING_BYTES, Brick
from bricks.graph.model_metadata import LOG_WEIGHT_BYTES, noted_weight_bytes
from bricks.graph.payload import is_referenced, type_of
from bricks.graph.view import parse_model

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.graph.graph import Graph

# Fewer bytes of weights are cached in models of any size.
_HEAVY_BYTES = 1 << 16

# Operations for each byte of weights. With more, computing takes ten times as long as reading the
# weights from memory. With fewer, an operator selects from its weights, and reads hardly any.
_MIN_INTENSITY, _MAX_INTENSITY = 0.1, 16.0

# Binary logarithms of bytes of weights: a model below the first fits into any processor's
# second-level cache, and one above the second into no cache.
_MIN_LOG, _MAX_LOG = 20, 30


def weight_bound(weights: Mapping[str, ValueType], flops: int | None) -> bool:
    """Whether a brick may take longer where its weights are in no cache."""
    size_bytes = sum(t.size_bytes for t in weights.values() if t.dtype != "STRING")
    if flops is None or size_bytes < _HEAVY_BYTES:
        return False
    return _MIN_INTENSITY * size_bytes <= flops <= _MAX_INTENSITY * size_bytes


def context_of(graph: Graph) -> dict[str, int]:
    """Return the note of a brick's context: the binary logarithm of the bytes of all weights."""
    types = (type_of(t) for t in graph.initializers.values() if is_referenced(t))
    size_bytes = sum(type_.size_bytes for type_ in types if type_.dtype != "STRING")
    return {LOG_WEIGHT_BYTES: min(_MAX_LOG, max(_MIN_LOG, int(size_bytes).bit_length() - 1))}


def surrounding_bytes(brick: Brick) -> int:
    """Return the bytes of other weights to read before ``brick``, if it is measured by itself."""
    noted = noted_weight_bytes(parse_model(brick.model))
    return (
        SURROUNDING_BYTES
        if noted is None
        else max(SURROUNDING_BYTES, int(noted) - brick.weight_bytes)
    )
