"""Which values of a plan share a buffer, as ONNX Runtime's planner decides before any run.

An output reuses the memory of an input where its operator allows that; or else the last free buffer
that was made for a value of the same shape and element size; or else new memory. Must not know
where buffers lie, or how large they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bricks.decompose.memory import Flow
from bricks.graph.containers import ValueType
from bricks.graph.tensor import ELEMENT_BITS, TensorType


@dataclass(eq=False, slots=True)
class Buffer:
    """Memory that values take one after the other.

    ``type_`` is that of the first value. Nobody reads the buffer any more once the occurrence at
    position ``last`` has run; in that of an input or an output of the model, -1.
    """

    type_: ValueType
    users: int = 0  # values that hold it now
    last: int = -1

    def fits(self, type_: ValueType) -> bool:
        """Whether a value of ``type_`` may take the buffer after others."""
        mine = self.type_
        return (
            isinstance(mine, TensorType)
            and isinstance(type_, TensorType)
            and mine.shape == type_.shape
            and mine.dtype in ELEMENT_BITS
            and ELEMENT_BITS[mine.dtype] == ELEMENT_BITS.get(type_.dtype)
        )


def _any_value(type_: ValueType) -> bool:
    return True


def buffers(flow: Flow, placed: Callable[[ValueType], bool] = _any_value) -> dict[int, Buffer]:
    """The buffer of each value whose type is to be ``placed``, by the value's number.

    Inputs and outputs of the model share theirs with no other value, and scalars take none that
    was used before.
    """
    left = Counter(v for o in flow.occurrences for v in o.inputs)
    fixed = {*flow.inputs, *flow.outputs}
    found: dict[int, Buffer] = {}
    free: list[Buffer] = []  # in the order in which they became free

    def place(value: int, beside: int | None) -> None:
        type_ = flow.types[value]
        if value in found or not placed(type_):
            return
        buffer = None if beside is None else found.get(beside)
        if buffer is None and value not in fixed and type_.shape:
            buffer = next((b for b in reversed(free) if b.fits(type_)), None)
            if buffer is not None:
                free.remove(buffer)
        if buffer is None:
            buffer = Buffer(type_)
        found[value] = buffer
        buffer.users += 1

    for value in (*flow.inputs, *flow.outputs):
        place(value, None)
    for number, occurrence in enumerate(flow.occurrences):
        for position, value in enumerate(occurrence.made):
            in_place = occurrence.in_place if position == 0 else None
            place(value, None if in_place is None else occurrence.inputs[in_place])
        for value in occurrence.inputs:
            left[value] -= 1
        for value in dict.fromkeys((*occurrence.inputs, *occurrence.made)):
            buffer = found.get(value)
            if buffer is None or value in fixed or left[value] > 0:
                continue
            buffer.users -= 1
            if not buffer.users:
                buffer.last = number
                free.append(buffer)
    return found
