"""Bounds of the indices among the inputs of recorded calls.

Indices must be valid, within bounds that follow from the shapes of the call's other arguments. Does
not import PyTorch. Must not know which values are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.graph.program import call_of, is_call
from bricks.graph.tensor import TensorType

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType

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
