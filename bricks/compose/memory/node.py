"""The node of a brick of one node, with the types of its ports and its attributes at hand.

Here so that rules about kernels need not know how bricks are written. Must not know any rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from bricks.decompose.plan import Brick
from bricks.graph.containers import ValueType
from bricks.graph.payload import type_of
from bricks.graph.tensor import TensorType


@dataclass(frozen=True, slots=True)
class Node:
    """A node: its operator as :attr:`Brick.operators` has it, the version of that, types by port.

    ``inputs`` has None where nothing is connected; ``weights`` are the ports that take weights, by
    the weight's position in the brick.
    """

    operator: str
    version: int
    inputs: tuple[ValueType | None, ...]
    outputs: tuple[ValueType, ...]
    weights: tuple[int, ...]
    proto: onnx.NodeProto

    def tensor(self, port: int) -> TensorType:
        """The type of an input; ``LookupError`` unless it is a tensor of a known size."""
        found = self.inputs[port]
        if not isinstance(found, TensorType) or found.dtype == "STRING":
            raise LookupError(f"input {port} of {self.operator} is no tensor of numbers")
        return found

    def given(self, port: int) -> bool:
        """Whether something is connected to this input."""
        return port < len(self.inputs) and self.inputs[port] is not None

    def number(self, name: str, default: int = 0) -> int:
        """An integer attribute."""
        return next((a.i for a in self.proto.attribute if a.name == name), default)

    def numbers(self, name: str) -> tuple[int, ...]:
        """An attribute of integers; empty if it is absent."""
        return next((tuple(a.ints) for a in self.proto.attribute if a.name == name), ())

    def text(self, name: str) -> str:
        """A string attribute; empty if it is absent."""
        return next((a.s.decode() for a in self.proto.attribute if a.name == name), "")


def node_of(brick: Brick) -> Node | None:
    """The node of ``brick``; None if it has several, or bytes that are no model."""
    if len(brick.operators) != 1:
        return None
    try:
        model = onnx.ModelProto.FromString(brick.model)
    except Exception:  # protobuf's error classes differ between its implementations
        return None
    if len(model.graph.node) != 1:
        return None
    (proto,) = model.graph.node
    held = model.graph.initializer
    types: dict[str, ValueType] = {tensor.name: type_of(tensor) for tensor in held}
    types |= {**brick.inputs, **brick.weights}
    ports = list(proto.input)
    return Node(
        operator=brick.operators[0],
        version=next((o.version for o in model.opset_import if o.domain == proto.domain), 0),
        inputs=tuple(types.get(name) for name in ports),
        outputs=tuple(brick.outputs.values()),
        weights=tuple(ports.index(name) for name in brick.weights if name in ports),
        proto=proto,
    )
