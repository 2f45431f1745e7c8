"""Recorded programs: calls of PyTorch's operators as nodes of an ONNX graph.

PyTorch runs a model by calling operators of its library ATen one after the other, in the forward
pass, the backward pass and the optimiser. A recorded program holds these calls as an ONNX graph, so
that readers of graphs read programs too. A node is a call: its domain names the operator's library
and its type the operator with its overload (``add_.Tensor``). Inputs are the tensors among the
arguments, and one last tensor of the numbers whose values do not change the work, if there are any.
Outputs are the tensors that the call returns, then tensors that it writes without returning them.
Attributes hold the rest:

* ``call``: the arguments as JSON ``[positional, named]``, with ``{"t": k}`` for input k and
  ``{"s": k}`` for number k of the last input;
* ``layout``, if an input is not contiguous, does not begin its storage, or shares a storage with
  another: for each tensor ``[storage, offset, strides]`` in elements, storages numbered in order of
  their first use;
* ``aliases``, if an output shares a storage with an input: the input's position for each
  output, or -1;
* ``zeros``, in programs that an earlier version recorded: for each input, the eighths of its
  elements that are zero, on which the time of some operators depends;
* ``host``, in programs of a GPU, if all tensors of the call lie on the host;
* ``training``, in calls with large results in the forward pass of a training step: results are
  kept for the backward pass, so each is allocated in memory outside the caches, which takes longer.

If the time of a call depends on the values of an input, the program's metadata holds a sketch of
the input, as in bricks (see ``graph.sketch``). Must not import PyTorch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

from bricks.errors import ModelError
from bricks.graph.call import ALL_BYTES as ALL_BYTES
from bricks.graph.call import ON_HOST, writes
from bricks.graph.call import UNDEFINED as UNDEFINED
from bricks.graph.call import Call as Call
from bricks.graph.call import Port as Port
from bricks.graph.call import contiguous as contiguous
from bricks.graph.call import evicted_share as evicted_share
from bricks.graph.call import leaves as leaves
from bricks.graph.form import DOMAIN
from bricks.graph.types import TensorType

if TYPE_CHECKING:
    import onnx

    from bricks.graph.types import ValueType

# Namespace of the backend's own calls: training steps in isolation and under data parallelism.
REPLICATED = "replicated"
# Key of metadata with the origin of a program; see :class:`Origin`.
ORIGIN = "bricks.program"
# Key of metadata with the memory of a module before a step; see :class:`State`.
STATE = "bricks.state"
# Key of metadata with the tensors of a module; see :class:`ModuleTensors`.
MODULE = "bricks.module"
# Namespace of calls by which the processes of a program exchange tensors.
COLLECTIVES = "_c10d_functional"
# Keys of a node's metadata: the phase of the step, and the values that are freed after the call.
PHASE, FREED = "phase", "freed"

# Names of PyTorch's dtypes by ONNX's names.
TORCH_DTYPES: Mapping[str, str] = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BFLOAT16": "bfloat16",
    "INT8": "int8", "INT16": "int16", "INT32": "int32", "INT64": "int64", "UINT8": "uint8",
    "UINT16": "uint16", "UINT32": "uint32", "UINT64": "uint64", "BOOL": "bool",
    "COMPLEX64": "complex64", "COMPLEX128": "complex128", "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2",
}  # fmt: skip


def is_call(node: onnx.NodeProto) -> bool:
    """Whether ``node`` is a call of a recorded program."""
    return bool(node.domain.startswith(DOMAIN))


def call_of(node: onnx.NodeProto) -> Call:
    """Read the call from a node's attributes; :class:`ModelError` if they are invalid."""
    attributes = {a.name: a for a in node.attribute}
    try:
        positional, named = json.loads(attributes["call"].s)
        layout = json.loads(attributes["layout"].s) if "layout" in attributes else []
        ports = tuple(map(Port.from_json, layout))
        if not isinstance(positional, list) or not isinstance(named, dict):
            raise TypeError("the arguments are no list and object")
    except (KeyError, ValueError, TypeError) as exc:
        raise ModelError(f"a node of {node.domain} {node.op_type!r} is no call: {exc}") from exc
    aliases = tuple(attributes["aliases"].ints) if "aliases" in attributes else ()
    zeros = tuple(attributes["zeros"].ints) if "zeros" in attributes else ()
    namespace = node.domain.removeprefix(DOMAIN)
    arguments = positional, named
    return Call(namespace, node.op_type, arguments, ports, aliases, zeros, ON_HOST in attributes)


@dataclass(frozen=True, slots=True)
class Origin:
    """Origin of a program: the function that made its module, and the PyTorch that recorded it.

    ``entry`` is ``FILE.py:FUNCTION`` or ``module:FUNCTION``, or empty if the code did not travel
    with the program; ``options`` are the function's arguments. Relative files start from
    ``folder``, or from the zoo's if it is empty. ``kind`` is inference or training step,
    ``version`` PyTorch's version, and ``runtime`` the runtime that recorded the calls; empty in
    programs of an earlier version, which had one such runtime.
    """

    entry: str
    folder: str
    kind: str
    version: str
    options: Mapping[str, Any] = field(default_factory=dict)
    runtime: str = ""

    def note(self, proto: onnx.ModelProto) -> None:
        """Write the origin into a model's metadata."""
        facts = {
            "entry": self.entry, "folder": self.folder, "kind": self.kind,
            "version": self.version, "options": dict(self.options), "runtime": self.runtime,
        }  # fmt: skip
        proto.metadata_props.add(key=ORIGIN, value=json.dumps(facts))


def strip_code_location(proto: onnx.ModelProto) -> None:
    """Remove the location of the code (entry, folder, options) from a program's origin."""
    origin = origin_of(proto)
    if origin is not None:
        for entry in [e for e in proto.metadata_props if e.key == ORIGIN]:
            proto.metadata_props.remove(entry)
        Origin("", "", origin.kind, origin.version, {}, origin.runtime).note(proto)


def origin_of(proto: onnx.ModelProto) -> Origin | None:
    """Read the origin of a program; None for bricks and for ONNX models."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == ORIGIN]
    return _from_json(Origin, texts[-1]) if texts else None


@dataclass(frozen=True, slots=True)
class State:
    """State of a module: bytes of its memory before a step, by role.

    ``gradients`` are the names of values that are gradients of the parameters after the step.
    """

    sizes_bytes: Mapping[str, int] = field(default_factory=dict)
    gradients: Sequence[str] = ()

    def note(self, proto: onnx.ModelProto) -> None:
        """Write the state into a program's metadata."""
        facts = {"sizes_bytes": dict(self.sizes_bytes), "gradients": list(self.gradients)}
        proto.metadata_props.add(key=STATE, value=json.dumps(facts))


def state_of(proto: onnx.ModelProto) -> State:
    """Read the state of a program's module; an empty one if none is noted."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == STATE]
    return _from_json(State, texts[-1]) if texts else State()


@dataclass(frozen=True, slots=True)
class ModuleTensors:
    """Tensors of a module that the ranks of a training keep equal.

    ``parameters`` are the trainable parameters in the order of registration, as (name, whether a
    step computes its gradient); parameters with gradients are in the order of
    :attr:`State.gradients`. ``buffers_bytes`` are the bytes of buffers by PyTorch's dtype.
    """

    parameters: Sequence[tuple[str, bool]]
    buffers_bytes: Mapping[str, int]

    def note(self, proto: onnx.ModelProto) -> None:
        """Write the tensors into a program's metadata."""
        facts = {
            "parameters": [list(parameter) for parameter in self.parameters],
            "buffers_bytes": dict(self.buffers_bytes),
        }
        proto.metadata_props.add(key=MODULE, value=json.dumps(facts))

    @property
    def unused(self) -> tuple[str, ...]:
        """The trainable parameters without a gradient."""
        return tuple(name for name, used in self.parameters if not used)


def module_of(proto: onnx.ModelProto) -> ModuleTensors | None:
    """Read the tensors of a program's module; None if an earlier version recorded it."""
    texts = [entry.value for entry in proto.metadata_props if entry.key == MODULE]
    if not texts:
        return None
    module = _from_json(ModuleTensors, texts[-1])
    try:
        parameters = tuple((str(name), bool(used)) for name, used in module.parameters)
        sizes = {str(dtype): int(size) for dtype, size in module.buffers_bytes.items()}
        if any(size < 0 for size in sizes.values()):
            raise ValueError("a buffer has less than no bytes")
    except (ValueError, TypeError, AttributeError) as exc:
        raise ModelError(f"what a recorded program says of its module is wrong: {exc}") from exc
    return ModuleTensors(parameters, sizes)


_Facts = TypeVar("_Facts", Origin, State, ModuleTensors)


def _from_json(kind: type[_Facts], text: str) -> _Facts:
    try:
        return kind(**json.loads(text))
    except (ValueError, TypeError) as exc:
        raise ModelError(f"what a recorded program says of itself cannot be read: {exc}") from exc


def touched_bytes(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int:
    """Return the bytes of the distinct tensors that a call reads or writes; 0 for a view."""
    call = call_of(node)
    sources = zip_longest(call.aliases[: len(node.output)], node.output, fillvalue=-1)
    allocated = {name for source, name in sources if source < 0 and name}
    if not allocated and call.namespace == "aten" and not writes(call.operator):
        return 0
    tensors = (types[name] for name in {*node.input, *allocated})
    return sum(tensor.size_bytes for tensor in tensors if isinstance(tensor, TensorType))
