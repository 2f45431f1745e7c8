"""Buffers that values of a plan share, as ONNX Runtime's planner decides before any run.

An output reuses the memory of an input where its operator allows it, else the buffer that became
free last among buffers of the same shape and element size, else new memory. Must not know offsets
or sizes of buffers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.graph.tensor import ELEMENT_BITS, TensorType

if TYPE_CHECKING:
    from bricks.decompose.memory import Flow
    from bricks.graph.containers import ValueType


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory that values occupy one after the other; ``type_`` is the type of the first value.

    ``last`` is the position of the last occurrence that reads the buffer; -1 in buffers of inputs
    and outputs of the model.
    """

    type_: ValueType
    users: int = 0  # values that occupy it now
    last: int = -1

    def fits(self, type_: ValueType) -> bool:
        """Whether a value of ``type_`` may reuse the buffer."""
        own = self.type_
        return (
            isinstance(own, TensorType)
            and isinstance(type_, TensorType)
            and own.shape == type_.shape
            and own.dtype in ELEMENT_BITS
            and ELEMENT_BITS[own.dtype] == ELEMENT_BITS.get(type_.dtype)
        )


def _any_value(type_: ValueType) -> bool:
    return True


def buffers(flow: Flow, included: Callable[[ValueType], bool] = _any_value) -> dict[int, Buffer]:
    """Return the buffer of each value of a type that is ``included``, by the value's number.

    Inputs and outputs of the model share their buffers with no other value; scalars get new ones.
    """
    readers_left = Counter(v for o in flow.occurrences for v in o.inputs)
    fixed = {*flow.inputs, *flow.outputs}
    by_value: dict[int, Buffer] = {}
    free: list[Buffer] = []  # in the order in which they became free

    def assign(value: int, reused: int | None) -> None:
        type_ = flow.types[value]
        if value in by_value or not included(type_):
            return
        buffer = None if reused is None else by_value.get(reused)
        if buffer is None and value not in fixed and type_.shape:
            buffer = next((b for b in reversed(free) if b.fits(type_)), None)
            if buffer is not None:
                free.remove(buffer)
        if buffer is None:
            buffer = Buffer(type_)
        by_value[value] = buffer
        buffer.users += 1

    for value in (*flow.inputs, *flow.outputs):
        assign(value, None)
    for number, occurrence in enumerate(flow.occurrences):
        for position, value in enumerate(occurrence.made):
            in_place = occurrence.in_place if position == 0 else None
            assign(value, None if in_place is None else occurrence.inputs[in_place])
        for value in occurrence.inputs:
            readers_left[value] -= 1
        for value in dict.fromkeys((*occurrence.inputs, *occurrence.made)):
            buffer = by_value.get(value)
            if buffer is None or value in fixed or readers_left[value] > 0:
                continue
            buffer.users -= 1
            if not buffer.users:
                buffer.last = number
                free.append(buffer)
    return by_value
