"""A brick of one recorded call: its operator, arguments and tensors as the call sees them.

Must not know what is learned from them, nor any card.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import onnx

from bricks.graph.program import Call, call_of, contiguous, is_call, touched_bytes
from bricks.graph.types import ELEMENT_BITS, TensorType
from bricks.predict.operator_features import node_types

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.types import ValueType


@dataclass(frozen=True, slots=True)
class CallTensor:
    """A tensor of a call; ``strides`` are in elements."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> float:
        """Bytes of an element."""
        return ELEMENT_BITS[self.dtype] / 8

    @property
    def footprint_bytes(self) -> float:
        """Bytes of the distinct elements: expanded axes count once."""
        axes = zip(self.shape, self.strides, strict=True)
        return math.prod(size for size, stride in axes if stride) * self.item_bytes

    @property
    def dense(self) -> bool:
        """Whether the elements lie one after another in memory, in the order of the axes."""
        return all(
            size == 1 or stride == own
            for size, stride, own in zip(
                self.shape, self.strides, contiguous(self.shape), strict=True
            )
        )

    @property
    def channels_last(self) -> bool:
        """Whether axis 1 of an image or more lies innermost in memory."""
        return len(self.shape) > 2 and self.strides[1] == 1 and self.shape[1] > 1

    @property
    def column_major(self) -> bool:
        """Whether the last axis of a matrix is not the innermost one."""
        return len(self.shape) > 1 and self.strides[-1] != 1 and self.shape[-1] > 1


@dataclass(frozen=True)  # without slots, for the cached facts
class TensorCall:
    """A call with its tensors: ``inputs`` by the numbers in ``call.arguments``; ``outputs``.

    ``views`` says that the call only makes views of its inputs, and starts no kernel.
    """

    call: Call
    inputs: tuple[CallTensor | None, ...]
    outputs: tuple[CallTensor, ...]
    views: bool
    distinct: tuple[CallTensor, ...]

    @cached_property
    def operator(self) -> str:
        """The name without its overload, and without the underscore of an in-place operator."""
        name = self.call.operator.partition(".")[0]
        return name.rstrip("_") or name

    @property
    def in_place(self) -> bool:
        """Whether the operator writes to its first argument."""
        return self.call.operator.partition(".")[0].endswith("_")

    @property
    def positional(self) -> list[Any]:
        """The positional arguments."""
        return self.call.arguments[0]

    def tensor(self, position: int) -> CallTensor | None:
        """The tensor that is the positional argument ``position``; None if there is none."""
        if position >= len(self.positional):
            return None
        argument = self.positional[position]
        if isinstance(argument, dict) and "t" in argument:
            return self.inputs[argument["t"]]
        return None

    def argument(self, position: int, default: Any = None) -> Any:
        """A positional argument, or ``default``."""
        return self.positional[position] if position < len(self.positional) else default

    @cached_property
    def read_bytes(self) -> float:
        """Bytes of all distinct tensors that it reads."""
        return sum(tensor.footprint_bytes for tensor in self.distinct)

    @cached_property
    def written_bytes(self) -> float:
        """Bytes of all tensors that it writes."""
        return sum(tensor.elements * tensor.item_bytes for tensor in self.outputs)

    @property
    def dtype(self) -> str:
        """The element type of the first floating-point tensor; else of the first one."""
        types = [t.dtype for t in (*self.distinct, *self.outputs)]
        floats = [dtype for dtype in types if "FLOAT" in dtype or dtype == "DOUBLE"]
        return next(iter(floats or types), "")


def tensor_call(brick: Brick) -> TensorCall | None:
    """The call of a brick; None for bricks that are no single call of a recorded program."""
    model = onnx.load_model_from_string(brick.model)
    if len(model.graph.node) != 1 or not is_call(model.graph.node[0]):
        return None
    node = model.graph.node[0]
    types = node_types(model, {**brick.inputs, **brick.weights, **brick.outputs})
    call = call_of(node)
    strides = [port.strides for port in call.ports]
    inputs = {
        (name, own): _tensor(types.get(name), own) for name, own in zip_longest(node.input, strides)
    }
    every = [inputs[pair] for pair in zip_longest(node.input, strides)]
    distinct = tuple(tensor for tensor in inputs.values() if tensor is not None)
    views = touched_bytes(node, types) == 0
    return TensorCall(call, tuple(every), tuple(_outputs(node, call, types)), views, distinct)


def single_call(brick: Brick) -> TensorCall:
    """The call of ``brick``; ValueError for a brick that is no single call of a program."""
    call = tensor_call(brick)
    if call is None:
        raise ValueError(f"brick {brick.key} is no call of a recorded program")
    return call


def _outputs(
    node: onnx.NodeProto, call: Call, types: Mapping[str, ValueType]
) -> Iterator[CallTensor]:
    """The outputs; one in place of an input has its strides."""
    for source, name in zip_longest(call.aliases[: len(node.output)], node.output):
        known = source is not None and 0 <= source < len(call.ports)
        tensor = _tensor(types.get(name), call.ports[source].strides if known else None)
        if tensor is not None:
            yield tensor


def _tensor(type_: ValueType | None, strides: tuple[int, ...] | None) -> CallTensor | None:
    if not isinstance(type_, TensorType) or type_.dtype not in ELEMENT_BITS:
        return None
    if strides is None or len(strides) != len(type_.shape):
        strides = contiguous(type_.shape)
    return CallTensor(type_.dtype, type_.shape, strides)
