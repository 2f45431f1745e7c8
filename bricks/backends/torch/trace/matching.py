"""The bricks that equal a traced call: operator, arguments, types, shapes and strides.

A profiler writes no texts, no types of tensors in lists, and no list of more than thirty entries.
Bricks that differ only there cannot be told apart by a trace alone. It writes neither devices nor
which tensors share memory; two bricks that differ in these take the samples of the same calls, and
so do bricks that differ in the values of tensors. Must not know where bricks come from.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bricks.backends.profiler_trace import (
    CallMatch,
    CallMatcher,
    TracedArgument,
    TracedCall,
    Unmatched,
)
from bricks.backends.torch.trace.signatures import Parameter, Signature, signatures
from bricks.graph.form import DOMAIN
from bricks.graph.program import TORCH_DTYPES, Call, call_of, contiguous, is_call
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, parse_model

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick

# Names of the types of elements, as C++ compilers write them, by PyTorch's.
_CPP_TYPES: Mapping[str, tuple[str, ...]] = {
    "float32": ("float",), "float64": ("double",), "float16": ("c10::Half",),
    "bfloat16": ("c10::BFloat16",), "int8": ("signed char",), "uint8": ("unsigned char",),
    "int16": ("short int", "short"), "int32": ("int",),
    "int64": ("long int", "long", "long long", "__int64"), "bool": ("bool",),
    "uint16": ("short unsigned int", "unsigned short"), "uint32": ("unsigned int",),
    "uint64": ("long unsigned int", "unsigned long", "unsigned long long"),
    "complex64": ("c10::complex<float>",), "complex128": ("c10::complex<double>",),
    "float8_e4m3fn": ("c10::Float8_e4m3fn",), "float8_e5m2": ("c10::Float8_e5m2",),
}  # fmt: skip
# Numbers of types and memory formats in PyTorch's C++ library.
_DTYPES: Mapping[str, int] = {
    "uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, "float16": 5, "float32": 6,
    "float64": 7, "complex64": 9, "complex128": 10, "bool": 11, "bfloat16": 15,
    "float8_e5m2": 23, "float8_e4m3fn": 24, "uint16": 27, "uint32": 28, "uint64": 29,
}  # fmt: skip
_FORMATS = {
    "contiguous_format": 0, "preserve_format": 1, "channels_last": 2, "channels_last_3d": 3,
}  # fmt: skip
# A number in place of a tensor is a tensor without dimensions of one of these types.
_NUMBER_TYPES = {"double", "bool", "c10::complex<double>", *_CPP_TYPES["int64"]}

# Results of these calls have the shape of the first argument, whatever the indices are.
_SHAPED_BY_FIRST = ("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")

_NOTHING, _LIST, _NUMBER, _NUMBERS = "", "TensorList", "Scalar", "ScalarList"


class _Agreement(Enum):
    """Whether an argument of a brick is the traced one."""

    SAME = "same"
    UNSEEN = "unseen"
    UNSIZED = "unsized"  # shapes of tensors in a list, or a long list of sizes, are not written
    DIFFERENT = "different"


@dataclass(frozen=True)  # without slots, for the cached arguments
class BrickCall:
    """The call of a brick, with its ``signature`` and the types of its tensors in order."""

    key: str
    call: Call
    signature: Signature
    types: tuple[TensorType, ...]

    @cached_property
    def arguments(self) -> tuple[tuple[Parameter, Any], ...]:
        """All parameters with their arguments."""
        return tuple(self.signature.bound(*self.call.arguments))

    def strides(self, number: int) -> tuple[int, ...]:
        """The strides of a tensor in elements."""
        ports = self.call.ports
        return ports[number].strides if ports else contiguous(self.types[number].shape)

    @cached_property
    def text(self) -> str:
        """The text of all arguments, with the types and shapes of tensors."""
        types = [[*each.to_json(), self.strides(i)] for i, each in enumerate(self.types)]
        return json.dumps([self.call.operator, self.call.arguments, types])


class BrickMatcher(CallMatcher):
    """Matches calls with ``bricks`` that are one call; see :meth:`TraceFormat.matcher`."""

    def __init__(self, bricks: Mapping[str, Brick], ran: Collection[str]) -> None:
        self._ran = frozenset(ran)
        self._known: dict[str, list[BrickCall]] = defaultdict(list)
        for key, brick in bricks.items():
            call = brick_call(key, brick)
            if call is not None:
                operator = call.call.operator.partition(".")[0]
                self._known[f"{call.call.namespace}::{operator}"].append(call)
        self._matches: dict[tuple[str, tuple[TracedArgument, ...]], CallMatch] = {}

    def match(self, call: TracedCall) -> CallMatch:
        """Return the bricks that equal ``call``, as far as the profiler tells."""
        traced = call.operator, call.arguments
        if traced not in self._matches:
            self._matches[traced] = self._match(*traced)
        return self._matches[traced]

    def _match(self, operator: str, arguments: Sequence[TracedArgument]) -> CallMatch:
        candidates = [(_agreement(k, arguments), k) for k in self._known.get(operator, ())]
        same = [known.key for agreement, known in candidates if agreement is _Agreement.SAME]
        if same:
            return CallMatch(tuple(same))
        possible = [(a, known) for a, known in candidates if a is not _Agreement.DIFFERENT]
        ran = [(agreement, known) for agreement, known in possible if known.key in self._ran]
        if not ran:
            named = Unmatched.FOREIGN if self._ran else Unmatched.UNNAMED
            return CallMatch(unmatched=named if possible else Unmatched.UNKNOWN)
        unsized = any(agreement is _Agreement.UNSIZED for agreement, _ in ran)
        groups: dict[str, list[str]] = {}
        for _, known in ran:
            groups.setdefault(known.text, []).append(known.key)
        equal = tuple(map(tuple, groups.values()))
        if len(equal) == 1 and not unsized:
            return CallMatch(equal[0])
        why = Unmatched.SEVERAL if len(equal) > 1 else Unmatched.UNPROVEN
        if unsized and operator.rpartition("::")[2] in _SHAPED_BY_FIRST:
            return CallMatch(unmatched=why)
        return CallMatch(unmatched=why, candidates=equal)


def brick_call(key: str, brick: Brick) -> BrickCall | None:
    """The call that a brick is; None for a brick of several nodes, or of an unknown operator."""
    if len(brick.operators) != 1 or not brick.operators[0].startswith(DOMAIN):
        return None
    graph = graph_of(parse_model(brick.model))
    node = graph.nodes[0]
    if not is_call(node):
        return None
    call = call_of(node)
    name, _, overload = call.operator.partition(".")
    signature = signatures().get(f"{call.namespace}::{name}", {}).get(overload)
    types = tuple(graph.types.get(value) for value in node.input)
    tensors = tuple(each for each in types if isinstance(each, TensorType))
    if signature is None or len(tensors) != len(types):
        return None
    return BrickCall(key, call, signature, tensors)


def _agreement(known: BrickCall, arguments: Sequence[TracedArgument]) -> _Agreement:
    if len(arguments) > len(known.arguments):
        return _Agreement.DIFFERENT
    every = set()
    for number, (parameter, argument) in enumerate(known.arguments):
        if number < len(arguments):
            every.add(_argument(known, parameter, argument, arguments[number]))
        elif parameter.required or argument != parameter.default:  # an older version lacks it
            every.add(_Agreement.DIFFERENT)
    worst_first = (_Agreement.DIFFERENT, _Agreement.UNSIZED, _Agreement.UNSEEN)
    return next((each for each in worst_first if each in every), _Agreement.SAME)


def _argument(
    known: BrickCall, parameter: Parameter, argument: Any, traced: TracedArgument
) -> _Agreement:
    if parameter.place:
        return _Agreement.SAME
    if parameter.text:
        return _Agreement.UNSEEN
    if parameter.tensors:
        if argument is None:
            return _same(traced.type == _NOTHING)
        numbers = [each["t"] for each in argument if isinstance(each, dict) and "t" in each]
        if traced.type != _LIST or not traced.shape:
            return _Agreement.UNSIZED if numbers else _Agreement.UNSEEN
        shapes = tuple(known.types[i].shape for i in numbers)
        strides = tuple(known.strides(i) for i in numbers)
        if traced.shape != shapes or len(traced.strides) != len(strides):
            return _Agreement.DIFFERENT
        equal = all(map(_strides_equal, shapes, strides, traced.strides))
        return _Agreement.UNSEEN if equal else _Agreement.DIFFERENT
    if parameter.tensor:
        return _same(_is_tensor(known, argument, traced))
    if isinstance(argument, list) and traced.type == _NOTHING:
        return _Agreement.UNSIZED  # it is too long to be written, as lists of sizes may be
    return _same(_is_number(argument, traced))


def _same(equal: bool) -> _Agreement:
    return _Agreement.SAME if equal else _Agreement.DIFFERENT


def _strides_equal(shape: Sequence[int], own: Sequence[int], traced: Sequence[int]) -> bool:
    """Whether strides are equal where they count: along dimensions of several elements."""
    return len(own) == len(traced) and all(
        size < 2 or one == other for size, one, other in zip(shape, own, traced, strict=True)
    )


def _is_tensor(known: BrickCall, argument: Any, traced: TracedArgument) -> bool:
    if isinstance(argument, dict) and "t" in argument:
        number = argument["t"]
        own = known.types[number]
        names = _CPP_TYPES.get(TORCH_DTYPES.get(own.dtype, ""), ())
        equal = traced.type in names and traced.shape == own.shape
        return equal and _strides_equal(own.shape, known.strides(number), traced.strides)
    if argument is None or argument == {"undefined": True}:
        return traced.type == _NOTHING
    # A number in place of a tensor: its value is not written, nor does it change the work.
    return traced.type in _NUMBER_TYPES and traced.shape == ()


def _is_number(argument: Any, traced: TracedArgument) -> bool:
    if argument is None:
        return traced.type == _NOTHING
    if isinstance(argument, dict):
        return _is_special(argument, traced)
    if isinstance(argument, list):
        values = [value for value in traced.value.strip("[]").split(", ") if value]
        return (
            traced.type in (_NUMBERS, _LIST)
            and len(values) == len(argument)
            and all(
                isinstance(a, dict) or _equal(a, v) for a, v in zip(argument, values, strict=True)
            )
        )
    return traced.type == _NUMBER and _equal(argument, traced.value)


def _is_special(argument: Mapping[str, Any], traced: TracedArgument) -> bool:
    ((kind, content),) = argument.items()
    if kind == "layout":
        return True
    if kind == "s":  # a number that does not change the work
        return traced.type == _NUMBER
    codes = {"dtype": _DTYPES, "format": _FORMATS}.get(kind)
    value = content if codes is None else codes.get(content)
    return traced.type == _NUMBER and value is not None and _equal(value, traced.value)


def _equal(argument: Any, text: str) -> bool:
    if isinstance(argument, bool):
        return text == str(argument)
    try:
        return float(argument) == float(text) or str(argument) == text
    except (TypeError, ValueError):
        return False
