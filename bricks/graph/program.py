"""Recorded programs: calls of PyTorch's operators as nodes of an ONNX graph.

PyTorch runs a model by calling operators of its library ATen one after the other: those of the
forward pass, of the backward pass and of the optimiser. A recorded program holds these calls, so
that everything that reads graphs reads programs too. A node is a call: its domain names the
operator's library and its type the operator with its overload (``add_.Tensor``). Inputs are the
tensors among the arguments, and last, if there are any, the numbers whose value does not change
the work. Outputs are the tensors that the call returns, and then those that it writes to without
returning them. Attributes have the rest:

* ``call``: the arguments as JSON ``[positional, named]``, with ``{"t": k}`` for input k and
  ``{"s": k}`` for number k of the last input;
* ``layout``, where an input is not contiguous, does not begin its storage, or shares a storage with
  another: for each tensor ``[storage, offset, strides]`` in elements, storages numbered in order of
  their first use;
* ``aliases``, where an output shares a storage with an input: the input's position for each
  output, or -1;
* ``zeros``, of programs that an earlier version recorded: for each input, how many eighths of it
  hold zeros, for which some operators take longer;
* ``training``, of calls in the forward pass of a training step with large results: since results
  are kept there, others get memory that is in no cache, and the same call takes longer.

Where the values of an input decide how long a call takes, the program's metadata hold a sketch of
them, as those of bricks do (see ``graph.sketch``).

Here because cutting, sizes and memory read programs too. Must not import PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import onnx
from onnx import helper

from bricks.errors import ModelError
from bricks.graph.form import DOMAIN

# The namespace of no library: steps that the backend makes itself, with and without other ranks.
REPLICATED = "replicated"
# The key of metadata that says where a program comes from; see :class:`Origin`.
ORIGIN = "bricks.program"
# The key of metadata that says what a step begins with and leaves; see :class:`State`.
STATE = "bricks.state"
# The key of metadata that says which tensors a module has; see :class:`ModuleTensors`.
MODULE = "bricks.module"
# Keys of a node's metadata: the phase of the step, and the values that are gone after the call.
PHASE, FREED = "phase", "freed"

# In place of a tensor that C++ code leaves undefined, which Python cannot.
UNDEFINED: Mapping[str, Any] = {"undefined": True}

# Types of PyTorch by the names of their ONNX counterparts.
TORCH_DTYPES: Mapping[str, str] = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BFLOAT16": "bfloat16",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "UINT8": "uint8",
    "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "BOOL": "bool",
    "COMPLEX64": "complex64", "COMPLEX128": "complex128", "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Port:
    """The view of a storage that an input of a call is: storage number, offset and strides.

    In elements; offsets are those among the tensors of the call with the same storage.
    """

    storage: int
    offset: int
    strides: tuple[int, ...]

    def to_json(self) -> list[Any]:
        """``[storage, offset, strides]``."""
        return [self.storage, self.offset, list(self.strides)]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> Port:
        """The inverse of :meth:`to_json`."""
        storage, offset, strides = data
        return cls(storage, offset, tuple(strides))


@dataclass(frozen=True, slots=True)
class Call:
    """A call of ``operator`` (``add_.Tensor``) in ``namespace`` (``aten``).

    ``arguments`` are positional and named ones as the JSON of the module's docstring. ``ports`` is
    empty where every tensor is contiguous and has a storage of its own; ``aliases`` where no output
    shares a storage with an input; ``zeros`` in all that is recorded now.
    """

    namespace: str
    operator: str
    arguments: tuple[list[Any], dict[str, Any]]
    ports: tuple[Port, ...] = ()
    aliases: tuple[int, ...] = ()
    zeros: tuple[int, ...] = ()

    def node(self, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
        """The node of this call, with the names of its values."""
        node = helper.make_node(
            self.operator, inputs, outputs, domain=DOMAIN + self.namespace,
            call=json.dumps(self.arguments, separators=(",", ":")),
        )  # fmt: skip
        if self.ports:
            layout = json.dumps([port.to_json() for port in self.ports], separators=(",", ":"))
            node.attribute.append(helper.make_attribute("layout", layout))
        if self.aliases:
            node.attribute.append(helper.make_attribute("aliases", list(self.aliases)))
        return node


def is_call(node: onnx.NodeProto) -> bool:
    """Whether a node is a call of a recorded program."""
    return bool(node.domain.startswith(DOMAIN))


def call_of(node: onnx.NodeProto) -> Call:
    """The call that a node is; :class:`ModelError` where its attributes say none."""
    given = {a.name: a for a in node.attribute}
    try:
        positional, named = json.loads(given["call"].s)
        layout = json.loads(given["layout"].s) if "layout" in given else []
        ports = tuple(map(Port.from_json, layout))
        if not isinstance(positional, list) or not isinstance(named, dict):
            raise TypeError("the arguments are no list and object")
    except (KeyError, ValueError, TypeError) as exc:
        raise ModelError(f"a node of {node.domain} {node.op_type!r} is no call: {exc}") from exc
    aliases = tuple(given["aliases"].ints) if "aliases" in given else ()
    zeros = tuple(given["zeros"].ints) if "zeros" in given else ()
    namespace = node.domain.removeprefix(DOMAIN)
    return Call(namespace, node.op_type, (positional, named), ports, aliases, zeros)


def leaves(arguments: Any) -> Iterator[Any]:
    """The parts of a call's arguments that are no lists, in order."""
    if isinstance(arguments, list | tuple):
        for each in arguments:
            yield from leaves(each)
    elif isinstance(arguments, dict) and not len(arguments) == 1:
        for each in arguments.values():
            yield from leaves(each)
    else:
        yield arguments


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides in elements of a contiguous tensor of this shape."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a program: ``entry`` is ``FILE.py:FUNCTION`` or ``module:FUNCTION``.

    ``entry`` is empty where the code did not travel with the program. ``folder`` is what relative
    files start from, the zoo's if it is empty, ``options`` the function's arguments, ``kind``
    whether it is inference or a training step, ``version`` PyTorch's, and ``runtime`` the one whose
    calls these are; empty in what was recorded while there was only one.
    """

    entry: str
    folder: str
    kind: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)
    runtime: str = ""

    def note(self, proto: onnx.ModelProto) -> None:
        """Write it into a model's metadata."""
        facts = {
            "entry": self.entry, "folder": self.folder, "kind": self.kind,
            "version": self.version, "options": dict(self.options), "runtime": self.runtime,
        }  # fmt: skip
        proto.metadata_props.add(key=ORIGIN, value=json.dumps(facts))


def leave_out_code(proto: onnx.ModelProto) -> None:
    """Keep of a program's origin only what it is, and not where its code lies."""
    origin = origin_of(proto)
    if origin is not None:
        for entry in [e for e in proto.metadata_props if e.key == ORIGIN]:
            proto.metadata_props.remove(entry)
        Origin("", "", origin.kind, origin.version, {}, origin.runtime).note(proto)


def origin_of(proto: onnx.ModelProto) -> Origin | None:
    """The origin of a program; None for bricks, and for models that are no programs."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == ORIGIN]
    return _told(Origin, texts[-1]) if texts else None


@dataclass(frozen=True, slots=True)
class State:
    """The state of a module: ``sizes_bytes`` of its memory before a step, by role.

    ``gradients`` are the names of the values that are the parameters' gradients after it.
    """

    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    gradients: Sequence[str] = ()

    def note(self, proto: onnx.ModelProto) -> None:
        """Write it into a program's metadata."""
        facts = {"sizes_bytes": dict(self.sizes_bytes), "gradients": list(self.gradients)}
        proto.metadata_props.add(key=STATE, value=json.dumps(facts))


def state_of(proto: onnx.ModelProto) -> State:
    """Read the inverse of :meth:`State.note` from a program's metadata."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == STATE]
    return _told(State, texts[-1]) if texts else State()


@dataclass(frozen=True, slots=True)
class ModuleTensors:
    """The tensors of a module that the ranks of a training keep equal.

    ``parameters`` are the names of the trainable ones in the order of their registration, each with
    whether a step gives it a gradient; those that have one are in the order of
    :attr:`State.gradients`. ``buffers_bytes`` are the bytes of buffers by their type of numbers, by
    PyTorch's name for it.
    """

    parameters: Sequence[tuple[str, bool]]
    buffers_bytes: Mapping[str, int]

    def note(self, proto: onnx.ModelProto) -> None:
        """Write it into a program's metadata."""
        facts = {
            "parameters": [list(each) for each in self.parameters],
            "buffers_bytes": dict(self.buffers_bytes),
        }
        proto.metadata_props.add(key=MODULE, value=json.dumps(facts))

    @property
    def unused(self) -> tuple[str, ...]:
        """The trainable parameters that get no gradient."""
        return tuple(name for name, used in self.parameters if not used)


def module_of(proto: onnx.ModelProto) -> ModuleTensors | None:
    """Read the inverse of :meth:`ModuleTensors.note` from a program's metadata.

    None for programs that were recorded by an earlier version.
    """
    texts = [entry.value for entry in proto.metadata_props if entry.key == MODULE]
    if not texts:
        return None
    found = _told(ModuleTensors, texts[-1])
    try:
        parameters = tuple((str(name), bool(used)) for name, used in found.parameters)
        sizes = {str(dtype): int(size) for dtype, size in found.buffers_bytes.items()}
        if any(size < 0 for size in sizes.values()):
            raise ValueError("a buffer has less than no bytes")
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(f"what a recorded program says of its module is wrong: {exc}") from exc
    return ModuleTensors(parameters, sizes)


_Told = TypeVar("_Told", Origin, State, ModuleTensors)


def _told(kind: type[_Told], text: str) -> _Told:
    try:
        return kind(**json.loads(text))
    except (ValueError, TypeError) as exc:
        raise ModelError(f"what a recorded program says of itself cannot be read: {exc}") from exc
