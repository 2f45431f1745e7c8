"""A node of a graph with the types of its values and its attributes.

ONNX passes tensors by port and other arguments as attributes by name; a recorded call passes both
by position. A rule of an operator reads both through :class:`Node`. Must not know rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx
from onnx import helper

from bricks.graph.program import call_of, is_call
from bricks.graph.types import TensorType

if TYPE_CHECKING:
    from bricks.graph.types import ValueType

NO_CONSTANTS: Mapping[str, onnx.TensorProto] = {}


class Node:
    """An ONNX node with the ``types`` of its values and the tensors of ``constants``, by name.

    ``version`` is the opset version of its operator's domain, 0 if unknown.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        types: Mapping[str, ValueType],
        constants: Mapping[str, onnx.TensorProto] = NO_CONSTANTS,
        version: int = 0,
    ) -> None:
        self.proto, self.types, self.constants, self.version = proto, types, constants, version

    @property
    def operator(self) -> str:
        """The operator's name, without its domain."""
        return self.proto.op_type

    def name_at(self, port: int) -> str:
        """The name of the value at an input; empty if nothing is connected."""
        return self.proto.input[port] if port < len(self.proto.input) else ""

    def has(self, port: int) -> bool:
        """Whether a value is connected to this input."""
        return bool(self.name_at(port))

    @property
    def arity(self) -> int:
        """The number of connected inputs."""
        return sum(1 for name in self.proto.input if name)

    def type_at(self, port: int) -> ValueType:
        """The type of an input; ``LookupError`` if it is unknown or nothing is connected."""
        return self.types[self.name_at(port)]

    def tensor_at(self, port: int) -> TensorType:
        """The type of an input; ``LookupError`` unless it is a tensor of numbers."""
        type_ = self.type_at(port)
        if not isinstance(type_, TensorType) or type_.dtype == "STRING":
            raise LookupError(f"input {port} of {self.operator} is no tensor of numbers")
        return type_

    def dtype_at(self, port: int) -> str:
        """The element type of an input; empty if it is unknown."""
        name = self.name_at(port)
        return self.types[name].dtype if name in self.types else ""

    def shape_at(self, port: int) -> tuple[int, ...] | None:
        """The shape of an input; None if it is unknown or nothing is connected."""
        name = self.name_at(port)
        return self.types[name].shape if name in self.types else None

    @property
    def outputs(self) -> list[ValueType]:
        """The types of the connected outputs."""
        return [self.types[name] for name in self.proto.output if name]

    @property
    def output(self) -> ValueType:
        """The type of the first connected output."""
        return self.outputs[0]

    @property
    def data_elements(self) -> int:
        """The number of elements of the first input: other inputs are axes, scales and the like.

        For a call, the number of elements of all tensors that it reads.
        """
        return self.type_at(0).elements

    def attribute(self, name: str, default: Any = None, position: int | None = None) -> Any:
        """Return the value of the attribute ``name``, or the argument of a call at ``position``.

        Texts are decoded. Returns ``default`` if an ONNX node lacks the attribute, or for a call
        without ``position``.
        """
        for attribute in self.proto.attribute:
            if attribute.name == name:
                value = helper.get_attribute_value(attribute)
                return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
        return default

    def number(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return next((a.i for a in self.proto.attribute if a.name == name), default)

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute of integers; empty if it is absent."""
        return next((tuple(a.ints) for a in self.proto.attribute if a.name == name), ())

    def text(self, name: str) -> str:
        """A text attribute; empty if it is absent."""
        return next((a.s.decode() for a in self.proto.attribute if a.name == name), "")


class CallNode(Node):
    """A call of a recorded program; its inputs are the positional arguments.

    Raises :class:`ModelError` if the node's attributes do not describe a call.
    """

    def __init__(
        self,
        proto: onnx.NodeProto,
        types: Mapping[str, ValueType],
        constants: Mapping[str, onnx.TensorProto] = NO_CONSTANTS,
        version: int = 0,
    ) -> None:
        super().__init__(proto, types, constants, version)
        self.call = call_of(proto)

    def name_at(self, port: int) -> str:
        """The name of the tensor argument at the position ``port``."""
        reference: Mapping[str, int] = self.call.arguments[0][port]
        name: str = self.proto.input[reference["t"]]
        return name

    @property
    def data_elements(self) -> int:
        """Elements of all tensors among the arguments."""
        return sum(self.types[name].elements for name in self.proto.input)

    def attribute(self, name: str, default: Any = None, position: int | None = None) -> Any:
        """The argument at ``position``."""
        return default if position is None else self.call.arguments[0][position]


def node_view(proto: onnx.NodeProto, types: Mapping[str, ValueType]) -> Node:
    """Wrap a node or call; raises :class:`ModelError` for a call without arguments."""
    return CallNode(proto, types) if is_call(proto) else Node(proto, types)
