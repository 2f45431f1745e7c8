"""A recomposed timeline as a Chakra execution trace, which simulators of clusters read.

The format is MLCommons' schema ``et_def.proto``: messages of Protocol Buffers, each after its
length; one of global metadata, then a node for each occurrence and for each kernel. Nodes have
whole microseconds; exact seconds with their interval are attributes. Must not know how a timeline
came about.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bricks.compose.estimate import Estimate
from bricks.compose.lanes import DEVICE
from bricks.compose.timeline import MissingLatency, OccurrenceRun, Subtraction
from bricks.errors import UsageError, printable
from bricks.graph.wire import encoded, varint

if TYPE_CHECKING:
    from bricks.analysis.trace import Traced
    from bricks.compose.lanes import LaneSpan
    from bricks.decompose.plan import Brick
    from bricks.graph.types import ValueType

# The type of nodes that compute, in the schema's enumeration.
_COMPUTES = 4
# Numbers of fields: of a node, of its inputs and outputs, of attributes and of the metadata.
_ID, _NAME, _TYPE, _AFTER, _READS, _BEGIN, _DURATION, _INPUTS, _OUTPUTS, _ATTRIBUTE = range(1, 11)
_SHAPES, _TYPES = 2, 3
_FACT_NAME, _DOUBLE, _INT64, _UINT64, _BOOL, _STRING = 1, 3, 9, 13, 27, 29
_FACT_OF_ALL = 2
# Wire types of fields that are not a length and bytes.
_VARINT, _I64 = 0, 1


def execution_trace(of: Traced) -> bytes:
    """The content of a trace file; :class:`UsageError` if a latency is missing.

    A simulator would take a node without a duration for one that takes no time.
    """
    missing = [e for e in of.recomposed.entries if isinstance(e, MissingLatency)]
    if missing or not isinstance(of.estimate, Estimate):
        why = f": {missing[0].reason}" if missing else ""
        raise UsageError(f"{of.plan.model} has no complete estimate, so no execution trace{why}")
    messages = [_metadata(of, of.estimate), *_occurrences(of), *_kernels(of)]
    return b"".join(varint(len(message)) + message for message in messages)


def _metadata(of: Traced, estimate: Estimate) -> bytes:
    runtime = of.target.runtime
    facts: dict[str, Any] = {
        "model": printable(of.plan.model), "digest": of.plan.digest,
        "system": printable(of.target.system.name),
        "runtime": printable(f"{runtime.backend} {runtime.version}"), "threads": runtime.threads,
        "estimate_s": estimate.estimate_s, "low_s": estimate.low_s, "high_s": estimate.high_s,
    }  # fmt: skip
    return b"".join(encoded(_FACT_OF_ALL, _fact(name, value)) for name, value in facts.items())


def _occurrences(of: Traced) -> Iterator[bytes]:
    """The nodes of occurrences; their numbers are positions."""
    latest: dict[str, int] = {}
    producers = of.plan.producers()
    for entry in of.recomposed.entries:
        assert isinstance(entry, OccurrenceRun | Subtraction), "none is missing"
        position, lane = entry.position, entry.span.lane
        brick = of.bricks[of.plan.occurrences[position].brick]
        latency = entry.latency_s
        facts: dict[str, Any] = {
            "is_cpu_op": True, "lane": lane, "brick": brick.key,
            "basis": "predicted" if entry.predicted else "measured",
            "latency_s": latency.value, "low_s": latency.low, "high_s": latency.high,
            **_work(brick),
        }  # fmt: skip
        after = [latest[lane]] if lane in latest else []
        reads = producers[position]
        yield _node(position, _title(brick), entry.span, after, reads, facts) + _io(brick)
        latest[lane] = position


def _kernels(of: Traced) -> Iterator[bytes]:
    """The nodes of a device's kernels, each after the call that launches it and its predecessor."""
    number = first = len(of.plan.occurrences)
    for span in of.recomposed.run.of(DEVICE):
        launching = min(span.work.after)
        brick = of.bricks[of.plan.occurrences[launching].brick]
        facts = {"is_cpu_op": False, "lane": DEVICE, "stream": 0, "brick": brick.key}
        before = [number - 1] if number > first else []
        yield _node(number, span.kind, span, [launching, *before], (), facts)
        number += 1


def _work(brick: Brick) -> dict[str, Any]:
    """The attributes of work that simulators read; unknown work is left out."""
    size = {"tensor_size": _Unsigned(brick.bytes_moved)}
    return {**size, **({} if brick.flops is None else {"num_ops": brick.flops})}


def _node(
    number: int,
    name: str,
    span: LaneSpan,
    after: Iterable[int],
    reads: Iterable[int],
    facts: Mapping[str, Any],
) -> bytes:
    begin_us, end_us = round(1e6 * span.begin_s), round(1e6 * span.end_s)
    parts = [
        _number(_ID, number), encoded(_NAME, printable(name).encode()), _number(_TYPE, _COMPUTES),
        _numbers(_AFTER, after), _numbers(_READS, reads),
        _number(_BEGIN, begin_us), _number(_DURATION, end_us - begin_us),
        *(encoded(_ATTRIBUTE, _fact(of, value)) for of, value in facts.items()),
    ]  # fmt: skip
    return b"".join(parts)


def _io(brick: Brick) -> bytes:
    reads = [*brick.inputs.values(), *brick.weights.values()]
    return encoded(_INPUTS, _values(reads)) + encoded(_OUTPUTS, _values(brick.outputs.values()))


def _values(types: Iterable[ValueType]) -> bytes:
    every = list(types)
    shapes = json.dumps([list(getattr(each, "shape", ())) for each in every])
    names = json.dumps([str(getattr(each, "dtype", type(each).__name__)) for each in every])
    return encoded(_SHAPES, shapes.encode()) + encoded(_TYPES, names.encode())


def _title(brick: Brick) -> str:
    return "+".join(name.removeprefix("org.pytorch.") for name in brick.operators)


class _Unsigned(int):
    """A number that the schema keeps without a sign."""


def _fact(name: str, value: bool | int | float | str) -> bytes:
    head = encoded(_FACT_NAME, name.encode())
    match value:
        case bool():
            return head + _number(_BOOL, int(value))
        case _Unsigned():
            return head + _number(_UINT64, value)
        case int():
            return head + _number(_INT64, value)
        case float():
            return head + varint(_DOUBLE << 3 | _I64) + struct.pack("<d", value)
        case _:
            return head + encoded(_STRING, value.encode())


def _number(field: int, value: int) -> bytes:
    return varint(field << 3 | _VARINT) + varint(value)


def _numbers(field: int, values: Iterable[int]) -> bytes:
    """A list of numbers, packed; nothing for an empty one."""
    packed = b"".join(map(varint, values))
    return encoded(field, packed) if packed else b""
