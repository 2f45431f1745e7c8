"""A recorded program as a list of issued calls, to be rewritten; read from a model and written.

Values keep their names. Which memory a value has follows from the calls before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import onnx
from onnx import TensorProto

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand, changed
from bricks.graph.program import FREED, PHASE, Port, call_of, contiguous
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of

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
                calls += carried(_joined(self.calls[at : span.stop]), others)
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


def _joined(calls: Sequence[IssuedCall]) -> IssuedCall:
    """The first call with all that is freed after each."""
    return replace(calls[0], freed=tuple(name for call in calls for name in call.freed))


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
    operands = [
        Operand(name, port.offset, port.strides)
        for name, port in zip(tensors, call.ports or _plain(tensors, types), strict=False)
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


def _plain(names: Sequence[str], types: Any) -> Iterator[Port]:
    """Ports of contiguous tensors with a storage of their own."""
    return (Port(at, 0, contiguous(types[name].shape)) for at, name in enumerate(names))
