"""The values of a recorded step: which tensor shows which, under which name, and while it lives.

No tensor is kept alive, but those that the step begins with: what dies when is part of the record.
Must not know which calls make values.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch.multiprocessing.reductions import StorageWeakRef

from bricks.backends.torch.call_arguments import storage_key
from bricks.backends.torch.values import ONNX_DTYPES
from bricks.errors import BackendError
from bricks.graph.program import TORCH_DTYPES

# Smaller results are in the caches anyway.
_LARGE_BYTES = 1 << 16


@dataclass(slots=True)
class _Storage:
    """A tensor storage, and the ``names`` of recorded values that view it, by :func:`_view`.

    ``external`` storages were there before the step; ``latest`` is the value last written to it.
    """

    ref: StorageWeakRef
    name: str
    external: bool
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    latest: str = ""

    @property
    def lives(self) -> bool:
        """Whether a tensor still refers to it."""
        return self.external or not self.ref.expired()


class RecordedValues:
    """The values of a step of the program ``entry``.

    ``types`` has each one's type by name, ``begins`` the tensors that the step begins with.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._storages: dict[int, _Storage] = {}
        self._alive: dict[int, _Storage] = {}
        self._taken: set[str] = set()
        self.types: dict[str, onnx.ValueInfoProto] = {}
        self.begins: dict[str, torch.Tensor] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Whether its storage is known."""
        return storage_key(tensor) in self._storages

    def hold(self, tensor: torch.Tensor, name: str) -> None:
        """Note a tensor called ``name`` that is there before the step."""
        self._storage(tensor, name)

    def shown(self, tensor: torch.Tensor) -> str:
        """The value that a tensor shows; empty if it is made in the step, and shown otherwise.

        A tensor that nobody has seen before is one that the step begins with.
        """
        storage, view = self._storage(tensor, None, external=True), _view(tensor)
        if view not in storage.names and storage.external:
            name = self.free_name(storage.name)
            storage.names[view] = name
            self.declare(name, tensor)
            self.begins[name] = tensor.detach()
        return storage.names.get(view, "")

    def base(self, tensor: torch.Tensor) -> str:
        """A value of the same storage as a tensor that none shows, and of the same type."""
        name = next(iter(self._storage(tensor, None).names.values()))
        if self.shape_of(name)[1] != tensor.dtype:
            raise BackendError(
                f"{self._entry}: a value of type {self.shape_of(name)[1]} is read as"
                f" {tensor.dtype}, which cannot be replayed"
            )
        return name

    def made(self, tensor: torch.Tensor, wanted: str, *, wrote: bool) -> str:
        """A new value, called about as ``wanted``: a result, or what a written argument holds.

        A result that was not written is a view of an argument.
        """
        storage = self._storage(tensor, None)
        name = self.free_name(wanted)
        storage.names[_view(tensor)] = name
        if wrote:
            storage.latest = name
        self.declare(name, tensor)
        return name

    def latest(self, tensor: torch.Tensor) -> str:
        """The value of the graph that a tensor shows; empty if no call made it."""
        found = self._storages.get(storage_key(tensor))
        name = "" if found is None else found.names.get(_view(tensor), "")
        return "" if name in self.begins else name

    def living(self) -> list[str]:
        """The values last written to storages that still live."""
        return [s.latest for s in self._storages.values() if s.latest and s.lives]

    def freed(self) -> list[str]:
        """The values of storages that are gone since this was asked last."""
        gone = [key for key, storage in self._alive.items() if not storage.lives]
        return [name for key in gone for name in self._alive.pop(key).names.values()]

    def free_name(self, wanted: str) -> str:
        """A name that no other value has."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}@{count}"
        self._taken.add(name)
        return name

    def declare(self, name: str, tensor: torch.Tensor) -> None:
        """Note the type of the value called ``name``."""
        dtype = ONNX_DTYPES.get(tensor.dtype)
        if dtype is None:
            raise BackendError(
                f"{self._entry}: a value is of type {tensor.dtype}, which cannot be replayed"
            )
        number = TensorProto.DataType.Value(dtype)
        self.types[name] = helper.make_tensor_value_info(name, number, list(tensor.shape))

    def shape_of(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of the value called ``name``."""
        tensor = self.types[name].type.tensor_type
        dtype = TensorProto.DataType.Name(tensor.elem_type)
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        return shape, getattr(torch, TORCH_DTYPES[dtype])

    def large(self, name: str) -> bool:
        """Whether the value called ``name`` is too large for a core's own caches."""
        shape, dtype = self.shape_of(name) if name else ((), torch.bool)
        return bool(math.prod(shape) * dtype.itemsize >= _LARGE_BYTES)

    def weights_and_integers(self, known: Collection[str]) -> tuple[list[TensorProto], list[str]]:
        """What the step begins with but for those ``known``: numbers as weights, and others."""
        weights, others = [], []
        for name, tensor in self.begins.items():
            if name in known:
                continue
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                weights.append(_weight(self.types[name]))
            else:
                others.append(name)
        return weights, others

    def _storage(
        self, tensor: torch.Tensor, name: str | None, *, external: bool = False
    ) -> _Storage:
        key = storage_key(tensor)
        found = self._storages.get(key)
        if found is None:
            outside = external or name is not None
            title = name or (f"constant{len(self._storages)}" if outside else "")
            ref = StorageWeakRef(tensor.untyped_storage())
            found = self._storages[key] = _Storage(ref, title, outside)
            if not outside:
                self._alive[key] = found
        return found


def _view(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of its storage a tensor shows."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _weight(info: onnx.ValueInfoProto) -> TensorProto:
    tensor = info.type.tensor_type
    weight = TensorProto(name=info.name, data_type=tensor.elem_type)
    weight.dims.extend(d.dim_value for d in tensor.shape.dim)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight
