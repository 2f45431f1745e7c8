"""Recipes of the synthetic inputs and weights of a brick, with values that its calls accept.

Must not know how tensors are made: this module does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bricks.backends.torch.index_bounds import bounds_of, rising_bounds_of, tensor_types
from bricks.backends.torch.namespaces import GENERATOR
from bricks.backends.torch.tensor_recipe import TensorRecipe, TensorRecipes
from bricks.errors import BackendError
from bricks.graph.form import DOMAIN
from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import TORCH_DTYPES, Port, call_of, contiguous
from bricks.graph.tensor import ELEMENT_BITS, TensorType
from bricks.graph.view import graph_of, without_values
from bricks.operators.dependence import decisive_values

if TYPE_CHECKING:
    import onnx

    from bricks.graph.containers import ValueType
    from bricks.graph.sketch import Sketch


def recipes_of(proto: onnx.ModelProto) -> TensorRecipes:
    """Return how to make a tensor for each input and weight of a brick."""
    layouts = _Layouts()
    _lay_out(proto, layouts)
    for node in proto.graph.node:
        if node.op_type == "as_strided" and node.input[0] in layouts.views:
            shape, strides, *offset = call_of(node).arguments[0][1:]
            layouts.reach(node.input[0], Port(0, sum(offset), tuple(strides)), shape)
    return TensorRecipes(tuple(layouts.storages), tuple(_filled(proto, layouts)))


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


def _lay_out(proto: onnx.ModelProto, layouts: _Layouts) -> None:
    """Add the inputs and weights of each call, then those that no layout is known of."""
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


def _filled(proto: onnx.ModelProto, layouts: _Layouts) -> Iterator[TensorRecipe]:
    types = tensor_types(graph_of(proto).types)
    bounds: dict[str, int] = {}
    rising: dict[str, int] = {}
    states: set[str] = set()
    for node in proto.graph.node:
        bounds |= bounds_of(node, types)
        rising |= rising_bounds_of(node, types)
        if node.domain == DOMAIN + GENERATOR:  # random bytes are no valid state
            states.update(node.input)
    for name, (type_, port) in layouts.views.items():
        yield TensorRecipe(
            name, TORCH_DTYPES[type_.dtype], type_.shape, port.storage, port.offset, port.strides,
            rising.get(name, bounds.get(name)), name in rising, name in states,
        )  # fmt: skip


def _tensor(type_: ValueType, name: str) -> TensorType:
    if not isinstance(type_, TensorType):
        raise BackendError(f"PyTorch replays tensors alone: {name!r} is {type_}")
    return type_
