"""Writes a listing of calls as a recorded program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import onnx
from onnx import TensorProto, helper

from bricks.backends.torch.cuda_calls.issued import IssuedCall, Operand, changed
from bricks.backends.torch.scalars import is_indifferent, is_special
from bricks.graph.program import FREED, PHASE, Call, Port, contiguous
from bricks.graph.program_phases import FORWARD

if TYPE_CHECKING:
    from bricks.backends.torch.cuda_calls.listing import CallListing
    from bricks.graph.tensor import TensorType

# Results smaller than this stay in the caches of a core; the recorder marks calls with others.
_LARGE_BYTES = 1 << 16


def write(listing: CallListing, recorded: onnx.ModelProto) -> onnx.ModelProto:
    """Return a program of the calls in ``listing``, with the metadata of ``recorded``."""
    calls = _with_lifetimes(listing.calls)
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


def _with_lifetimes(calls: Sequence[IssuedCall]) -> list[IssuedCall]:
    """Drop calls without an operator, and lifetimes of values that no call makes."""
    made = {name for call in calls for name in call.outputs}
    kept: list[IssuedCall] = []
    for call in calls:
        freed = tuple(name for name in dict.fromkeys(call.freed) if name in made)
        if call.operator:
            kept.append(replace(call, freed=freed))
        elif kept:
            kept[-1] = replace(kept[-1], freed=(*kept[-1].freed, *freed))
    return kept


def _declaration(name: str, of: TensorType) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DataType.Value(of.dtype), of.shape)


def _weight(name: str, of: TensorType) -> TensorProto:
    weight = TensorProto(name=name, data_type=TensorProto.DataType.Value(of.dtype), dims=of.shape)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    return weight


@dataclass(slots=True)
class _Arguments:
    """The arguments of one call as JSON; collects operands, and numbers that change no work."""

    indifferent: bool
    operands: list[Operand] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)

    def written(self, each: Any) -> Any:
        if isinstance(each, Operand):
            self.operands.append(each)
            return {"t": len(self.operands) - 1}
        if isinstance(each, float) and self.indifferent and not is_special(each):
            self.numbers.append(each)
            return {"s": len(self.numbers) - 1}
        return each


class _NodeWriter:
    """Writes calls as nodes; ``numbers`` are tensors of the numbers that change no work."""

    def __init__(self, listing: CallListing) -> None:
        self._listing = listing
        self._roots: Mapping[str, str] = listing.roots()
        self.numbers: list[onnx.TensorProto] = []

    def node(self, call: IssuedCall) -> onnx.NodeProto:
        arguments = _Arguments(is_indifferent(call.namespace, call.name))
        positional = changed(list(call.positional), arguments.written)
        named = {name: changed(each, arguments.written) for name, each in call.named.items()}
        operands = arguments.operands
        inputs = [operand.value for operand in operands]
        aliases = tuple(self._aliases(call, inputs))
        shared = aliases if any(source >= 0 for source in aliases) else ()
        written = Call(
            call.namespace, call.operator, (positional, named), self._ports(operands), shared
        )
        node = written.node([*inputs, *self._numbers(arguments.numbers)], call.outputs)
        self._note(node, call)
        return node

    def _note(self, node: onnx.NodeProto, call: IssuedCall) -> None:
        training = self._listing.training and call.phase == FORWARD
        if training and any(map(self._large, filter(None, call.outputs))):
            node.attribute.append(helper.make_attribute("training", 1))
        node.metadata_props.add(key=PHASE, value=call.phase)
        if call.freed:
            node.metadata_props.add(key=FREED, value=json.dumps(call.freed))

    def _large(self, name: str) -> bool:
        return self._listing.types[name].size_bytes >= _LARGE_BYTES

    def _numbers(self, numbers: Sequence[float]) -> list[str]:
        if not numbers:
            return []
        name = f"numbers{len(self.numbers)}"
        self.numbers.append(helper.make_tensor(name, TensorProto.DOUBLE, [len(numbers)], numbers))
        return [name]

    def _aliases(self, call: IssuedCall, inputs: Sequence[str]) -> Iterator[int]:
        storages = [self._roots.get(name, name) for name in inputs]
        for output in call.outputs:
            source = call.shared.get(output) if output else None
            root = None if source is None else self._roots.get(source, source)
            yield storages.index(root) if root in storages else -1

    def _ports(self, operands: Sequence[Operand]) -> tuple[Port, ...]:
        """The view of each tensor; empty where all are contiguous with storages of their own."""
        storages = [self._roots.get(operand.value, operand.value) for operand in operands]
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
