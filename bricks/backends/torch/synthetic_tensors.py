"""Synthetic tensors for the inputs and weights of a brick, of which calls take some values only.

Must not know how calls run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx
import torch

from bricks.backends.torch.generator_states import GENERATOR
from bricks.backends.torch.replay import empty
from bricks.backends.torch.values import (
    bounds_of,
    fill,
    fill_rising,
    rising_bounds_of,
    tensor_types,
)
from bricks.decompose.dialects import decisive_values
from bricks.errors import BackendError
from bricks.graph.containers import ValueType
from bricks.graph.form import DOMAIN
from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import call_of
from bricks.graph.sketch import Sketch
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of, without_values


def own_tensors(proto: onnx.ModelProto, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """Tensors of its own for every input and weight of a brick, with synthetic values."""
    known = _allocated(proto)
    for node in proto.graph.node:
        if node.op_type == "as_strided" and node.input[0] in known:
            _reach(known[node.input[0]], *call_of(node).arguments[0][1:])
    _fill(proto, known, generator)
    for node in proto.graph.node:
        if node.domain == DOMAIN + GENERATOR:  # of which few bytes are a state
            known |= {name: torch.get_rng_state() for name in node.input if name in known}
    return known


def _allocated(proto: onnx.ModelProto) -> dict[str, torch.Tensor]:
    """A tensor for each input and weight; those of one call share storages as its ports do."""
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
        known |= dict(zip(new, empty(types, ports), strict=True))
    for name in outside:  # the numbers of calls that have ports
        if name not in known:
            known[name] = empty([_tensor(graph.types[name], name)], [])[0]
    return known


def _fill(
    proto: onnx.ModelProto, known: Mapping[str, torch.Tensor], generator: torch.Generator
) -> None:
    """Write random numbers that the brick's calls can take."""
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
    """What of a brick decides how long it takes by its values, by name, with its sketch."""
    graph, sketches = graph_of(proto), sketches_of(proto)
    read = {name for node in graph.nodes for name in decisive_values(node, graph.types)}
    outside = {*graph.inputs, *without_values(proto)}
    return {name: sketches.get(name) for name in sorted(read & outside)}


def _reach(
    tensor: torch.Tensor, shape: Sequence[int], strides: Sequence[int], offset: int = 0
) -> None:
    """Let a tensor's storage reach as far as another view of it does."""
    last = offset + sum((s - 1) * step for s, step in zip(shape, strides, strict=True))
    needed = (last + 1) * tensor.element_size()
    if tensor.untyped_storage().nbytes() < needed:
        tensor.untyped_storage().resize_(needed)


def _tensor(type_: ValueType, name: str) -> TensorType:
    if not isinstance(type_, TensorType):
        raise BackendError(f"PyTorch replays tensors alone: {name!r} is {type_}")
    return type_
