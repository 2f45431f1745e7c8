"""The values of a recorded step: the tensors that hold each, its name, and its lifetime.

Only the tensors with which the step begins are kept alive, since lifetimes are part of the record.
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

# Results smaller than this stay in the caches.
_LARGE_BYTES = 1 << 16


@dataclass(slots=True)
class _Storage:
    """A tensor storage, and the ``names`` of recorded values that view it, by :func:`_view`.

    ``external`` storages existed before the step; ``latest`` is the value last written to it.
    """

    ref: StorageWeakRef
    name: str
    external: bool
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    latest: str = ""

    @property
    def lives(self) -> bool:
        """Whether a tensor still refers to the storage."""
        return self.external or not self.ref.expired()


class RecordedValues:
    """The values of a step of the program ``entry``.

    ``types`` are their types by name, ``begins`` the tensors with which the step begins.
    """

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._storages: dict[int, _Storage] = {}
        self._alive: dict[int, _Storage] = {}
        self._names: set[str] = set()
        self.types: dict[str, onnx.ValueInfoProto] = {}
        self.begins: dict[str, torch.Tensor] = {}

    def __contains__(self, tensor: torch.Tensor) -> bool:
        """Whether the storage of ``tensor`` is known."""
        return storage_key(tensor) in self._storages

    def add_external(self, tensor: torch.Tensor, name: str) -> None:
        """Add a tensor that exists before the step."""
        self._storage(tensor, name)

    def name_of(self, tensor: torch.Tensor) -> str:
        """Return the value in a tensor; empty for a new view of a storage made in the step.

        A tensor of an unknown storage is one with which the step begins.
        """
        storage, view = self._storage(tensor, None, external=True), _view(tensor)
        if view not in storage.names and storage.external:
            name = self.unique_name(storage.name)
            storage.names[view] = name
            self.declare(name, tensor)
            self.begins[name] = tensor.detach()
        return storage.names.get(view, "")

    def base(self, tensor: torch.Tensor) -> str:
        """Return a value of the same storage and type as a tensor without a value."""
        name = next(iter(self._storage(tensor, None).names.values()))
        if self.shape_of(name)[1] != tensor.dtype:
            raise BackendError(
                f"{self._entry}: a value of type {self.shape_of(name)[1]} is read as"
                f" {tensor.dtype}, which cannot be replayed"
            )
        return name

    def add_result(self, tensor: torch.Tensor, stem: str, *, wrote: bool) -> str:
        """Name a new value after ``stem``: a result, or the contents of a written argument.

        A result that the call has not written is a view of an argument.
        """
        storage = self._storage(tensor, None)
        name = self.unique_name(stem)
        storage.names[_view(tensor)] = name
        if wrote:
            storage.latest = name
        self.declare(name, tensor)
        return name

    def latest(self, tensor: torch.Tensor) -> str:
        """Return the value in a tensor; empty if no call made it."""
        storage = self._storages.get(storage_key(tensor))
        name = "" if storage is None else storage.names.get(_view(tensor), "")
        return "" if name in self.begins else name

    def living(self) -> list[str]:
        """Return the values last written to storages that still live."""
        return [s.latest for s in self._storages.values() if s.latest and s.lives]

    def freed(self) -> list[str]:
        """Return the values of storages that were freed since the last call of this method."""
        gone = [key for key, storage in self._alive.items() if not storage.lives]
        return [name for key in gone for name in self._alive.pop(key).names.values()]

    def unique_name(self, stem: str) -> str:
        """Return a name after ``stem`` that no other value has."""
        name, count = stem, 1
        while name in self._names:
            count += 1
            name = f"{stem}@{count}"
        self._names.add(name)
        return name

    def declare(self, name: str, tensor: torch.Tensor) -> None:
        """Note the type of the value ``name``."""
        dtype = ONNX_DTYPES.get(tensor.dtype)
        if dtype is None:
            raise BackendError(
                f"{self._entry}: a value is of type {tensor.dtype}, which cannot be replayed"
            )
        number = TensorProto.DataType.Value(dtype)
        self.types[name] = helper.make_tensor_value_info(name, number, list(tensor.shape))

    def shape_of(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Return shape and type of the value ``name``."""
        tensor = self.types[name].type.tensor_type
        dtype = TensorProto.DataType.Name(tensor.elem_type)
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        return shape, getattr(torch, TORCH_DTYPES[dtype])

    def large(self, name: str) -> bool:
        """Whether the value ``name`` is too large for the caches of a core."""
        shape, dtype = self.shape_of(name) if name else ((), torch.bool)
        return bool(math.prod(shape) * dtype.itemsize >= _LARGE_BYTES)

    def weights_and_integers(self, known: Collection[str]) -> tuple[list[TensorProto], list[str]]:
        """Divide the tensors of the step's begin, except ``known``: weights, names of integers."""
        weights, integers = [], []
        for name, tensor in self.begins.items():
            if name in known:
                continue
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                weights.append(_weight(self.types[name]))
            else:
                integers.append(name)
        return weights, integers

    def _storage(
        self, tensor: torch.Tensor, name: str | None, *, external: bool = False
    ) -> _Storage:
        key = storage_key(tensor)
        storage = self._storages.get(key)
        if storage is None:
            external = external or name is not None
            title = name or (f"constant{len(self._storages)}" if external else "")
            ref = StorageWeakRef(tensor.untyped_storage())
            storage = self._storages[key] = _Storage(ref, title, external)
            if not external:
                self._alive[key] = storage
        return storage


def _view(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the key of a tensor among the views of its storage."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _weight(info: onnx.ValueInfoProto) -> TensorProto:
    tensor = info.type.tensor_type
    weight = TensorProto(name=info.name, data_type=tensor.elem_type)
    weight.dims.extend(d.dim_value for d in tensor.shape.dim)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight
