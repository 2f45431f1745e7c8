"""A recorded program as a list of issued calls, to be rewritten; read from a model and written.

A call stands apart from its node: operator, arguments, results, phase, lifetimes. Tensors among the
arguments are operands, with the strides of their views; all numbers stand in place. Values keep
their names. Which memory a value has follows from the calls before it, and when that is freed from
those that read it. Stretches of calls are found by a regular expression of their operators. Must
not know which calls CUDA makes.
"""

from __future__ import annotations

import json
import re
import sys
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import onnx
from onnx import TensorProto, helper

from bricks.backends.torch.call_data import is_indifferent, is_special
from bricks.graph.call import FORWARD
from bricks.graph.program import FREED, PHASE, Call, Port, call_of, contiguous, leaves
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of

# Results smaller than this stay in the caches of a core; the recorder marks calls with others.
_LARGE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Operand:
    """A tensor among the arguments of a call, by the name of its value.

    ``offset`` and ``strides`` are in elements; offsets are relative to the storage's first tensor
    in the call.
    """

    value: str
    offset: int
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class IssuedCall:
    """A call of ``operator`` (``add_.Tensor``) in ``namespace`` (``aten``).

    ``positional`` and ``named`` are its arguments, JSON with operands in it. ``outputs`` are the
    names of its results, empty for undefined ones; ``shared`` are the values whose memory some
    outputs have. After the call, the memory of the values ``freed`` is free.
    """

    operator: str
    positional: Sequence[Any]
    outputs: tuple[str, ...]
    named: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    phase: str = ""
    freed: tuple[str, ...] = ()
    namespace: str = "aten"

    @property
    def operands(self) -> list[Operand]:
        """The tensors among the arguments, in order."""
        values = leaves([list(self.positional), [*self.named.values()]])
        return [each for each in values if isinstance(each, Operand)]

    def reads(self, value: str) -> bool:
        """Whether the value of this name is among the arguments."""
        return any(operand.value == value for operand in self.operands)

    @property
    def name(self) -> str:
        """The operator without its overload."""
        return self.operator.partition(".")[0]

    def renamed(self, values: Mapping[str, str]) -> IssuedCall:
        """Return the call with other values among its arguments."""

        def other(each: Any) -> Any:
            if isinstance(each, Operand) and each.value in values:
                return replace(each, value=values[each.value])
            return each

        return self.with_arguments(other)

    def with_arguments(self, change: Callable[[Any], Any]) -> IssuedCall:
        """Return the call with ``change`` of each value among its arguments."""
        positional = changed(list(self.positional), change)
        named = {name: changed(each, change) for name, each in self.named.items()}
        return replace(self, positional=positional, named=named)


def changed(arguments: Any, change: Callable[[Any], Any]) -> Any:
    """Return nested lists and dicts of arguments with ``change`` of each value in them."""
    if isinstance(arguments, list):
        return [changed(each, change) for each in arguments]
    if isinstance(arguments, dict) and len(arguments) != 1:
        return {name: changed(each, change) for name, each in arguments.items()}
    return change(arguments)


Rewrite = Callable[[IssuedCall], Sequence[IssuedCall] | None]


@dataclass(slots=True)
class CallListing:
    """The calls of a program in order, and the types of its values by name.

    ``results`` are the values that stay after the step, ``begins`` are tensors with which it begins
    only on a GPU.
    """

    calls: list[IssuedCall]
    types: dict[str, TensorType]
    training: bool
    results: frozenset[str] = frozenset()
    begins: list[str] = field(default_factory=list)
    _new: set[str] = field(default_factory=set, init=False)

    def rewrite(self, change: Rewrite) -> int:
        """Replace each call by those that ``change`` returns, unless None; return how many."""
        calls: list[IssuedCall] = []
        count = 0
        for call in self.calls:
            others = change(call)
            if others is None:
                calls.append(call)
            else:
                calls += carried(call, others)
                count += 1
        self.calls = calls
        return count

    def substitute(
        self, changes: Mapping[range, Sequence[IssuedCall]], renamed: Mapping[str, str]
    ) -> None:
        """Put other calls at ranges of positions; calls elsewhere read ``renamed`` values."""
        spans = {span.start: (span, others) for span, others in changes.items()}
        calls: list[IssuedCall] = []
        at = 0
        while at < len(self.calls):
            if at in spans:
                span, others = spans[at]
                replaced = self.calls[at : span.stop]
                freed = tuple(name for call in replaced for name in call.freed)
                calls += carried(replace(replaced[0], freed=freed), others)
                at = span.stop
            else:
                calls.append(self.calls[at].renamed(renamed))
                at += 1
        self.calls = calls

    def new(self, stem: str, dtype: str, shape: Sequence[int]) -> str:
        """Name a new value after ``stem``."""
        name = f"{stem}/{len(self._new)}"
        self._new.add(name)
        self.types[name] = TensorType(dtype, tuple(shape))
        return name

    def is_new(self, name: str) -> bool:
        """Whether the recording has no such value."""
        return name in self._new

    def roots(self) -> dict[str, str]:
        """For each value that a call makes, the first value in the same memory."""
        roots: dict[str, str] = {}
        for call in self.calls:
            for output in filter(None, call.outputs):
                source = call.shared.get(output)
                roots[output] = output if source is None else roots.get(source, source)
        return roots


def carried(call: IssuedCall, others: Sequence[IssuedCall]) -> list[IssuedCall]:
    """Give the calls that replace ``call`` its phase, and the last one its freed values."""
    placed = [replace(each, phase=call.phase) for each in others]
    if placed:
        placed[-1] = replace(placed[-1], freed=(*placed[-1].freed, *call.freed))
        return placed
    return [IssuedCall("", (), (), phase=call.phase, freed=call.freed)] if call.freed else []


def listing_of(proto: onnx.ModelProto, *, training: bool) -> CallListing:
    """Read the calls of a recorded program; :class:`~bricks.errors.ModelError` for other models."""
    graph = graph_of(proto)
    numbers = {
        tensor.name: list(tensor.double_data)
        for tensor in proto.graph.initializer
        if tensor.data_type == TensorProto.DOUBLE and tensor.double_data
    }
    calls = [_issued(node, graph.types, numbers) for node in graph.nodes]
    types = {name: of for name, of in graph.types.items() if isinstance(of, TensorType)}
    results = frozenset(value.name for value in proto.graph.output)
    return CallListing(calls, types, training, results)


def _issued(node: onnx.NodeProto, types: Any, numbers: dict[str, list[float]]) -> IssuedCall:
    call = call_of(node)
    tensors = list(node.input)
    scalars = numbers.get(tensors[-1], []) if tensors else []
    plain = (Port(at, 0, contiguous(types[name].shape)) for at, name in enumerate(tensors))
    operands = [
        Operand(name, port.offset, port.strides)
        for name, port in zip(tensors, call.ports or plain, strict=False)
    ]

    def read(each: Any) -> Any:
        if isinstance(each, dict) and each.keys() == {"t"}:
            return operands[each["t"]]
        if isinstance(each, dict) and each.keys() == {"s"}:
            return scalars[each["s"]]
        return each

    notes = {entry.key: entry.value for entry in node.metadata_props}
    positional, named = call.arguments
    return IssuedCall(
        operator=call.operator,
        positional=changed(positional, read),
        outputs=tuple(node.output),
        named={name: changed(each, read) for name, each in named.items()},
        shared={
            output: node.input[source]
            for output, source in zip(node.output, call.aliases, strict=False)
            if output and source >= 0
        },
        phase=notes.get(PHASE, ""),
        freed=tuple(json.loads(notes.get(FREED, "[]"))),
        namespace=call.namespace,
    )


def stretches(pattern: str, calls: Sequence[IssuedCall]) -> Iterator[range]:
    """Yield the positions of calls whose operators match, each followed by a space, in order."""
    words = [f"{call.operator} " for call in calls]
    begins = [0, *accumulate(map(len, words))]
    for match in re.finditer(rf"(?<![^ ])(?:{pattern})", "".join(words)):
        if match.group():
            yield range(bisect_left(begins, match.start()), bisect_left(begins, match.end()))


def write(listing: CallListing, recorded: onnx.ModelProto) -> onnx.ModelProto:
    """Return a program of the calls in ``listing``, with the metadata of ``recorded``."""
    results = {name for call in listing.calls for name in call.outputs}
    calls: list[IssuedCall] = []
    for call in listing.calls:
        freed = tuple(name for name in dict.fromkeys(call.freed) if name in results)
        if call.operator:
            calls.append(replace(call, freed=freed))
        elif calls:  # a call without an operator passes on what is freed after it
            calls[-1] = replace(calls[-1], freed=(*calls[-1].freed, *freed))
    writer = _NodeWriter(listing)
    nodes = [writer.node(call) for call in calls]
    proto = onnx.ModelProto()
    proto.CopyFrom(recorded)
    graph, before = proto.graph, recorded.graph
    for part in (graph.node, graph.initializer, graph.input, graph.output, graph.value_info):
        del part[:]
    graph.node.extend(nodes)
    read = {name for node in nodes for name in node.input}
    made = {name for node in nodes for name in node.output if name}
    graph.input.extend(each for each in before.input if each.name in read)
    graph.output.extend(each for each in before.output if each.name in made)
    graph.initializer.extend(each for each in before.initializer if each.name in read)
    graph.initializer.extend(_weight(name, listing.types[name]) for name in listing.begins)
    graph.initializer.extend(writer.numbers)
    inner = made - {each.name for each in (*graph.input, *graph.output)}
    types = ((name, of) for name, of in listing.types.items() if name in inner)
    graph.value_info.extend(_declaration(name, of) for name, of in types)
    return proto


def _declaration(name: str, of: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(of.dtype), of.shape)


def _weight(name: str, of: TensorType) -> TensorProto:
    weight = TensorProto(name=name, data_type=TensorProto.DataType.Value(of.dtype), dims=of.shape)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight


class _NodeWriter:
    """Writes calls as nodes; ``numbers`` are tensors of the numbers that change no work."""

    def __init__(self, listing: CallListing) -> None:
        self._listing = listing
        self._roots: Mapping[str, str] = listing.roots()
        self.numbers: list[onnx.TensorProto] = []

    def node(self, call: IssuedCall) -> onnx.NodeProto:
        operands: list[Operand] = []
        numbers: list[float] = []
        indifferent = is_indifferent(call.namespace, call.name)

        def written(each: Any) -> Any:
            if isinstance(each, Operand):
                operands.append(each)
                return {"t": len(operands) - 1}
            if isinstance(each, float) and indifferent and not is_special(each):
                numbers.append(each)
                return {"s": len(numbers) - 1}
            return each

        positional = changed(list(call.positional), written)
        named = {name: changed(each, written) for name, each in call.named.items()}
        inputs = [operand.value for operand in operands]
        storages = [self._roots.get(name, name) for name in inputs]
        aliases = []
        for output in call.outputs:
            source = call.shared.get(output) if output else None
            root = None if source is None else self._roots.get(source, source)
            aliases.append(storages.index(root) if root in storages else -1)
        shared = tuple(aliases) if any(number >= 0 for number in aliases) else ()
        ports = self._ports(operands, storages)
        made = Call(call.namespace, call.operator, (positional, named), ports, shared)
        if numbers:
            name = f"numbers{len(self.numbers)}"
            inputs.append(name)
            tensor = helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers)
            self.numbers.append(tensor)
        node = made.node(inputs, call.outputs)
        if self._listing.training and call.phase == FORWARD:
            sizes_bytes = (self._listing.types[name].size_bytes for name in call.outputs if name)
            if any(size_bytes >= _LARGE_BYTES for size_bytes in sizes_bytes):
                node.attribute.append(helper.make_attribute("training", 1))
        node.metadata_props.add(key=PHASE, value=call.phase)
        if call.freed:
            node.metadata_props.add(key=FREED, value=json.dumps(call.freed))
        return node

    def _ports(self, operands: Sequence[Operand], storages: Sequence[str]) -> tuple[Port, ...]:
        """The view of each tensor; empty where all are contiguous with storages of their own."""
        numbers = {storage: at for at, storage in enumerate(dict.fromkeys(storages))}
        values = {(storage, o.value) for storage, o in zip(storages, operands, strict=True)}
        types = self._listing.types
        if len(numbers) == len(values) and all(
            o.strides == contiguous(types[o.value].shape) for o in operands
        ):
            return ()
        first = dict.fromkeys(storages, sys.maxsize)
        for storage, operand in zip(storages, operands, strict=True):
            first[storage] = min(first[storage], operand.offset)
        return tuple(
            Port(numbers[storage], operand.offset - first[storage], operand.strides)
            for storage, operand in zip(storages, operands, strict=True)
        )


def settle(listing: CallListing) -> None:
    """Free each storage as a whole, after all calls that read it.

    A storage is freed where the recording frees the last of its values, or later if a call reads it
    later; values that only CUDA has are freed after the last call that reads them. A storage stays
    if it has a result of the step, or if the recording never frees it.
    """
    freed, last, roots = dict[str, int](), dict[str, int](), listing.roots()
    for at, call in enumerate(listing.calls):
        freed |= dict.fromkeys(call.freed, at)
        last |= dict.fromkeys((*call.outputs, *(operand.value for operand in call.operands)), at)
    values: dict[str, list[str]] = defaultdict(list)
    for name, root in roots.items():
        values[root].append(name)
    by_call: dict[int, list[str]] = defaultdict(list)
    for root, names in values.items():
        ends = [freed[name] for name in names if name in freed]
        is_new = all(map(listing.is_new, names))
        if root in roots and (ends or is_new) and not listing.results.intersection(names):
            by_call[max(*ends, *(last[name] for name in names), 0)] += names
    listing.calls = [
        replace(call, freed=tuple(by_call.get(at, ()))) for at, call in enumerate(listing.calls)
    ]
