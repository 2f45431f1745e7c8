"""A node of a brick, some types of which may be unknown, for the extraction of features.

Must not know features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from bricks.graph.tensor import TensorType
from bricks.graph.topology import default_domain
from bricks.operators.node import Node
from bricks.operators.registry import operator_of

if TYPE_CHECKING:
    from bricks.graph.containers import ValueType
    from bricks.operators.operator import Features

Shape = tuple[int, ...]


class BrickNode(Node):
    """A node with the ``types`` of its values by name; ``constants`` are the initializers."""

    @property
    def features(self) -> Features:
        """The facts about its operator."""
        return operator_of(self.proto).features

    @property
    def layout(self) -> str:
        """The domain of its operator, which stands for the layout of its data."""
        return default_domain(self.proto.domain)

    @property
    def input_types(self) -> list[ValueType | None]:
        """The types of the connected inputs."""
        return [self.types.get(name) for name in self.proto.input if name]

    @property
    def output_types(self) -> list[ValueType | None]:
        """The types of the connected outputs."""
        return [self.types.get(name) for name in self.proto.output if name]

    @property
    def operands(self) -> list[ValueType | None]:
        """The types of the connected inputs, without constants such as shapes and axes."""
        names = [name for name in self.proto.input if name and not self._is_stored(name)]
        return [self.types.get(name) for name in names]

    def is_weight(self, port: int) -> bool:
        """Whether this input is an initializer."""
        return self.name_at(port) in self.constants

    def constant(self, port: int) -> Shape:
        """Return the integer values of an input, if the brick stores them; else an empty tuple."""
        if not self._is_stored(self.name_at(port)):
            return ()
        values = np.asarray(numpy_helper.to_array(self.constants[self.name_at(port)]))
        return tuple(map(int, values.ravel())) if values.dtype.kind in "iu" else ()

    def _is_stored(self, name: str) -> bool:
        """Whether the brick stores the values of ``name``, such as shapes and axes; not weights."""
        tensor = self.constants.get(name)
        return tensor is not None and tensor.data_location != onnx.TensorProto.EXTERNAL

    def shape(self, port: int) -> Shape:
        """The shape of an input; empty where it is not known."""
        return shape_of(self.types.get(self.name_at(port)))

    @property
    def output_shape(self) -> Shape:
        """The shape of the first output; empty where it is not known."""
        return shape_of(self.output_types[0]) if self.output_types else ()

    @property
    def dtype(self) -> str:
        """The element types of the first input and the first output, and of blocks of weights."""
        ends = [*self.input_types[:1], *self.output_types[:1]]
        names = [end.dtype for end in ends if end is not None]
        if self.features.blockwise:
            names += [f"{self.attribute(name, 0)} {name}" for name in ("bits", "accuracy_level")]
        return ">".join(dict.fromkeys(names))


def shape_of(type_: ValueType | None) -> Shape:
    """The shape of a tensor; empty for other values, and where the type is not known."""
    return type_.shape if isinstance(type_, TensorType) else ()


def node_types(model: onnx.ModelProto, stated: Mapping[str, ValueType]) -> dict[str, ValueType]:
    """The types of initializers and the ``stated`` ones, by the names of values."""
    constants: dict[str, ValueType] = {
        t.name: TensorType(onnx.TensorProto.DataType.Name(t.data_type), tuple(t.dims))
        for t in model.graph.initializer
    }
    return {**constants, **stated}
