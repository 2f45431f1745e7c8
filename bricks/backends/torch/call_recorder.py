"""Record one step of a program as a graph of ATen calls.

A dispatch mode sees every call that reaches an operator which really computes: of the forward pass,
of the backward pass (whose calls autograd makes in C++), and of the optimiser. The recorder keeps
no tensor alive, since what dies when is part of the record. Must not know how calls are timed.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import onnx
import torch
from onnx import TensorProto, helper
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from bricks.backends.torch.call_arguments import ArgumentWriter, indifferent, storage_key
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.generator_states import (
    GENERATOR,
    GET_STATE,
    SET_STATE,
    Change,
    GeneratorStates,
)
from bricks.backends.torch.recomputation import RECOMPUTATION, recomputation_watched
from bricks.backends.torch.replay import KERNEL, refuse_foreign, tensors_in
from bricks.backends.torch.sketching import SketchedValues
from bricks.errors import BackendError
from bricks.graph.model_metadata import note_sketches
from bricks.graph.program import (
    FREED,
    PHASE,
    TORCH_DTYPES,
    Call,
    ModuleTensors,
    Origin,
    State,
)
from bricks.graph.program_phases import BUFFERS, FORWARD, INPUTS, OPTIMIZER, PARAMETERS

_DTYPES = {getattr(torch, name): onnx_name for onnx_name, name in TORCH_DTYPES.items()}

# Steps before the one that is recorded: the first makes the optimiser's state.
WARM_UP = 2

# Calls of these namespaces compute nothing.
_IDLE = frozenset({"profiler"})

# Smaller results are in the caches anyway.
_LARGE_BYTES = 1 << 16


@dataclass(slots=True)
class _Storage:
    """A storage that was met: ``names`` of the values in it, by what of it they show."""

    ref: StorageWeakRef
    name: str
    external: bool
    names: dict[tuple[Any, ...], str] = field(default_factory=dict)
    latest: str = ""


@dataclass(frozen=True, slots=True)
class Recorded:
    """The graph of a step; ``values`` are the tensors that it begins with, by name."""

    proto: onnx.ModelProto
    values: Mapping[str, torch.Tensor]


def record(program: Program, origin: Origin, seed: int) -> Recorded:
    """The calls of one step, after a few steps to warm up.

    Raises :class:`BackendError` if two steps in a row do not make the same calls, and for calls
    that cannot be replayed; both name the call.
    """
    with users_errors(program.entry):
        torch.manual_seed(seed)
        for _ in range(WARM_UP):
            program.step()
        first, again = _recorded(program), _recorded(program)
    _refuse_change(program.entry, first, again)
    proto = again.model(origin)
    return Recorded(proto, again.begins)


def _recorded(program: Program) -> Recorder:
    recorder = Recorder(program, SketchedValues())
    with recorder, recorder.watching():
        result = program.step(recorder.mark)
        recorder.finish(program.module)
    del result
    return recorder


def _refuse_change(entry: str, first: Recorder, again: Recorder) -> None:
    for number, (a, b) in enumerate(zip(first.nodes, again.nodes, strict=False)):
        if _asked(a) != _asked(b):
            raise BackendError(
                f"{entry} keeps state between steps: call {number} was {a.op_type} and is"
                f" {b.op_type} in the next step, or its arguments differ: make every step the same"
            )
    if len(first.nodes) != len(again.nodes):
        raise BackendError(
            f"{entry} keeps state between steps: one makes {len(first.nodes)} calls and the next"
            f" {len(again.nodes)}: make every step the same"
        )


def _asked(node: onnx.NodeProto) -> tuple[Any, ...]:
    """What a call asks for, whatever its inputs hold."""
    return node.op_type, node.domain, node.input, node.attribute


def held_by(program: Program) -> dict[str, dict[str, torch.Tensor]]:
    """Tensors that the program holds between steps, by role and name."""
    parameters = dict(program.module.named_parameters())
    title = {id(tensor): name for name, tensor in parameters.items()}
    state: dict[str, torch.Tensor] = {}
    if program.optimizer is not None:
        for tensor, held in program.optimizer.state.items():
            of = title.get(id(tensor), "parameter")
            state |= {f"{of}.{k}": v for k, v in held.items() if isinstance(v, torch.Tensor)}
    return {
        INPUTS: {f"input{number}": tensor for number, tensor in enumerate(program.inputs)},
        PARAMETERS: parameters,
        BUFFERS: dict(program.module.named_buffers()),
        OPTIMIZER: state,
    }


def _sizes_bytes(held: Mapping[str, Mapping[str, torch.Tensor]]) -> dict[str, int]:
    """Bytes of memory by role; what several tensors share counts once."""
    seen: set[int] = set()
    sizes = {}
    for role, named in held.items():
        new = {
            storage_key(t): t.untyped_storage().nbytes()
            for t in named.values()
            if storage_key(t) not in seen
        }
        seen |= new.keys()
        sizes[role] = sum(new.values())
    return sizes


def _module_tensors(module: torch.nn.Module, gradients: Mapping[str, str]) -> ModuleTensors:
    """The facts of ``module``, whose parameters have ``gradients`` by name, or an empty one."""
    buffers: Counter[str] = Counter()
    for buffer in module.buffers():
        buffers[TORCH_DTYPES[_DTYPES[buffer.dtype]]] += buffer.nbytes
    return ModuleTensors([(name, bool(value)) for name, value in gradients.items()], buffers)


class Recorder(TorchDispatchMode):
    """Records calls while it is active. ``nodes`` are the calls so far.

    With ``sketched``, so are sketches of the values that decide how long calls take.
    """

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Compiled code stays compiled under this mode: what it calls is seen all the same."""
        return True

    def __init__(self, program: Program, sketched: SketchedValues | None = None) -> None:
        super().__init__()
        self._sketched = sketched
        self._compiled = program.compiled is not None
        self._training = program.optimizer is not None
        self._entry = program.entry
        self._phase = ""
        self._storages: dict[int, _Storage] = {}
        self._types: dict[str, onnx.ValueInfoProto] = {}
        self._taken: set[str] = set()
        self._inputs: list[str] = []
        self._alive: dict[int, _Storage] = {}
        self._outputs: list[str] = []
        self._gradients: list[str] = []
        self._module: ModuleTensors | None = None
        self.nodes: list[onnx.NodeProto] = []
        self.begins: dict[str, torch.Tensor] = {}
        self._scalars: dict[str, list[float]] = {}
        self._generator = GeneratorStates()
        # Values that are states of the generator, by their digests; those to be saved, by the call
        # after which (None: before the first); and the last call that restores each.
        self._states: dict[str, str] = {}
        self._saved: list[tuple[onnx.NodeProto | None, str]] = []
        self._restored: dict[str, onnx.NodeProto] = {}
        held = held_by(program)
        self._sizes_bytes = _sizes_bytes(held)
        for role, named in held.items():
            for name, tensor in named.items():
                self._meet(tensor, name)
                if role == INPUTS:
                    self._inputs.append(self._name(tensor))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Meanwhile, checkpointed layers and kernels of compiled code are recorded too."""
        with ExitStack() as watches:
            watches.enter_context(recomputation_watched(self._checkpointed, self._calls))
            if self._compiled:
                from bricks.backends.torch.kernels import watched  # it takes long to import

                watches.enter_context(watched(self.kernel))
            yield

    def _calls(self) -> int:
        return len(self.nodes)

    def _checkpointed(self, operator: str, calls: int, reentrant: bool) -> None:
        self._append(Call(RECOMPUTATION, operator, ([calls, reentrant], {})), [], [])

    def mark(self, phase: str) -> None:
        """The calls from now on belong to ``phase``."""
        self._phase = phase

    @property
    def numbers(self) -> Mapping[str, Sequence[float]]:
        """The numbers among the arguments that do not change the work, by name."""
        return self._scalars

    def latest(self, tensor: torch.Tensor) -> str:
        """The value of the graph that a tensor shows; empty if no call made it."""
        found = self._storages.get(storage_key(tensor))
        name = "" if found is None else found.names.get(_view(tensor), "")
        return "" if name in self.begins else name

    def finish(self, module: torch.nn.Module | None = None) -> None:
        """The step has ended, and its results are still there: they are outputs of the graph.

        ``module`` is the one whose parameters have gradients now.
        """
        self._bury()
        self._outputs = [s.latest for s in self._storages.values() if s.latest and self._lives(s)]
        if module is None:
            return
        made = {name: self._gradient(p) for name, p in module.named_parameters() if p.requires_grad}
        self._gradients = [value for value in made.values() if value]
        self._module = _module_tensors(module, made)

    def _gradient(self, parameter: torch.nn.Parameter) -> str:
        """The value that a parameter's gradient is; empty if the step made none."""
        return "" if parameter.grad is None else self.latest(parameter.grad)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace in _IDLE:
            return func(*args, **kwargs)
        self._bury()
        refuse_foreign(func)
        change = self._generator.change()
        if change is not None:
            self._restore(change)
        call = ArgumentWriter(self, func._schema.arguments, str(func), indifferent(func))
        arguments = call.argument(list(args)), call.argument(dict(kwargs), top=True)
        operator = f"{func._opname}.{func._overloadname}".removesuffix(".default")
        if self._sketched is not None:
            node = Call(func.namespace, operator, arguments).node(call.inputs, [])
            self._sketched.read_by(node, dict(zip(call.inputs, call.tensors, strict=True)))
        result = func(*args, **kwargs)
        self._note(func.namespace, operator, call, arguments, result)
        self._generator.drawn(self.nodes[-1])
        return result

    def _restore(self, change: Change) -> None:
        """Record that the step has put the generator into another state."""
        name = self._states.get(change.digest, "")
        if not name and change.known:
            name = self._free_name(f"state_{len(self.nodes)}")
            self._declare(name, change.state)
            self._saved.append((change.call, name))
        elif not name:
            name = self.value(change.state, SET_STATE)
        self._states[change.digest] = name
        self._append(Call(GENERATOR, SET_STATE, ([{"t": 0}], {})), [name], [])
        self._restored[name] = self.nodes[-1]

    def kernel(self, key: str, types: Sequence[str], arguments: Sequence[Any]) -> None:
        """Record a call of a compiled kernel, which writes to what is not constant."""
        self._bury()
        call = ArgumentWriter(self, (), f"the compiled kernel {key}", False)
        told = call.of_kernel(types, arguments)
        self._note(KERNEL, KERNEL, call, (told, {"key": key}), ())

    def allocated(self, tensor: torch.Tensor) -> None:
        """Record that compiled code has allocated a tensor, which no dispatcher sees."""
        if not self._compiled or storage_key(tensor) in self._storages:
            return
        call = ArgumentWriter(self, (), "empty_strided", False)
        facts = {"dtype": {"dtype": str(tensor.dtype).removeprefix("torch.")}}
        shape = [list(tensor.shape), list(tensor.stride())], facts
        self._note("aten", "empty_strided", call, shape, tensor)

    def _note(
        self, namespace: str, operator: str, call: ArgumentWriter, arguments: Any, result: Any
    ) -> None:
        inputs, ports = list(call.inputs), call.ports()
        storages = [storage_key(tensor) for tensor in call.tensors]
        outputs, aliases = [], []
        returned = list(tensors_in(result))
        for tensor in returned:
            if tensor is not None:
                self._refuse_special(tensor, f"{namespace}.{operator}", "makes")
            alias = _position(storages, tensor)
            wrote = alias < 0 or any(tensor is each for each in call.written)
            outputs.append("" if tensor is None else self._made(operator, tensor, wrote))
            aliases.append(alias)
        for tensor in call.written:
            if not any(tensor is each for each in returned):
                outputs.append(self._made(operator, tensor, True))
                aliases.append(_position(storages, tensor))
        if call.scalars:
            name = f"numbers{len(self._scalars)}"
            self._scalars[name] = call.scalars
            inputs.append(name)
        shared = tuple(aliases) if any(a >= 0 for a in aliases) else ()
        made = Call(namespace, operator, arguments, ports, shared)
        self._append(made, inputs, outputs)

    def _made(self, operator: str, tensor: torch.Tensor, wrote: bool) -> str:
        """A new value: a result, or what an argument holds after the call ``wrote`` to it.

        A result that was not written is a view of an argument.
        """
        storage = self._meet(tensor, None)
        name = self._free_name(f"{operator.partition('.')[0]}_{len(self.nodes)}")
        storage.names[_view(tensor)] = name
        if wrote:
            storage.latest = name
        self._declare(name, tensor)
        return name

    def value(self, tensor: torch.Tensor, operator: str) -> str:
        """The name of the value that an argument is."""
        self._refuse_special(tensor, operator, "takes")
        return self._name(tensor)

    def _refuse_special(self, tensor: torch.Tensor, operator: str, does: str) -> None:
        if tensor.layout != torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            kind = tensor.device.type if tensor.device.type != "cpu" else str(tensor.layout)
            raise BackendError(
                f"{self._entry}: {operator} {does} a tensor on {kind}, which cannot be replayed:"
                " use dense tensors on the CPU"
            )

    def _name(self, tensor: torch.Tensor) -> str:
        storage = self._meet(tensor, None, external=True)
        view = _view(tensor)
        if view not in storage.names:
            if not storage.external:
                self._reinterpret(storage, tensor)
                return storage.names[view]
            name = self._free_name(storage.name)
            storage.names[view] = name
            self._declare(name, tensor)
            self.begins[name] = tensor.detach()
        return storage.names[view]

    def _reinterpret(self, storage: _Storage, tensor: torch.Tensor) -> None:
        """Record that a tensor shows what no value of its storage shows, by a call that does so."""
        base = next(iter(storage.names.values()))
        if self.shape_of(base)[1] != tensor.dtype:
            raise BackendError(
                f"{self._entry}: a value of type {self.shape_of(base)[1]} is read as"
                f" {tensor.dtype}, which cannot be replayed"
            )
        shows = [list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]
        output = self._made("as_strided", tensor, False)
        call = Call("aten", "as_strided", ([{"t": 0}, *shows], {}), aliases=(0,))
        self._append(call, [base], [output])

    def _append(self, call: Call, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        node = call.node(inputs, outputs)
        if self._training and self._phase == FORWARD and any(map(self._large, outputs)):
            node.attribute.append(helper.make_attribute("training", 1))
        node.metadata_props.add(key=PHASE, value=self._phase)
        self.nodes.append(node)

    def _meet(self, tensor: torch.Tensor, name: str | None, *, external: bool = False) -> _Storage:
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

    def _free_name(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}@{count}"
        self._taken.add(name)
        return name

    def _declare(self, name: str, tensor: torch.Tensor) -> None:
        dtype = _DTYPES.get(tensor.dtype)
        if dtype is None:
            raise BackendError(
                f"{self._entry}: a value is of type {tensor.dtype}, which cannot be replayed"
            )
        number = TensorProto.DataType.Value(dtype)
        self._types[name] = helper.make_tensor_value_info(name, number, list(tensor.shape))

    def _large(self, name: str) -> bool:
        shape, dtype = self.shape_of(name) if name else ((), torch.bool)
        return bool(math.prod(shape) * dtype.itemsize >= _LARGE_BYTES)

    def shape_of(self, name: str) -> tuple[tuple[int, ...], torch.dtype]:
        """Shape and type of the value called ``name``."""
        tensor = self._types[name].type.tensor_type
        dtype = TensorProto.DataType.Name(tensor.elem_type)
        shape = tuple(d.dim_value for d in tensor.shape.dim)
        return shape, getattr(torch, TORCH_DTYPES[dtype])

    def _bury(self) -> None:
        """Note the storages that are gone since the last call."""
        gone = [key for key, storage in self._alive.items() if not self._lives(storage)]
        freed = [name for key in gone for name in self._alive.pop(key).names.values()]
        if freed and self.nodes:
            _free(self.nodes[-1], freed)

    @staticmethod
    def _lives(storage: _Storage) -> bool:
        return storage.external or not storage.ref.expired()

    def model(self, origin: Origin | None) -> onnx.ModelProto:
        """The graph: inputs are the program's and those that hold integers, the rest is weights.

        ``origin`` is noted in it, if there is one.
        """
        inputs = [name for name in self._inputs if self._used(name)]
        weights = []
        for name, tensor in self.begins.items():
            if name in inputs:
                continue
            if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
                weights.append(_weight(self._types[name]))
            else:
                inputs.append(name)
        weights += [
            helper.make_tensor(name, TensorProto.DOUBLE, [len(held)], held)
            for name, held in self._scalars.items()
        ]
        outputs = list(dict.fromkeys(self._outputs))
        graph = helper.make_graph(
            self._with_saved_states(), "program", [self._types[n] for n in inputs],
            [self._types[n] for n in outputs], weights,
        )  # fmt: skip
        kept = {*inputs, *outputs, *self.begins}
        graph.value_info.extend(info for name, info in self._types.items() if name not in kept)
        domains = sorted({node.domain for node in self.nodes})
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid(d, 1) for d in domains], ir_version=10
        )
        if origin is not None:
            origin.note(model)
        State(self._sizes_bytes, self._gradients).note(model)
        if self._module is not None and self._training:
            self._module.note(model)
        if self._sketched is not None:
            note_sketches(model, self._sketched.unlike_synthetic(model))
        return model

    def _with_saved_states(self) -> list[onnx.NodeProto]:
        """The calls, and those that save a state of the generator which others restore."""
        saved: dict[int, list[onnx.NodeProto]] = {}
        for call, name in self._saved:
            node = Call(GENERATOR, GET_STATE, ([], {})).node([], [name])
            node.metadata_props.add(key=PHASE, value=_noted(call or self.nodes[0], PHASE))
            saved.setdefault(id(call), []).append(node)
            _free(self._restored[name], [name])
        found = saved.get(id(None), [])
        for node in self.nodes:
            found += [node, *saved.get(id(node), ())]
        return found

    def _used(self, name: str) -> bool:
        return name in self.begins


def _noted(node: onnx.NodeProto, key: str) -> str:
    return next((note.value for note in node.metadata_props if note.key == key), "")


def _free(node: onnx.NodeProto, names: Sequence[str]) -> None:
    """Note that the memory of the values called ``names`` is free after a call."""
    before = json.loads(_noted(node, FREED) or "[]")
    others = [note for note in node.metadata_props if note.key != FREED]
    del node.metadata_props[:]
    node.metadata_props.extend(others)
    freed = list(dict.fromkeys([*before, *names]))
    node.metadata_props.add(key=FREED, value=json.dumps(freed))


def _view(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What of its storage a tensor shows."""
    return tensor.storage_offset(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _position(storages: Sequence[int], tensor: torch.Tensor | None) -> int:
    key = None if tensor is None else storage_key(tensor)
    return storages.index(key) if key in storages else -1


def _weight(info: onnx.ValueInfoProto) -> TensorProto:
    tensor = info.type.tensor_type
    weight = TensorProto(name=info.name, data_type=tensor.elem_type)
    weight.dims.extend(d.dim_value for d in tensor.shape.dim)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight
