"""Bricks that are cut from a recorded program: recipes of their inputs, and they as plain data.

The synthetic values of inputs and weights are such that calls accept them: indices must be valid,
within bounds that follow from the shapes of the call's other arguments. Plain data need neither
ONNX nor this package. Must not know how tensors are made: this module does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from bricks.backends.torch.call_data import GENERATOR, QUANTIZED, TensorRecipe, TensorRecipes
from bricks.errors import BackendError
from bricks.graph.form import DOMAIN
from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import TORCH_DTYPES, Port, call_of, contiguous, is_call
from bricks.graph.sketch import Sketch
from bricks.graph.types import ELEMENT_BITS, TensorType, ValueType
from bricks.graph.view import graph_of, without_values
from bricks.operators.dependence import decisive_values

Shapes = Sequence[tuple[int, ...]]
# From positional arguments (tensors as their shapes) to the bound of each integer tensor among
# them, by argument.
Bounds = Callable[[list[Any]], Mapping[int, Any]]

# Kernels that PyTorch's compiler made for one host.
_KERNEL = "kernel"


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
    if isinstance(argument, dict) and "t" in argument:
        return types[node.input[argument["t"]]].shape
    if isinstance(argument, list):
        return [_shapes(item, node, types) for item in argument]
    return argument


def _assign(argument: Any, bound: Any, node: onnx.NodeProto, bounds: dict[str, int]) -> None:
    if isinstance(argument, list):
        for item, limit in zip(argument, bound, strict=False):
            _assign(item, limit, node, bounds)
    elif isinstance(argument, dict) and "t" in argument:
        name = node.input[argument["t"]]
        bounds[name] = min(bounds.get(name, bound), bound)


def recipes_of(proto: onnx.ModelProto) -> TensorRecipes:
    """Return how to make a tensor for each input and weight of a brick."""
    layouts = _Layouts()
    graph = graph_of(proto)
    outside = [*graph.inputs, *without_values(proto)]
    for node in proto.graph.node:
        call = call_of(node)
        names = list(node.input)[: len(call.ports)] if call.ports else list(node.input)
        new = [n for n in dict.fromkeys(names) if n in outside and n not in layouts.views]
        ports = [call.ports[names.index(n)] for n in new] if call.ports else []
        layouts.add({n: _tensor(graph.types[n], n) for n in new}, ports)
    for name in outside:  # the numbers of calls that have ports
        if name not in layouts.views:
            layouts.add({name: _tensor(graph.types[name], name)}, [])
    for node in proto.graph.node:
        if node.op_type == "as_strided" and node.input[0] in layouts.views:
            shape, strides, *offset = call_of(node).arguments[0][1:]
            layouts.reach(node.input[0], Port(0, sum(offset), tuple(strides)), shape)
    types = tensor_types(graph.types)
    bounds: dict[str, int] = {}
    rising: dict[str, int] = {}
    states: set[str] = set()
    for node in proto.graph.node:
        bounds |= bounds_of(node, types)
        rising |= rising_bounds_of(node, types)
        if node.domain == DOMAIN + GENERATOR:  # random bytes are no valid state
            states.update(node.input)
    tensors = tuple(
        TensorRecipe(
            name, TORCH_DTYPES[type_.dtype], type_.shape, port.storage, port.offset, port.strides,
            rising.get(name, bounds.get(name)), name in rising, name in states,
        )
        for name, (type_, port) in layouts.views.items()
    )  # fmt: skip
    return TensorRecipes(tuple(layouts.storages), tensors)


def deciding_values(proto: onnx.ModelProto) -> dict[str, Sketch | None]:
    """Return the inputs and weights whose values decide the time of calls, with their sketches."""
    graph, sketches = graph_of(proto), sketches_of(proto)
    read = {name for node in graph.nodes for name in decisive_values(node, graph.types)}
    outside = {*graph.inputs, *without_values(proto)}
    return {name: sketches.get(name) for name in sorted(read & outside)}


@dataclass(slots=True)
class _Layouts:
    """Bytes of each storage; the type and view of each tensor by name, in order."""

    storages: list[int] = field(default_factory=list)
    views: dict[str, tuple[TensorType, Port]] = field(default_factory=dict)

    def add(self, types: Mapping[str, TensorType], ports: Sequence[Port]) -> None:
        """Add tensors that share storages as ``ports`` do; without any, each has its own."""
        own = [Port(n, 0, contiguous(type_.shape)) for n, type_ in enumerate(types.values())]
        first = len(self.storages)
        numbers: dict[int, int] = {}
        for (name, type_), port in zip(types.items(), ports or own, strict=True):
            number = numbers.setdefault(port.storage, first + len(numbers))
            if number == len(self.storages):
                self.storages.append(0)
            self.views[name] = type_, Port(number, port.offset, tuple(port.strides))
            self.reach(name, port, type_.shape)

    def reach(self, name: str, port: Port, shape: Sequence[int]) -> None:
        """Enlarge the storage of a tensor so that it holds another view of it."""
        type_, view = self.views[name]
        last = port.offset + sum((s - 1) * n for s, n in zip(shape, port.strides, strict=True))
        needed = 0 if 0 in shape else (last + 1) * ELEMENT_BITS[type_.dtype] // 8
        self.storages[view.storage] = max(self.storages[view.storage], needed)


def _tensor(type_: ValueType, name: str) -> TensorType:
    if not isinstance(type_, TensorType):
        raise BackendError(f"PyTorch replays tensors alone: {name!r} is {type_}")
    return type_


def piece_of(proto: onnx.ModelProto) -> dict[str, Any]:
    """Return a brick as JSON: its calls, its inputs and outputs by name, how tensors are made.

    ``deciding`` are the inputs whose values decide how long it takes, with their sketches. Raises
    :class:`BackendError` for compiled kernels and quantised products.
    """
    sketches = deciding_values(proto).items()
    return {
        "calls": [_call(node) for node in proto.graph.node],
        "inputs": [info.name for info in proto.graph.input],
        "outputs": [info.name for info in proto.graph.output],
        "recipes": recipes_of(proto).to_json(),
        "deciding": {name: sketch and sketch.to_json() for name, sketch in sketches},
    }


def _call(node: onnx.NodeProto) -> list[Any]:
    call = call_of(node)
    if call.namespace == _KERNEL:
        raise BackendError("compiled kernels are of one host: choose --runtime torch")
    if call.namespace == QUANTIZED:
        raise BackendError(
            "a suite's own program packs no quantised weights: measure it with --runtime torch"
        )
    return [
        call.namespace, call.operator, *call.arguments, list(node.input), list(node.output),
        list(call.aliases), call.on_host,
    ]  # fmt: skip
