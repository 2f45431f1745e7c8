"""Synthetic tensors for the inputs and weights of a brick, with values that its calls accept.

Must not know how calls run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import torch

from bricks.backends.torch.calling import GENERATOR
from bricks.backends.torch.filling import fill, fill_rising
from bricks.backends.torch.index_bounds import bounds_of, rising_bounds_of, tensor_types
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.form import DOMAIN
from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import TORCH_DTYPES, Port, call_of
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, without_values
from bricks.operators.dependence import decisive_values


def own_tensors(proto: onnx.ModelProto, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Return a tensor with synthetic values for each input and weight of a brick, by name."""
    known = _allocated(proto)
    for node in proto.graph.node:
        if node.op_type == "as_strided" and node.input[0] in known:
            _reach(known[node.input[0]], *call_of(node).arguments[0][1:])
    _fill(proto, known, generator)
    for node in proto.graph.node:
        if node.domain == DOMAIN + GENERATOR:  # random bytes are no valid state
            known |= {name: torch.get_rng_state() for name in node.input if name in known}
    return known


def _allocated(proto: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """Allocate a tensor for each input and weight, sharing storages as the ports of calls do."""
    graph = graph_of(proto)
    known: dict[str, torch.Tensor] = {}
    outside = [*graph.inputs, *without_values(proto)]
    for node in proto.graph.node:
        call = call_of(node)
        names = list(node.input)[: len(call.ports)] if call.ports else list(node.input)
        new = [n for n in dict.fromkeys(names) if n in outside and n not in known]
        positions = [names.index(n) for n in new]
        types = [_tensor(graph.types[n], n) for n in new]
        ports = [call.ports[p] for p in positions] if call.ports else []
        known |= dict(zip(new, _empty(types, ports), strict=True))
    for name in outside:  # the numbers of calls that have ports
        if name not in known:
            known[name] = _empty([_tensor(graph.types[name], name)], [])[0]
    return known


def _fill(
    proto: onnx.ModelProto, known: Mapping[str, torch.Tensor], generator: torch.Generator
) -> None:
    """Write random numbers that the calls of the brick accept."""
    types = tensor_types(graph_of(proto).types)
    bounds: dict[str, int] = {}
    rising: dict[str, int] = {}
    for node in proto.graph.node:
        bounds |= bounds_of(node, types)
        rising |= rising_bounds_of(node, types)
    for name, tensor in known.items():
        if name in rising:
            fill_rising(tensor, rising[name])
        else:
            fill(tensor, generator, bounds.get(name))


def deciding_values(proto: onnx.ModelProto) -> dict[str, Sketch | None]:
    """Return the inputs and weights whose values decide the time of calls, with their sketches."""
    graph, sketches = graph_of(proto), sketches_of(proto)
    read = {name for node in graph.nodes for name in decisive_values(node, graph.types)}
    outside = {*graph.inputs, *without_values(proto)}
    return {name: sketches.get(name) for name in sorted(read & outside)}


def _reach(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> None:
    """Resize the storage of a tensor to hold another view of it."""
    last = offset + sum((s - 1) * step for s, step in zip(shape, strides, strict=True))
    needed = (last + 1) * tensor.element_size()
    if tensor.untyped_storage().nbytes() < needed:
        tensor.untyped_storage().resize_(needed)


def _tensor(type_: ValueType, name: str) -> TensorType:
    if not isinstance(type_, TensorType):
        raise BackendError(f"PyTorch replays tensors alone: {name!r} is {type_}")
    return type_


def _empty(types: Sequence[TensorType], ports: Sequence[Port]) -> list[torch.Tensor]:
    """Allocate tensors with the storages, offsets and strides of ``ports``; contiguous without."""
    dtypes = [getattr(torch, TORCH_DTYPES[type_.dtype]) for type_ in types]
    if not ports:
        return [torch.empty(t.shape, dtype=d) for t, d in zip(types, dtypes, strict=True)]
    sizes: dict[int, int] = {}
    shapes = [type_.shape for type_ in types]
    for port, shape, dtype in zip(ports, shapes, dtypes, strict=True):
        last = port.offset + sum((s - 1) * n for s, n in zip(shape, port.strides, strict=True))
        size = 0 if 0 in shape else (last + 1) * dtype.itemsize
        sizes[port.storage] = max(sizes.get(port.storage, 0), size)
    storages = {number: torch.UntypedStorage(size) for number, size in sizes.items()}
    return [
        torch.empty(0, dtype=dtype).set_(storages[port.storage], port.offset, shape, port.strides)
        for port, shape, dtype in zip(ports, shapes, dtypes, strict=True)
    ]
