"""Bytes that a call of a recorded program moves through a core's caches.

Code that runs between calls, above all Python's, takes longer after a call has evicted it.
Must not import PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import zip_longest

import onnx

from bricks.graph.containers import ValueType
from bricks.graph.program import call_of
from bricks.graph.tensor import TensorType

# Calls that touch fewer bytes than the first evict nothing, more than the second everything; the
# share is linear in the logarithm between (training steps of perceptrons 8 to 1024 wide).
_FEWEST_BYTES, ALL_BYTES = 16 << 10, 1 << 20


def touched_bytes(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int:
    """Return the bytes of the distinct tensors that a call reads or writes; 0 for a view."""
    call = call_of(node)
    sources = zip_longest(call.aliases[: len(node.output)], node.output, fillvalue=-1)
    allocated = {name for source, name in sources if source < 0 and name}
    if not allocated and call.namespace == "aten" and not _writes(call.operator):
        return 0
    tensors = (types[name] for name in {*node.input, *allocated})
    return sum(tensor.size_bytes for tensor in tensors if isinstance(tensor, TensorType))


def evicted_share(touched: int) -> float:
    """Return the share of the caches, 0 to 1, that a call evicts by touching ``touched`` bytes."""
    if touched <= _FEWEST_BYTES:
        return 0.0
    return min(1.0, math.log(touched / _FEWEST_BYTES) / math.log(ALL_BYTES / _FEWEST_BYTES))


def _writes(operator: str) -> bool:
    """Whether an operator writes to an argument, by PyTorch's naming conventions."""
    name, _, overload = operator.partition(".")
    return name.endswith("_") or "out" in overload.split("_")
