"""Inline the local functions of a model; later stages need not know functions.

Twenty functions that call the next one twice inline to a million nodes. So this module first
computes upper bounds of the inlined model: nodes, bytes, and the nesting depth of graphs. Must not
know operators.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx
import onnx.inliner

from bricks.errors import ModelError, first_line
from bricks.graph.topology import default_domain, label, subgraphs

# Limits of inlining: MAX_NODES nodes plus MAX_TIMES as many as the file holds, and MAX_BYTES bytes.
MAX_NODES, MAX_BYTES, MAX_TIMES = 10_000, 64 << 20, 100
# Nesting depths of functions and of graphs: real models have a few; protobuf reads 33 graphs.
MAX_CALLS, MAX_GRAPHS = 60, 30

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Size:
    """The inlined size of a call: nodes, bytes, and nesting depths of calls and of graphs."""

    nodes: int
    size_bytes: int
    calls: int
    graphs: int


def inlined(proto: onnx.ModelProto, file: str) -> onnx.ModelProto:
    """Return ``proto`` with calls of its local functions inlined.

    Raises :class:`ModelError` for functions that call themselves, and for functions that would make
    the model much larger than its file.
    """
    if not proto.functions:
        return proto
    _check(proto, file)
    try:
        return onnx.inliner.inline_local_functions(proto)
    # onnx's C++ raises various exceptions here, from RuntimeError to its own classes.
    except Exception as exc:
        raise ModelError(f"{file}: its functions cannot be inlined: {first_line(exc)}") from exc


def _check(proto: onnx.ModelProto, file: str) -> None:
    functions = _Functions(proto, file)
    size = functions.size_of(proto.graph.node)
    file_nodes = sum(1 for _ in _nested_nodes(proto.graph.node))
    file_nodes += sum(1 for function in proto.functions for _ in _nested_nodes(function.node))
    if size.graphs > MAX_GRAPHS or size.calls > MAX_CALLS:
        raise ModelError(f"{file}: its functions are nested too deep: inline them before")
    if size.nodes > MAX_NODES + MAX_TIMES * file_nodes or size.size_bytes > MAX_BYTES:
        raise ModelError(
            f"{file}: inlining its functions would make {size.nodes} nodes"
            f" ({size.size_bytes >> 20} MiB) of {file_nodes}: refused; inline them before"
        )


class _Functions:
    """The local functions of a model, and the inlined sizes of their calls."""

    def __init__(self, proto: onnx.ModelProto, file: str) -> None:
        self._file = file
        self._bodies: dict[Key, onnx.FunctionProto] = {}
        for function in proto.functions:
            key = _key(function.domain, function.name, function.overload)
            if key in self._bodies:
                raise ModelError(f"{file}: function {function.name} is defined more than once")
            self._bodies[key] = function
        nodes = [node for node, _ in _nested_nodes(proto.graph.node)]
        nodes += [node for body in proto.functions for node, _ in _nested_nodes(body.node)]
        # Names and attributes of a call replace the names and attributes in the function.
        names = (name for node in nodes for name in (*node.input, *node.output))
        self._name_bytes = max(map(len, names), default=0)
        passed = [self._passed_bytes(node) for node in nodes if self._callee(node) in self._bodies]
        passed += [sum(a.ByteSize() for a in body.attribute_proto) for body in proto.functions]
        self._attribute_bytes = max(passed, default=0)
        self._known: dict[Key, _Size] = {}
        self._active: dict[Key, None] = {}

    def size_of(self, body: Iterable[onnx.NodeProto]) -> _Size:
        """Return an upper bound of the inlined size of the calls in ``body``."""
        nodes = size_bytes = calls = graphs = 0
        for node, depth in _nested_nodes(body):
            graphs = max(graphs, depth)
            key = self._callee(node)
            if key in self._bodies:
                size = self._call(key)
                nodes += size.nodes
                size_bytes += size.size_bytes
                calls = max(calls, size.calls)
                graphs = max(graphs, depth + size.graphs)
        return _Size(nodes, size_bytes, calls, graphs)

    def _call(self, key: Key) -> _Size:
        if key in self._known:
            return self._known[key]
        if key in self._active:
            raise ModelError(f"{self._file}: function {key[1]} calls itself: refused")
        if len(self._active) > MAX_CALLS:
            raise ModelError(f"{self._file}: its functions are nested too deep: inline them before")
        self._active[key] = None
        function = self._bodies[key]
        size = self.size_of(function.node)
        ports = references = own = 0
        for node, _ in _nested_nodes(function.node):
            own += 1
            ports += len(node.input) + len(node.output)
            references += sum(1 for attribute in node.attribute if attribute.ref_attr_name)
        own_bytes = function.ByteSize() + ports * self._name_bytes
        own_bytes += references * self._attribute_bytes
        del self._active[key]
        self._known[key] = _Size(
            size.nodes + own, size.size_bytes + own_bytes, size.calls + 1, size.graphs
        )
        return self._known[key]

    def _passed_bytes(self, node: onnx.NodeProto) -> int:
        """Return the bytes of the attributes that a call passes; raises if they contain a graph.

        A graph that functions pass on twice, nested in a graph, grows exponentially.
        """
        if any(True for _ in subgraphs(node)):
            raise ModelError(
                f"{self._file}: node {label(node)} passes a graph to a function: not supported;"
                " inline the function before"
            )
        return sum(attribute.ByteSize() for attribute in node.attribute)

    def _callee(self, node: onnx.NodeProto) -> Key:
        return _key(node.domain, node.op_type, node.overload)


def _key(domain: str, name: str, overload: str) -> Key:
    return default_domain(domain), name, overload


def _nested_nodes(
    nodes: Iterable[onnx.NodeProto], depth: int = 0
) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield every node, also in subgraphs, with its nesting depth in graphs."""
    for node in nodes:
        yield node, depth
        for graph in subgraphs(node):
            yield from _nested_nodes(graph.node, depth + 1)
