"""The peak rates of a target: operations and bytes per second that measured bricks have reached.

Peaks of this host are measured on request.

A roofline (Williams et al., Communications of the ACM, 2009) needs both figures of the machine.
They are measured like any brick, with the same runtime and threads, so that the rates of a model's
bricks are compared with the best rates of this runtime, and not with a data sheet. No kernel is the
fastest on every machine: of several kernels and shapes, the best one counts. A cache is faster than
memory: how fast depends on how much is read and written (Ilic et al., IEEE Computer Architecture
Letters, 2014), so streams of several sizes are measured. Must not know how peaks are used.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from onnx import NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from bricks.compose.basis import IN_WALK_CALL_FACTOR, Results
from bricks.compose.latencies import call_cost
from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick, Decomposition, isolated_decomposition
from bricks.graph.view import graph_of
from bricks.measure.conditions import StopRule
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Measurement
from bricks.session.measuring import measure_isolated

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Level:
    """The best bandwidth of bricks that read and write ``size_bytes`` in all."""

    size_bytes: int
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Peaks:
    """The best rates of a target, in operations and in bytes per second; None: not measured.

    ``bytes_per_s`` is the bandwidth of memory, beyond all caches. ``levels`` are bandwidths from
    the smallest size to the largest; empty unless all of them were measured.
    """

    flops_per_s: float | None = None
    bytes_per_s: float | None = None
    levels: tuple[Level, ...] = ()

    def bandwidth(self, size_bytes: float) -> float | None:
        """The best bandwidth for moving ``size_bytes``; None if it was not measured.

        The best of the next smaller size and all larger ones, so it is never too low.
        """
        after = bisect_right(self.levels, size_bytes, key=lambda level: level.size_bytes)
        reachable = self.levels[max(0, after - 1) :]
        return max((level.bytes_per_s for level in reachable), default=None)


def measured_peaks(
    workspace: Workspace, target: Target | None = None, *, measure: bool = False
) -> Peaks:
    """The highest measured rate of each kind on ``target``, by default the workspace's own.

    With ``measure``, missing rates of the workspace's own target are measured first.
    """
    target = workspace.target if target is None else target
    missing = {brick.key for brick in peak_bricks()} - _results(workspace, target).keys()
    if measure and missing and target.key == workspace.target.key:
        measure_isolated(workspace, at_best(str(workspace.granularity)), rule=RULE)
    runs = _runs_per_s(workspace, target)
    flops_per_s = [
        brick.flops * runs[brick.key]
        for brick in compute_peaks()
        if brick.flops is not None and brick.key in runs
    ]
    bandwidths: dict[int, float] = {}
    for stream in memory_peaks():
        if stream.brick.key in runs:
            rate = stream.brick.bytes_moved * runs[stream.brick.key]
            bandwidths[stream.size_bytes] = max(rate, bandwidths.get(stream.size_bytes, 0.0))
    sizes = sorted({stream.size_bytes for stream in memory_peaks()})
    whole = bandwidths.keys() == set(sizes)
    return Peaks(
        max(flops_per_s, default=None),
        bandwidths.get(sizes[-1]),
        tuple(Level(size, bandwidths[size]) for size in sizes) if whole else (),
    )


def call_s(workspace: Workspace, target: Target) -> float:
    """The call cost in seconds that is subtracted from each brick on ``target``."""
    results = _results(workspace, target)
    if not all(isinstance(results.get(key), Measurement) for key in PROBES.values()):
        return 0.0  # without probes, bricks seem slower, never faster than others
    return IN_WALK_CALL_FACTOR * call_cost(results).value


def _results(workspace: Workspace, target: Target) -> Results:
    keys = sorted({*PROBES.values(), *(brick.key for brick in peak_bricks())})
    return workspace.known.measurements.results(target.key, keys)


def _runs_per_s(workspace: Workspace, target: Target) -> dict[str, float]:
    """The highest rate, in runs per second, of each measured peak brick.

    The fastest sample and not the median: a peak is the rate without any disturbance.
    """
    results, overhead_s = _results(workspace, target), call_s(workspace, target)
    rates = {}
    for brick in peak_bricks():
        measured = results.get(brick.key)
        if isinstance(measured, Measurement):
            net_s = min(measured.host_s) - overhead_s
            if net_s > 0:
                rates[brick.key] = 1 / net_s
    return rates


Shape = Sequence[int]


def product(rows: int, terms: int, columns: int) -> Brick:
    """A product of a (rows, terms) matrix with (terms, columns) weights."""
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return synthetic_brick(node, [(rows, terms)], (terms, columns))


def convolution(read: int, written: int, side: int, taps: int, **attributes: Any) -> Brick:
    """A convolution of taps×taps over ``side``×``side`` pixels, from ``read`` to ``written``.

    These are channels. ``attributes`` are further ones of the node, such as ``group``.
    """
    node = helper.make_node(
        "Conv", ["x", "w"], ["y"],
        kernel_shape=[taps, taps], pads=[taps // 2] * 4, **attributes,
    )  # fmt: skip
    weight = (written, read // attributes.get("group", 1), taps, taps)
    return synthetic_brick(node, [(1, read, side, side)], weight)


def synthetic_brick(node: NodeProto, inputs: Sequence[Shape], weight: Shape | None = None) -> Brick:
    """The brick of ``node``, with its inputs' shapes, and that of its weight, which comes last."""
    weights = []
    if weight is not None:
        tensor = TensorProto(name=node.input[-1], data_type=TensorProto.FLOAT, dims=weight)
        tensor.data_location = TensorProto.EXTERNAL
        weights.append(tensor)
    names = node.input if weight is None else node.input[:-1]
    infos = [_info(name, shape) for name, shape in zip(names, inputs, strict=True)]
    # Inference gives the shape of the output, which follows from the others.
    graph = helper.make_graph([node], "synthetic", infos, [_info(node.output[0], None)], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Cutter(graph_of(shape_inference.infer_shapes(model))).cut((0,)).brick


def _info(name: str, shape: Shape | None) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


# Rows, terms and columns of matrix products. Smaller ones fit an inner cache; larger ones keep more
# threads busy.
_PRODUCTS = ((256, 256, 256), (2048, 256, 256), (1024, 1024, 1024))

# Channels, and pixels in a row, of a 3×3 convolution as in many models.
_CONVOLVED = (128, 28)

# Bytes that a stream reads and writes: up to more than any cache holds, and few enough for
# any machine. A smaller stream takes less time than the overhead of a call.
_STREAMED = tuple(1 << power for power in (19, 21, 23, 25, 27))

# A peak is the best of its samples: a few rounds suffice.
RULE = StopRule(precision=0.05, min_rounds=2, max_rounds=3)

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Stream:
    """A brick that reads and writes ``size_bytes`` in total, and computes next to nothing.

    With ``in_place`` it overwrites its input.
    """

    size_bytes: int
    brick: Brick
    in_place: bool = False


@cache
def compute_peaks() -> tuple[Brick, ...]:
    """Matrix products and convolutions of 32-bit floats, with weights."""
    products = [product(*shape) for shape in _PRODUCTS]
    channels, side = _CONVOLVED
    return (*products, convolution(channels, channels, side, 3))


@cache
def memory_peaks() -> tuple[Stream, ...]:
    """Streams of 32-bit floats of each size, which write as much as they read, or half as much.

    The fastest depends on the machine. A cache may first read the lines that are to be written;
    in place, it has them already.
    """
    streams = []
    for size_bytes in _STREAMED:
        count = size_bytes // _FLOAT_BYTES
        streams += [
            Stream(size_bytes, _stream("Relu", ["x"], count // 2), in_place=True),
            Stream(size_bytes, _stream("Identity", ["x"], count // 2)),
            Stream(size_bytes, _stream("Add", ["x", "z"], count // 3)),
        ]
    return tuple(streams)


@cache
def peak_bricks() -> tuple[Brick, ...]:
    """All bricks of peaks."""
    return (*compute_peaks(), *(stream.brick for stream in memory_peaks()))


def at_best(granularity: str) -> list[Decomposition]:
    """All bricks of peaks as they run fastest: no other brick uses the caches in between."""
    computing = [(brick, False) for brick in compute_peaks()]
    streaming = [(stream.brick, stream.in_place) for stream in memory_peaks()]
    return [
        isolated_decomposition(brick, granularity, in_place=in_place, surrounding_bytes=0)
        for brick, in_place in computing + streaming
    ]


def _stream(operator: str, inputs: Sequence[str], count: int) -> Brick:
    return synthetic_brick(helper.make_node(operator, inputs, ["y"]), [[count]] * len(inputs))
