"""Peaks: bricks that show a machine's best rates of computing and of each level of its memory.

A roofline (Williams et al., Communications of the ACM, 2009) needs both figures of the machine.
They are measured like any brick, with the same runtime and threads, so that the rates of a model's
bricks are compared with the best rates of this runtime, and not with a data sheet. No kernel is the
fastest on every machine: of several kernels and shapes, the best one counts. A cache is faster
than memory: how fast depends on how much is read and written (Ilic et al., IEEE Computer
Architecture Letters, 2014), so streams of several sizes are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from onnx import helper

from bricks.decompose.plan import Brick, Decomposition, isolated_decomposition
from bricks.measure.rounds import StopRule
from bricks.measure.synthetic_bricks import convolution, product, synthetic_brick

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
    separate = [
        isolated_decomposition(brick, granularity, surrounding_bytes=0) for brick in compute_peaks()
    ]
    for stream in memory_peaks():
        separate.append(
            isolated_decomposition(
                stream.brick, granularity, in_place=stream.in_place, surrounding_bytes=0
            )
        )
    return separate


def _stream(operator: str, inputs: Sequence[str], count: int) -> Brick:
    return synthetic_brick(helper.make_node(operator, inputs, ["y"]), [[count]] * len(inputs))
