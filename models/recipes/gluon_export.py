"""A Gluon network becomes a weight-free ONNX file: what all recipes that export from MXNet share.

Networks are traced as symbols, so nothing is computed and no weights are made: the exporter is
told their types and shapes. Knows MXNet's exporter; not which networks there are.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from gluon_operators import OPSET, Declared, rewritten
from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph
from zoo_files import MAX_KEPT, Shipped, leave_out_notes, leave_out_values

IMAGE = (1, 3, 224, 224)

# The first version in which an initializer need not be an input as well.
IR_VERSION = 4


@dataclass(frozen=True, slots=True)
class Network:
    """How to build a Gluon network, and what it is; ``inputs`` are names and shapes.

    Of what it gives, the first ``outputs`` are exported: some give more, for training alone.
    """

    name: str
    task: str
    family: str
    source: str
    build: Callable[[], Any]
    inputs: tuple[tuple[str, tuple[int, ...]], ...] = (("data", IMAGE),)
    outputs: int | None = None
    version: int = 1

    def shipped(self, recipe: str) -> Shipped:
        """What the manifest says of it; ``recipe`` is the name of the file that lists it."""
        source = f"MXNet {mx.__version__}, {self.source}"
        return Shipped(
            self.name, self.version, self.task, self.family, "mxnet", source, recipe,
            lambda: export(self),
        )  # fmt: skip


def export(network: Network) -> onnx.ModelProto:
    """The network without its weights."""
    logging.getLogger().setLevel(logging.ERROR)  # the exporter warns of its own defaults
    mx.random.seed(0)
    with mx.name.NameManager():  # names count from zero, whatever was built before
        block = network.build()
        results = flatten(block(*(mx.sym.var(name) for name, _ in network.inputs)))
        symbol = mx.sym.Group(list(results)[: network.outputs])
    symbol = rewritten(symbol, dict(network.inputs))
    shapes = [shape for _, shape in network.inputs]
    float32 = onnx.TensorProto.FLOAT
    graph = MXNetGraph().create_onnx_graph_proto(
        symbol, parameters(network, block, symbol), shapes, [float32] * len(shapes),
        opset_version=OPSET, dynamic=False,
    )  # fmt: skip
    tidy(graph)
    model = onnx.helper.make_model(graph)
    model.opset_import[0].version = OPSET
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")  # the batch may be changed
    model.ir_version = max(model.ir_version, IR_VERSION)
    leave_out_notes(model)
    leave_out_values(model, f"{network.name}.weights")
    model.producer_name, model.producer_version = "bricks zoo", ""
    model.graph.name = network.name
    return model


def tidy(graph: onnx.GraphProto) -> None:
    """Drop constants that the exporter wrote for nobody, or twice under one name.

    Those of one name must be the same.
    """
    read = {name for node in graph.node for name in node.input}
    first: dict[str, onnx.TensorProto] = {}
    for tensor in graph.initializer:
        if tensor.name in read and first.setdefault(tensor.name, tensor) != tensor:
            raise ValueError(f"two constants that differ are called {tensor.name}")
    if len(first) < len(graph.initializer):
        kept = [onnx.TensorProto.FromString(t.SerializeToString()) for t in first.values()]
        del graph.initializer[:]
        graph.initializer.extend(kept)


def flatten(results: Any) -> Iterator[Any]:
    """The symbols in what a network gives, which may be lists of lists."""
    if isinstance(results, (list, tuple)):
        for result in results:
            yield from flatten(result)
    elif results is not None:
        yield results


def parameters(network: Network, block: Any, symbol: Any) -> dict[str, Declared]:
    """All that the network holds, by name; values only of what is small enough to stay."""
    held = block.collect_params()
    found = symbol.infer_shape(**dict(network.inputs))
    names = (symbol.list_arguments(), symbol.list_outputs(), symbol.list_auxiliary_states())
    shapes: dict[str, tuple[int, ...]] = {}
    for some, their in zip(names, found, strict=True):
        shapes.update(zip(some, their, strict=True))
    declared = {}
    for name in (*names[0], *names[2]):
        if name not in held:
            continue  # an input
        shape = tuple(shapes[name])
        kept: tuple[float, ...] = ()
        if math.prod(shape) <= MAX_KEPT:
            parameter = held[name]
            parameter.shape = shape
            parameter.initialize(init=parameter.init or mx.init.Uniform(), force_reinit=True)
            kept = tuple(parameter.data().asnumpy().flatten().tolist())
        declared[name] = Declared(shape, np.dtype(held[name].dtype), kept)
    return declared


def shipped(recipe: str, networks: Sequence[Network]) -> list[Shipped]:
    """What :func:`zoo_files.main` takes."""
    return [network.shipped(recipe) for network in networks]
