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
class MatrixProduct:
    """``batch`` products of m x k and k x n matrices by one kernel, ``times`` after another.

    ``tiled`` says whether kernels cut the result into tiles of fixed sizes.
    """

    batch: float
    m: float
    n: float
    k: float
    times: int = 1
    tiled: bool = True

    @property
    def flops(self) -> float:
        """Operations: a multiplication and an addition for each term."""
        return 2.0 * self.times * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class CallWork:
    """Products in ``precision``, bytes read and written, logarithmic ``sizes``, and ``tags``.

    ``products`` are those of matrices, convolutions and attention; none for work bound by memory.
    ``kernels`` is how many run one after another, as far as shapes tell.
    """

    products: tuple[MatrixProduct, ...]
    precision: str
    read_bytes: float
    written_bytes: float
    sizes: tuple[float, ...]
    tags: tuple[str, ...]
    kernels: int = 1

    @property
    def flops(self) -> float:
        """Operations of all products."""
        return sum(product.flops for product in self.products)


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """The features of a call: its ``family``, its ``operator`` and its work."""

    family: str
    operator: str
    work: CallWork


def logs(sizes: Iterable[float]) -> tuple[float, ...]:
    """Logarithms to base 2; sizes below 1 count as 1."""
    return tuple(math.log2(max(1.0, size)) for size in sizes)
