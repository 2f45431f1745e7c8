"""The values of a recorded step: the tensors that hold each, its name, and its lifetime.

Only the tensors with which the step begins are kept alive, since lifetimes are part of the record.
Calls whose time depends on what they read have a sketch of it (see ``operators.dependence`` and
``graph.sketch``).

States of the random number generator are values too (:class:`GeneratorStates`). Dropout draws the
same mask when activations are recomputed, since checkpointing saves the state of the generator and
restores it. No dispatcher sees that, but the state changes between two calls. So saving and
restoring are recorded as calls of their own, and a replay draws the same numbers.

Must not know which calls make values, nor how other calls are recorded.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper
from torch.multiprocessing.reductions import StorageWeakRef

from bricks.backends.torch.call_data import GENERATOR, GET_STATE
from bricks.backends.torch.calls import storage_key
from bricks.backends.torch.cut import bounds_of, tensor_types
from bricks.backends.torch.entry import Program
from bricks.backends.torch.synthetic_tensors import fill, numbers_of
from bricks.errors import BackendError
from bricks.graph.call import BUFFERS, INPUTS, OPTIMIZER, PARAMETERS
from bricks.graph.program import PHASE, TORCH_DTYPES, Call, ModuleTensors
from bricks.graph.sketch import Sketch
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.operators.dependence import dependent_arguments
from bricks.operators.registry import operator_of

# The names of element types in ONNX.
ONNX_DTYPES = {getattr(torch, name): dtype for dtype, name in TORCH_DTYPES.items()}

# Results smaller than this stay in the caches.
_LARGE_BYTES = 1 << 16


def synthetic(type_: TensorType, bound: int | None) -> np.ndarray:
    """Return an array of the values that :func:`fill` writes to a tensor of a type."""
    made = torch.empty(type_.shape, dtype=getattr(torch, TORCH_DTYPES[type_.dtype]))
    fill(made, torch.Generator().manual_seed(0), bound)
    return numbers_of(made)


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
                type_ = self.types[name].type.tensor_type
                weight = TensorProto(name=name, data_type=type_.elem_type)
                weight.dims.extend(d.dim_value for d in type_.shape.dim)
                weight.data_location = TensorProto.EXTERNAL
                weight.external_data.add(key="location", value="weights")
                weights.append(weight)
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
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def program_tensors(program: Program) -> dict[str, dict[str, torch.Tensor]]:
    """Return the tensors that live between steps, by role and name."""
    parameters = dict(program.module.named_parameters())
    title = {id(tensor): name for name, tensor in parameters.items()}
    state: dict[str, torch.Tensor] = {}
    if program.optimizer is not None:
        for tensor, values in program.optimizer.state.items():
            owner = title.get(id(tensor), "parameter")
            state |= {f"{owner}.{k}": v for k, v in values.items() if isinstance(v, torch.Tensor)}
    return {
        INPUTS: {f"input{number}": tensor for number, tensor in enumerate(program.inputs)},
        PARAMETERS: parameters,
        BUFFERS: dict(program.module.named_buffers()),
        OPTIMIZER: state,
    }


def sizes_bytes(tensors: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, int]:
    """Return the bytes of storages by role; a shared storage counts once."""
    seen: set[int] = set()
    sizes = {}
    for role, named in tensors.items():
        new = {
            storage_key(t): t.untyped_storage().nbytes()
            for t in named.values()
            if storage_key(t) not in seen
        }
        seen |= new.keys()
        sizes[role] = sum(new.values())
    return sizes


def module_tensors(module: torch.nn.Module, gradients: Mapping[str, str]) -> ModuleTensors:
    """Return the facts of ``module``; ``gradients`` are values by parameter, empty for none."""
    buffers: Counter[str] = Counter()
    for buffer in module.buffers():
        buffers[TORCH_DTYPES[ONNX_DTYPES[buffer.dtype]]] += buffer.nbytes
    return ModuleTensors([(name, bool(value)) for name, value in gradients.items()], buffers)


class SketchedValues:
    """Collects sketches of values, by their names."""

    def __init__(self) -> None:
        self._facts: dict[str, frozenset[str]] = {}
        self._sketches: dict[str, Sketch] = {}

    def read_by(self, node: onnx.NodeProto, tensors: Mapping[str, torch.Tensor]) -> None:
        """Sketch the inputs of a call before it runs; ``tensors`` are its inputs by name."""
        if not operator_of(node).values:
            return  # types take longer than this
        types = {
            name: TensorType(ONNX_DTYPES[t.dtype], tuple(t.shape)) for name, t in tensors.items()
        }
        for name, facts in dependent_arguments(node, types):
            # A value has one sketch, of the features that count for any call.
            known = self._facts.get(name, frozenset())
            if not known.issuperset(facts):
                self._facts[name] = known.union(facts)
                self._sketches[name] = Sketch.of(numbers_of(tensors[name]), self._facts[name])

    def unlike_synthetic(self, program: onnx.ModelProto) -> dict[str, Sketch]:
        """Return the sketches that differ from the synthetic values of the program's bricks."""
        types = tensor_types(graph_of(program).types)
        bounds: dict[str, int] = {}
        for node in program.graph.node:
            bounds |= bounds_of(node, types)
        unlike = {}
        for name, sketch in self._sketches.items():
            kept = sketch.differing_from(synthetic(types[name], bounds.get(name)))
            if kept is not None:
                unlike[name] = kept
        return unlike


@dataclass(slots=True)
class GeneratorState:
    """A state that the step was in ``after`` the call with this number; -1: when it began.

    ``external`` states were made outside of the step. ``name`` is the recorded value of a restored
    state, ``restored`` the number of the last call that restores it.
    """

    after: int = -1
    external: bool = False
    name: str = ""
    restored: int = -1


class GeneratorStates:
    """The states of PyTorch's default generator in a step, by their digests."""

    def __init__(self) -> None:
        self._latest = _digest(torch.get_rng_state())
        self._states = {self._latest: GeneratorState()}

    def note_drawn(self, call: int) -> None:
        """Note the state after the call with this number, if the call has drawn numbers."""
        digest = _digest(torch.get_rng_state())
        if digest == self._latest:
            return
        self._latest = digest
        if digest not in self._states or not self._states[digest].name:
            self._states[digest] = GeneratorState(call)

    def changed(self) -> GeneratorState | None:
        """Return the state that the generator was put into since the last call; None if none."""
        digest = _digest(torch.get_rng_state())
        if digest == self._latest:
            return None
        self._latest = digest
        return self._states.setdefault(digest, GeneratorState(external=True))

    @property
    def saved(self) -> list[GeneratorState]:
        """The states that calls of the step save and restore."""
        return [s for s in self._states.values() if s.name and not s.external]

    def with_saves(self, calls: Sequence[onnx.NodeProto]) -> list[onnx.NodeProto]:
        """Return ``calls`` with those that save a state, each after the call that leads to it."""
        nodes = list(calls)
        for state in sorted(self.saved, key=lambda each: -each.after):
            phase = next(
                note.value
                for note in calls[max(0, state.after)].metadata_props
                if note.key == PHASE
            )
            node = Call(GENERATOR, GET_STATE, ([], {})).node([], [state.name])
            node.metadata_props.add(key=PHASE, value=phase)
            nodes.insert(state.after + 1, node)
        return nodes


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(state.numpy().tobytes()).hexdigest()
