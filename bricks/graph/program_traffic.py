"""Bytes that a call of a recorded program moves through a core's caches.

Code that runs between calls, Python's above all, takes longer where a call has just displaced it.
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

# Calls that touch less displace nothing that matters; those that touch more, all that there is. In
# between it grows with the logarithm: by steps of perceptrons 8 to 1024 wide, on one processor.
_LEAST_BYTES, ALL_BYTES = 16 << 10, 1 << 20


def touched_bytes(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int:
    """Bytes of the tensors that a call reads or writes, each once; views touch none."""
    call = call_of(node)
    sources = zip_longest(call.aliases[: len(node.output)], node.output, fillvalue=-1)
    fresh = {name for source, name in sources if source < 0 and name}
    if not fresh and call.namespace == "aten" and not _writes(call.operator):
        return 0
    tensors = (types[name] for name in {*node.input, *fresh})
    return sum(each.size_bytes for each in tensors if isinstance(each, TensorType))


def evicted_share(touched: int) -> float:
    """The share of the caches that a call displaces which touches so many bytes: 0 to 1."""
    if touched <= _LEAST_BYTES:
        return 0.0
    return min(1.0, math.log(touched / _LEAST_BYTES) / math.log(ALL_BYTES / _LEAST_BYTES))


def _writes(operator: str) -> bool:
    """Whether an operator fills what it is given, by the conventions of names."""
    name, _, overload = operator.partition(".")
    return name.endswith("_") or "out" in overload.split("_")
