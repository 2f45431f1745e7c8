"""Bytes that a call of a recorded program moves through a core's caches.

Code that runs between calls, above all Python's, takes longer after a call has evicted it.
Must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

from bricks.graph.evictions import ALL_BYTES as ALL_BYTES
from bricks.graph.evictions import evicted_share as evicted_share
from bricks.graph.evictions import writes
from bricks.graph.program import call_of
from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType


def touched_bytes(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int:
    """Return the bytes of the distinct tensors that a call reads or writes; 0 for a view."""
    call = call_of(node)
    sources = zip_longest(call.aliases[: len(node.output)], node.output, fillvalue=-1)
    allocated = {name for source, name in sources if source < 0 and name}
    if not allocated and call.namespace == "aten" and not writes(call.operator):
        return 0
    tensors = (types[name] for name in {*node.input, *allocated})
    return sum(tensor.size_bytes for tensor in tensors if isinstance(tensor, TensorType))
