"""How the synthetic tensors of a brick are laid out and filled, as plain data.

Must not know how tensors are made: this module imports neither PyTorch nor ONNX.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TensorRecipe:
    """A tensor called ``name``: a view of ``storage``; ``offset`` and ``strides`` are in elements.

    Its elements are random: integers are less than ``bound``, or than 2 if it is None. A ``rising``
    tensor has integers that rise evenly from zero to below ``bound``. A ``state`` is one of the
    random number generator.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    storage: int
    offset: int
    strides: tuple[int, ...]
    bound: int | None = None
    rising: bool = False
    state: bool = False

    def to_json(self) -> list[Any]:
        """A list of all fields."""
        return [
            self.name, self.dtype, list(self.shape), self.storage, self.offset,
            list(self.strides), self.bound, self.rising, self.state,
        ]  # fmt: skip

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> TensorRecipe:
        """The inverse of :meth:`to_json`."""
        name, dtype, shape, storage, offset, strides, *filling = data
        return cls(name, dtype, tuple(shape), storage, offset, tuple(strides), *filling)


@dataclass(frozen=True, slots=True)
class TensorRecipes:
    """The tensors of a brick in the order in which they are filled; ``storages`` are in bytes."""

    storages: tuple[int, ...]
    tensors: tuple[TensorRecipe, ...]

    def to_json(self) -> dict[str, Any]:
        """Both fields."""
        tensors = [recipe.to_json() for recipe in self.tensors]
        return {"storages": list(self.storages), "tensors": tensors}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TensorRecipes:
        """The inverse of :meth:`to_json`."""
        tensors = tuple(map(TensorRecipe.from_json, data["tensors"]))
        return cls(tuple(data["storages"]), tensors)
