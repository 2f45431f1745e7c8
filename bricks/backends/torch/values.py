"""Types of tensors, and the synthetic values of a type.

Must not know how calls are replayed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from bricks.backends.torch.filling import fill, numbers_of
from bricks.graph.program import TORCH_DTYPES

if TYPE_CHECKING:
    import numpy as np

    from bricks.graph.tensor import TensorType

# The names of element types in ONNX.
ONNX_DTYPES = {getattr(torch, name): dtype for dtype, name in TORCH_DTYPES.items()}


def synthetic(type_: TensorType, bound: int | None) -> np.ndarray:
    """Return an array of the values that :func:`fill` writes to a tensor of a type."""
    made = torch.empty(type_.shape, dtype=getattr(torch, TORCH_DTYPES[type_.dtype]))
    fill(made, torch.Generator().manual_seed(0), bound)
    return numbers_of(made)
