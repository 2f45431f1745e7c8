"""The work of a call on a GPU, and the sizes and tags on which its speed depends.

Must not know operators, nor any card.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

# The precision in which units compute on values of a type; others compute in FP32.
PRECISION = {"BFLOAT16": "bf16", "FLOAT16": "fp16"}


@dataclass(frozen=True, slots=True)
class CallWork:
    """Operations in ``precision``, bytes read and written, logarithmic ``sizes``, and ``tags``.

    ``flops`` are those of matrix products and convolutions; 0 for work bound by memory.
    """

    flops: float
    precision: str
    read_bytes: float
    written_bytes: float
    sizes: tuple[float, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """The features of a call: its ``family``, its ``operator`` and its work."""

    family: str
    operator: str
    work: CallWork


def logs(sizes: Iterable[float]) -> tuple[float, ...]:
    """Logarithms to base 2; sizes below 1 count as 1."""
    return tuple(math.log2(max(1.0, size)) for size in sizes)
