"""Synthetic values for the inputs of recorded calls.

Floats are between zero and one; calls whose time depends on other values have a sketch of their
inputs (``operators.dependence``). Indices must be valid, within bounds that follow from the shapes
of the call's other arguments; offsets of bags rise evenly. Must not know how calls are replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch

from bricks.graph.containers import ValueType
from bricks.graph.program import TORCH_DTYPES, call_of, is_call
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType

# The names of element types in ONNX.
ONNX_DTYPES = {getattr(torch, name): dtype for dtype, name in TORCH_DTYPES.items()}

Shapes = Sequence[tuple[int, ...]]
# From positional arguments (tensors as their shapes) to the bound of each integer tensor among
# them, by argument.
Bounds = Callable[[list[Any]], Mapping[int, Any]]


def _dim(shape: Sequence[int], dim: int) -> int:
    return shape[dim] if shape else 1


def _indices(a: list[Any]) -> dict[int, Any]:
    """Bound each index of ``index(self, [indices])`` by its dimension."""
    return {1: [size for size, _ in zip(a[0], a[1], strict=False)]}


_BOUNDS: Mapping[str, Bounds] = {
    "embedding": lambda a: {1: a[0][0]},
    "embedding_dense_backward": lambda a: {1: a[2]},
    "embedding_renorm_": lambda a: {1: a[0][0]},
    "_embedding_bag": lambda a: {1: a[0][0]},
    "_embedding_bag_forward_only": lambda a: {1: a[0][0]},
    "_embedding_bag_dense_backward": lambda a: {1: a[5], 4: a[5]},
    "_embedding_bag_backward": lambda a: {1: a[6], 5: a[6]},
    **dict.fromkeys(
        (
            *("index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_"),
            *("scatter_reduce", "scatter_reduce_", "index_add", "index_add_", "index_copy"),
            *("index_copy_", "index_fill", "index_fill_"),
        ),
        lambda a: {2: _dim(a[0], a[1])},
    ),
    "index_select_backward": lambda a: {3: _dim(a[1], a[2])},
    "nll_loss_forward": lambda a: {1: a[0][-1]},
    "nll_loss_backward": lambda a: {2: a[1][-1]},
    "nll_loss2d_forward": lambda a: {1: a[0][1]},
    "nll_loss2d_backward": lambda a: {2: a[1][1]},
    **dict.fromkeys(
        ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"), _indices
    ),
    "_unsafe_index_put": _indices,
    "one_hot": lambda a: {0: a[1]},
    "max_pool2d_with_indices_backward": lambda a: {7: a[1][-1] * a[1][-2]},
    "max_unpool2d": lambda a: {1: a[2][0] * a[2][1]},
}

# Bounds of offsets, which rise evenly from zero.
_RISING: Mapping[str, Bounds] = {
    "_embedding_bag": lambda a: {2: a[1][0]},
    "_embedding_bag_forward_only": lambda a: {2: a[1][0]},
    "embedding_bag": lambda a: {2: a[1][0]},
    "_embedding_bag_dense_backward": lambda a: {2: a[0][0]},
    "_embedding_bag_backward": lambda a: {2: a[1][0], 3: a[0][0]},
}


def tensor_types(types: Mapping[str, ValueType]) -> dict[str, TensorType]:
    """Return the tensor types among ``types``."""
    return {name: type_ for name, type_ in types.items() if isinstance(type_, TensorType)}


def rising_bounds_of(node: onnx.NodeProto, types: Mapping[str, TensorType]) -> dict[str, int]:
    """Return the exclusive bounds of inputs that are offsets of bags, by name."""
    return _bounds(_RISING, node, types)


def bounds_of(node: onnx.NodeProto, types: Mapping[str, TensorType]) -> dict[str, int]:
    """Return the exclusive bounds of inputs that are indices, by name."""
    return _bounds(_BOUNDS, node, types)


def _bounds(
    rules: Mapping[str, Bounds], node: onnx.NodeProto, types: Mapping[str, TensorType]
) -> dict[str, int]:
    operator = node.op_type.partition(".")[0]
    if not is_call(node) or operator not in rules:
        return {}
    positional, _ = call_of(node).arguments
    shapes = [_shapes(each, node, types) for each in positional]
    bounds: dict[str, int] = {}
    for position, bound in rules[operator](shapes).items():
        if position < len(positional):
            _assign(positional[position], bound, node, bounds)
    return bounds


def _shapes(argument: Any, node: onnx.NodeProto, types: Mapping[str, TensorType]) -> Any:
    """Return a recorded argument with the shapes of its tensors in place of them."""
    if isinstance(argument, dict) and "t" in argument:
        return types[node.input[argument["t"]]].shape
    if isinstance(argument, list):
        return [_shapes(item, node, types) for item in argument]
    return argument


def _assign(argument: Any, bound: Any, node: onnx.NodeProto, bounds: dict[str, int]) -> None:
    """Note the least bound of each tensor in a recorded argument."""
    if isinstance(argument, list):
        for item, limit in zip(argument, bound, strict=False):
            _assign(item, limit, node, bounds)
    elif isinstance(argument, dict) and "t" in argument:
        name = node.input[argument["t"]]
        bounds[name] = min(bounds.get(name, bound), bound)


def fill_rising(tensor: torch.Tensor, bound: int) -> None:
    """Write integers that rise evenly from zero to below ``bound``."""
    count = tensor.numel()
    rising = torch.arange(count, dtype=torch.int64) * bound // max(count, 1)
    tensor.copy_(rising.view(tensor.shape))


def numbers_of(tensor: torch.Tensor) -> np.ndarray:
    """Convert a tensor to an array, of a type that NumPy has."""
    plain = tensor.detach()
    if plain.dtype.is_floating_point and plain.dtype.itemsize < 4:
        plain = plain.float()
    return np.asarray(plain.numpy())


def elements_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view to write other values to a tensor: the tensor if its elements are distinct.

    Of an expanded tensor it is one of the equal elements; of overlapping windows, the storage.
    """
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(axis, 0, 1)
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    if reach >= tensor.numel():
        return tensor
    return torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())


def drawn(sketch: Sketch, random: torch.Tensor, seed: int) -> torch.Tensor:
    """Draw values of a ``sketch`` with the shape and type of ``random``."""
    made = np.ascontiguousarray(sketch.drawn(numbers_of(random), seed))
    return torch.from_numpy(made).to(random.dtype)


def synthetic(type_: TensorType, bound: int | None) -> np.ndarray:
    """Return an array of the values that :func:`fill` writes to a tensor of a type."""
    made = torch.empty(type_.shape, dtype=getattr(torch, TORCH_DTYPES[type_.dtype]))
    fill(made, torch.Generator().manual_seed(0), bound)
    return numbers_of(made)


def fill(tensor: torch.Tensor, generator: torch.Generator, bound: int | None = None) -> None:
    """Write synthetic values to the storage of a tensor; integers below ``bound``, or 2."""
    dtype = torch.float32 if tensor.dtype.is_complex else tensor.dtype
    # Elements of an expanded tensor share memory: write to the storage.
    _fill(torch.empty(0, dtype=dtype).set_(tensor.untyped_storage()), generator, bound)


def _fill(tensor: torch.Tensor, generator: torch.Generator, bound: int | None) -> None:
    if tensor.dtype.is_floating_point:
        if tensor.dtype.itemsize < 2:
            tensor.copy_(torch.full((), 0.5).to(tensor.dtype).expand(tensor.shape))
        else:
            tensor.uniform_(0.05, 1.0, generator=generator)
    elif tensor.dtype == torch.bool:
        tensor.copy_(torch.rand(tensor.shape, generator=generator) < 0.5)
    else:
        tensor.random_(0, max(1, bound if bound is not None else 2), generator=generator)
