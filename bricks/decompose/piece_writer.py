"""Write the canonical model of a piece of a graph, from which a brick gets its key.

The rule is in :mod:`bricks.decompose.identity`. Must not know which pieces there are.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import onnx

from bricks.decompose.structure import (
    DTYPE_NUMBER,
    Path,
    constant,
    normal_type,
    plain_attributes,
    schedule,
)
from bricks.errors import ModelError
from bricks.graph.form import ModelForm, nodes_form
from bricks.graph.model_metadata import ITEMS, STEERING, note, note_inner_types
from bricks.graph.onnx_types import type_proto
from bricks.graph.topology import default_domain, located_subgraphs
from bricks.graph.types import ContainerType, ValueType
from bricks.operators.dependence import value_counts

if TYPE_CHECKING:
    from bricks.graph.model import Graph

# The location that weights refer to. No such file exists: values are passed when a brick is loaded.
WEIGHTS_LOCATION = "weights"

# The name of every brick's graph.
BRICK_NAME = "brick"

# Models of earlier IR versions list initializers among their inputs, which bricks never do.
_OLDEST_IR = 4

Names = MutableMapping[str, str]


class PieceContent:
    """The kinds, types and contents of the values of one piece of ``graph``.

    ``produced`` maps each value that the piece computes to whether it leaves the piece. ``steered``
    are the names at steering inputs, ``steering`` the contents of steering values by name.
    """

    def __init__(
        self,
        graph: Graph,
        produced: Mapping[str, bool],
        steered: set[str],
        steering: Mapping[str, tuple[float, ...]],
    ) -> None:
        self.graph = graph
        self.produced = produced
        self.steering = steering
        self._steered = steered
        self._calls = nodes_form(graph.nodes[:1]) is ModelForm.PROGRAMS

    def type(self, name: str) -> ValueType:
        """The value's type."""
        try:
            return self.graph.types[name]
        except KeyError:
            raise ModelError(f"value {name!r} has no known type: infer shapes first") from None

    def kind(self, name: str) -> str:
        """The letter that begins the value's canonical name."""
        if name in self.produced:
            return "v"
        if name not in self.graph.initializers:
            return "i"
        if self._calls:
            return "w"  # a call gets its tensors from the step, empty ones too
        return "c" if value_counts(self.type(name), steering=name in self._steered) else "w"

    def label(self, name: str) -> bytes:
        """The facts about the value that count for identity, but its position in the topology."""
        kind, type_ = self.kind(name), self.type(name)
        value: object = b""
        if kind == "c":
            value = self.constant(name, "").SerializeToString(deterministic=True)
        elif kind == "i":
            value = self.steering.get(name, b"")
        extent = type_.items if isinstance(type_, ContainerType) else type_.shape
        return repr((kind, type_.dtype, extent, self.produced.get(name), value)).encode()

    def constant(self, name: str, canonical: str) -> onnx.TensorProto:
        """The value of a constant."""
        return constant(self.graph.initializers[name], canonical)


class PieceWriter:
    """Writes the canonical model of one piece, naming values by first use.

    ``rank`` is the canonical rank of each node by path; empty for a single node.
    """

    def __init__(self, content: PieceContent, rank: Mapping[Path, int]) -> None:
        self.names: dict[str, str] = {}
        self.outputs: list[str] = []
        # The graph's names by kind (input, weight, constant, value in the piece), in order of use.
        self.by_kind: dict[str, list[str]] = {"i": [], "w": [], "c": [], "v": []}
        self._content = content
        self._rank = rank
        self._domains: set[str] = set()
        self._inner = 0

    def types(self, kind: str) -> dict[str, ValueType]:
        """Canonical names and types of the values of one kind."""
        return {self.names[name]: self._content.type(name) for name in self.by_kind[kind]}

    @property
    def outside(self) -> list[str]:
        """The graph's names of the piece's inputs, then of its weights."""
        return [*self.by_kind["i"], *self.by_kind["w"]]

    @property
    def steering(self) -> dict[str, tuple[float, ...]]:
        """The contents of the steering inputs, by canonical name."""
        values = self._content.steering
        return {self.names[name]: values[name] for name in self.by_kind["i"] if name in values}

    def write(self, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        """The canonical model."""
        model = onnx.ModelProto()
        graph = model.graph
        graph.name = BRICK_NAME
        self._write_nodes(nodes, (), self.names, graph)
        self._declare(graph)
        between = [name for name in self.by_kind["v"] if not self._content.produced[name]]
        note_inner_types(model, {self.names[name]: self._content.type(name) for name in between})
        note(model, STEERING, self.steering)
        ports = {n: self._content.type(n) for n in (*self.by_kind["i"], *self.outputs)}
        containers = {n: t for n, t in ports.items() if isinstance(t, ContainerType)}
        note(model, ITEMS, {self.names[n]: t.to_json() for n, t in containers.items()})
        opsets = {default_domain(d): v for d, v in self._content.graph.opsets.items()}
        for domain in sorted(self._domains):
            if domain not in opsets:
                raise ModelError(f"the model imports no opset of domain {domain!r}: import it")
            model.opset_import.add(domain=domain, version=opsets[domain])
        model.ir_version = max(self._content.graph.ir_version, _OLDEST_IR)
        return model

    def _declare(self, graph: onnx.GraphProto) -> None:
        """Add inputs, outputs and initializers to ``graph``, after the nodes have named them."""
        content = self._content
        for name in self.by_kind["i"]:
            _describe(graph.input.add(), self.names[name], content.type(name))
        for name in self.by_kind["v"]:
            if content.produced[name]:
                self.outputs.append(name)
                _describe(graph.output.add(), self.names[name], content.type(name))
        for name in self.by_kind["w"]:
            kind = content.type(name)
            weight = graph.initializer.add(name=self.names[name], dims=kind.shape)
            weight.data_type = DTYPE_NUMBER[kind.dtype]
            weight.data_location = onnx.TensorProto.EXTERNAL
            weight.external_data.add(key="location", value=WEIGHTS_LOCATION)
        for name in self.by_kind["c"]:
            graph.initializer.append(content.constant(name, self.names[name]))

    def _write_nodes(
        self, nodes: Sequence[onnx.NodeProto], path: Path, names: Names, graph: onnx.GraphProto
    ) -> None:
        for i in schedule(nodes, path, self._rank):
            node, form = nodes[i], graph.node.add()
            form.op_type = node.op_type
            domain = default_domain(node.domain)
            self._domains.add(domain)
            if domain:
                form.domain = domain
            form.input.extend([self._read(name, names) for name in node.input])
            attributes = plain_attributes(node)
            if len(attributes) < len(node.attribute):
                attributes += self._graph_attributes(node, (*path, i), names)
                attributes.sort(key=lambda a: a.name)
            form.attribute.extend(attributes)
            for name in node.output:
                if name:
                    names[name] = self._name_inner() if path else self._name("v", name)
            form.output.extend([names[name] if name else "" for name in node.output])

    def _graph_attributes(
        self, node: onnx.NodeProto, path: Path, names: Names
    ) -> list[onnx.AttributeProto]:
        types = {a.name: a.type for a in node.attribute}
        forms: dict[str, onnx.AttributeProto] = {}
        for attribute, position, graph in located_subgraphs(node):
            form = forms.setdefault(
                attribute, onnx.AttributeProto(name=attribute, type=types[attribute])
            )
            single = types[attribute] == onnx.AttributeProto.GRAPH
            body = form.g if single else form.graphs.add()
            body.name, inner = "body", ChainMap({}, names)
            for formal in graph.input:
                inner[formal.name] = self._name_inner()
                body.input.add(name=inner[formal.name], type=normal_type(formal.type))
            self._write_nodes(graph.node, (*path, attribute, position), inner, body)
            for output in graph.output:
                body.output.add(name=self._read(output.name, inner), type=normal_type(output.type))
        return list(forms.values())

    def _read(self, name: str, names: Names) -> str:
        if not name or name in names:
            return names[name] if name else ""
        kind = self._content.kind(name)
        if kind == "v":
            raise ModelError(f"value {name!r} is used before it is computed: sort the nodes")
        self.names[name] = self._name(kind, name)
        return self.names[name]

    def _name(self, kind: str, name: str) -> str:
        self.by_kind[kind].append(name)
        return f"{kind}{len(self.by_kind[kind]) - 1}"

    def _name_inner(self) -> str:
        self._inner += 1
        return f"s{self._inner - 1}"


def _describe(info: onnx.ValueInfoProto, name: str, kind: ValueType) -> None:
    info.name = name
    info.type.CopyFrom(_declared(kind))


@lru_cache(maxsize=1 << 12)
def _declared(kind: ValueType) -> onnx.TypeProto:
    """The type as a proto, cached for copying: a model has far fewer types than values."""
    return type_proto(kind)
