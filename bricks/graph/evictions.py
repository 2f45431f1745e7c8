"""The share of a core's caches that a call evicts, from the bytes that it touches.

Must import neither PyTorch nor ONNX.
"""

from __future__ import annotations

import math

# Calls that touch fewer bytes than the first evict nothing, more than the second everything; the
# share is linear in the logarithm between (training steps of perceptrons 8 to 1024 wide).
_FEWEST_BYTES, ALL_BYTES = 16 << 10, 1 << 20


def evicted_share(touched: int) -> float:
    """Return the share of the caches, 0 to 1, that a call evicts by touching ``touched`` bytes."""
    if touched <= _FEWEST_BYTES:
        return 0.0
    return min(1.0, math.log(touched / _FEWEST_BYTES) / math.log(ALL_BYTES / _FEWEST_BYTES))


def writes(operator: str) -> bool:
    """Whether an operator writes to an argument, by PyTorch's naming conventions."""
    name, _, overload = operator.partition(".")
    return name.endswith("_") or "out" in overload.split("_")
