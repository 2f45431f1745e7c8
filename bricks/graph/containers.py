"""Values other than tensors: sequences, optionals and maps, with the types of their items.

An ONNX type states the permitted items. The amount of work depends on the actual items, so a
:class:`ContainerType` records their types too. Types use ONNX's notation, ``seq(tensor(float))``.
Must not know graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bricks.graph.tensor import TensorType


@dataclass(frozen=True, slots=True)
class ContainerType:
    """Type of a sequence, an optional or a map, with the types of its ``items``.

    ``dtype`` is the declared type in ONNX's notation. An optional holds one item or none; a map's
    one item is the tensor of all its values.
    """

    dtype: str
    items: tuple[ValueType, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """``(number of items,)``."""
        return (len(self.items),)

    @property
    def elements(self) -> int:
        """Number of elements in all items."""
        return sum(item.elements for item in self.items)

    @property
    def size_bytes(self) -> int:
        """Bytes of all items; raises ``KeyError`` if one has no fixed size (STRING)."""
        return sum(item.size_bytes for item in self.items)

    @property
    def sensible(self) -> bool:
        """Whether all items are small enough for the memory of a host."""
        return all(item.sensible for item in self.items)

    @property
    def floating(self) -> bool:
        """False: a container is not a tensor of numbers."""
        return False

    def to_json(self) -> list[object]:
        """``[notation, [item, …]]``, items as types in the same form."""
        return [self.dtype, [item.to_json() for item in self.items]]

    def __str__(self) -> str:
        return f"{self.dtype} of {', '.join(map(str, self.items)) or 'nothing'}"


ValueType = TensorType | ContainerType


def type_from_json(data: Sequence[object]) -> ValueType:
    """Read a type from its ``to_json``; raises ``ValueError`` for invalid data."""
    dtype, items = data
    if isinstance(dtype, str) and "(" in dtype:
        if not isinstance(items, list):
            raise ValueError(f"not a type: {data!r}")
        return ContainerType(dtype, tuple(type_from_json(item) for item in items))
    return TensorType.from_json(data)
