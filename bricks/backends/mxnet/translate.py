"""Translate an ONNX graph to MXNet's symbols, and map fused symbols back to nodes.

Each operator has one small function. It becomes the corresponding MXNet layer if there is one, so
that MXNet's fusions recognise it. Otherwise the function raises an error, and the brick becomes a
named gap in the estimate. Written for MXNet 1.9.1 and the standard operators up to opset 19. The
modules of the functions must not know graphs, weights or time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from onnx import numpy_helper

from bricks.backends.mxnet import arrays, layers  # noqa: F401  # they register translations
from bricks.backends.mxnet.node import OPERATORS, SourceNode, Symbol
from bricks.backends.node_groups import Group, connected, convex
from bricks.errors import BackendError, BricksError, first_line
from bricks.graph.model import Graph
from bricks.graph.payload import is_referenced
from bricks.graph.topology import default_domain, label, used_values
from bricks.graph.types import TensorType

# The name under which MXNet keeps its fusions for processors (operators of oneDNN).
_FUSIONS = "MKLDNN"

# The pattern of the names of a node's symbols: all of them begin with its position.
_POSITION = re.compile(r"n(\d+)(?:_|$)")


@dataclass(frozen=True, slots=True)
class Translation:
    """A graph as one symbol.

    ``variables`` maps inputs and initializers of the graph to variables of the symbol,
    ``constants`` initializers to the values that the graph holds of them. It is ``fusible`` unless
    one of its outputs is also read inside it: fusions lose the values of such an output.
    """

    symbol: Symbol
    variables: Mapping[str, str]
    constants: Mapping[str, np.ndarray]
    fusible: bool

    def fused(self) -> Symbol:
        """The symbol after MXNet's own fusions."""
        with translated("fusing operators"):
            return self.symbol.get_backend_symbol(_FUSIONS) if self.fusible else self.symbol


def translate(graph: Graph, weights: Mapping[str, np.ndarray] | None = None) -> Translation:
    """``graph`` in MXNet's operators; :class:`BackendError` names operators without counterpart.

    ``weights`` are values that the graph does not hold; some of MXNet's operators need them during
    translation.
    """
    values = {
        name: numpy_helper.to_array(tensor)
        for name, tensor in graph.initializers.items()
        if not is_referenced(tensor)
    }
    variables: dict[str, str] = {}
    symbols: dict[str, Symbol] = {}
    for number, name in enumerate((*graph.inputs, *graph.initializers)):
        variables[name] = f"v{number}"
        symbols[name] = mx.sym.var(variables[name])
    known = {**values, **(weights or {})}
    read = {name for node in graph.nodes for name in used_values(node)}
    for position, proto in enumerate(graph.nodes):
        node = _node(graph, position, proto, symbols, known)
        with translated(f"translating {label(proto)}"):
            made = OPERATORS[proto.op_type](node)
        made = made if isinstance(made, list) else [made]
        for name in proto.output[len(made) :]:
            if name in read or name in graph.outputs:
                raise BackendError(
                    f"MXNet cannot run {label(proto)}: it does not make '{name}';"
                    " choose --runtime onnxruntime"
                )
        symbols.update((name, s) for name, s in zip(proto.output, made, strict=False) if name)
    outputs = [
        # A variable cannot be an output: passing it through needs an operator.
        mx.sym.identity(symbols[name], name=f"out{i}") if name in variables else symbols[name]
        for i, name in enumerate(graph.outputs)
    ]
    fusible = read.isdisjoint(graph.outputs)
    return Translation(mx.sym.Group(outputs), variables, values, fusible)


def groups(graph: Graph, fused: Symbol) -> list[Group]:
    """The nodes of ``graph``, by position, that MXNet runs as one in ``fused``; in execution order.

    The symbols of one node may end up in several MXNet operators, which then form one group.
    """
    links = [
        sorted({int(m[1]) for name in names if (m := _POSITION.match(name))})
        for names in _operators(json.loads(fused.tojson()))
    ]
    sets = connected(len(graph.nodes), links)
    ordered = convex(graph.nodes, sets, rank=max)
    if len(ordered) < len(sets):
        raise BackendError("MXNet fuses nodes that wait for each other: not understood")
    return ordered


def _operators(symbol: Mapping[str, Any]) -> Iterator[list[str]]:
    for node in symbol["nodes"]:
        inside = [
            name
            for part in node.get("subgraphs", ())
            for names in _operators(part)
            for name in names
        ]
        if inside or node["op"] != "null":
            yield inside or [node["name"]]


def _node(
    graph: Graph,
    position: int,
    proto: onnx.NodeProto,
    symbols: Mapping[str, Symbol],
    values: Mapping[str, np.ndarray],
) -> SourceNode:
    if default_domain(proto.domain) or proto.op_type not in OPERATORS:
        domain = f" of domain {proto.domain}" if proto.domain else ""
        raise BackendError(
            f"{label(proto)}{domain} has no counterpart in MXNet: choose --runtime onnxruntime"
        )
    return SourceNode(
        name=f"n{position}",
        proto=proto,
        symbols=[symbols[name] if name else None for name in proto.input],
        types=[_type(graph, proto, name) if name else None for name in proto.input],
        constants=[values.get(name) for name in proto.input],
        outputs=[_type(graph, proto, name) for name in proto.output if name],
        opset=graph.opsets.get("", graph.opsets.get("ai.onnx", 1)),
    )


def _type(graph: Graph, proto: onnx.NodeProto, name: str) -> TensorType:
    type_ = graph.types.get(name)
    if not isinstance(type_, TensorType):
        raise BackendError(
            f"MXNet cannot run {label(proto)}: the shape of '{name}' is not known"
            " ahead; choose --runtime onnxruntime"
        )
    # Empty roi and scales of a Resize stand for absent ones.
    absent = proto.op_type == "Resize" and name in graph.initializers
    if not type_.elements and not absent:
        raise BackendError(
            f"MXNet cannot run {label(proto)}: '{name}' has a dimension of 0, which MXNet takes for"
            " an unknown one; choose --runtime onnxruntime"
        )
    return type_


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn any exception of MXNet and its Python wrappers into a :class:`BackendError`."""
    try:
        yield
    except (BricksError, MemoryError):
        raise
    except Exception as exc:
        text = first_line(exc)
        if "bad_alloc" in text or "Cannot allocate" in text or "allocate memory" in text:
            raise MemoryError(text) from exc
        raise BackendError(f"MXNet failed while {doing}: {text}") from exc
