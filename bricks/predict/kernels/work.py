"""The work of a call on a GPU, and the sizes and tags on which its speed depends.

Calls that are bound by memory have theirs here: pointwise operators, reductions, copies, indexing.
Must not know durations, nor any card.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.predict.kernels.call_tensors import CallTensor, TensorCall

# The precision in which units compute on values of a type; others compute in FP32.
PRECISION = {"BFLOAT16": "bf16", "FLOAT16": "fp16"}


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``batch`` products of m x k and k x n matrices by one kernel, ``times`` after another.

    ``tiled`` says whether kernels cut the result into tiles of fixed sizes.
    """

    batch: float
    m: float
    n: float
    k: float
    times: int = 1
    tiled: bool = True

    @property
    def flops(self) -> float:
        """Operations: a multiplication and an addition for each term."""
        return 2.0 * self.times * self.batch * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class CallWork:
    """Products in ``precision``, bytes read and written, logarithmic ``sizes``, and ``tags``.

    ``products`` are those of matrices, convolutions and attention; none for work bound by memory.
    ``kernels`` is how many run one after another, as far as shapes tell.
    """

    products: tuple[MatrixProduct, ...]
    precision: str
    read_bytes: float
    written_bytes: float
    sizes: tuple[float, ...]
    tags: tuple[str, ...]
    kernels: int = 1

    @property
    def flops(self) -> float:
        """Operations of all products."""
        return sum(product.flops for product in self.products)


@dataclass(frozen=True, slots=True)
class KernelFeatures:
    """The features of a call: its ``family``, its ``operator`` and its work."""

    family: str
    operator: str
    work: CallWork


def logs(sizes: Iterable[float]) -> tuple[float, ...]:
    """Logarithms to base 2; sizes below 1 count as 1."""
    return tuple(math.log2(max(1.0, size)) for size in sizes)


def pointwise(call: TensorCall) -> CallWork:
    """A kernel with a thread for each few elements: elements, operands, run of contiguous ones."""
    elements = max((t.elements for t in (*call.outputs, *call.distinct)), default=1)
    operands = [t for t in call.distinct if t.elements > 1]
    strided = [t for t in (*operands, *call.outputs) if not _linear(t)]
    broadcast = any(t.elements != elements for t in operands)
    run = min((_run(t) for t in strided), default=elements)
    tags = (_types(call), "strided" if strided else "", "broadcast" if broadcast else "")
    return _stream(call, (elements, run, len(operands)), tags)


def foreach(call: TensorCall) -> CallWork:
    """A kernel over lists of tensors: elements, tensors, the largest of them."""
    lists = call.positional[0] if call.positional else []
    count = len(lists) if isinstance(lists, list) else 1
    tensors = [t for t in call.inputs[:count] if t is not None]
    elements = sum(t.elements for t in tensors)
    most = max((t.elements for t in tensors), default=1)
    strided = any(not _linear(t) for t in call.distinct)
    tags = (_types(call), "strided" if strided else "", "")
    return _stream(call, (elements, count, most), tags)


def normalisation(call: TensorCall) -> CallWork:
    """A kernel with groups of elements that are normalised: elements, size of a group, run."""
    data = call.distinct[0]
    size, run = _group(call, data)
    tags = (
        _types(call),
        "nhwc" if data.channels_last else "",
        str(any(argument is True for argument in call.positional)),
    )
    return _stream(call, (data.elements, size, run), tags)


def _group(call: TensorCall, data: CallTensor) -> tuple[float, float]:
    """The elements of a group, and the distance in elements between two of them."""
    name = call.operator
    if "batch_norm" in name and len(data.shape) > 1:
        return data.elements / data.shape[1], math.prod(data.shape[2:])
    if "group_norm" in name:
        groups = call.argument(6 if "backward" not in name else 8, 1)
        return data.elements / max(1, data.shape[0] * (groups or 1)), 1
    if "softmax" in name:
        dim = next((a for a in call.positional if isinstance(a, int)), -1)
        return data.shape[dim] if data.shape else 1, math.prod(data.shape[dim:][1:])
    return data.shape[-1] if data.shape else 1, 1


def reduction(call: TensorCall) -> CallWork:
    """A reduction: elements, those that remain, distance between those that are added."""
    data = max(call.distinct, key=lambda tensor: tensor.elements)
    kept = call.outputs[0].elements if call.outputs else 1
    axes = next((a for a in call.positional if isinstance(a, list)), None)
    inner = not axes or (len(data.shape) - 1) in [axis % len(data.shape) for axis in axes]
    tags = (_types(call), "inner" if inner else "outer", "" if _linear(data) else "strided")
    return _stream(call, (data.elements, kept, data.elements / max(1, kept)), tags)


def gather(call: TensorCall) -> CallWork:
    """A selection of rows: elements, length of a row; only the selected rows are read."""
    written = max(call.outputs, key=lambda t: t.elements * t.item_bytes)
    index_bytes = sum(t.footprint_bytes for t in call.distinct if t.dtype.startswith("INT"))
    table = call.distinct[0]
    rows = max((t.elements for t in call.distinct if t.dtype.startswith("INT")), default=1)
    row = table.shape[-1] if table.shape else 1
    read = min(table.footprint_bytes, rows * row * table.item_bytes) + index_bytes
    tags = (_types(call), "", "")
    sizes = logs((written.elements, row, table.elements))
    return CallWork((), "fp32", read, written.elements * written.item_bytes, sizes, tags)


# The fewest indices for which gradients of an embedding are sorted.
_SORTED = 3073
# A radix sort of 64-bit indices takes 8 bits a pass, and moves each index with its position; a pass
# is two kernels. Those before and after it find where equal indices begin and add up their rows
# (EmbeddingBackwardKernel.cu of PyTorch, DeviceRadixSort of CUB).
_PASSES, _PAIR_BYTES, _OTHER_KERNELS = 8, 16, 14


def scatter(call: TensorCall) -> CallWork:
    """An addition or copy to selected rows: elements written, those read, rows, of one row.

    Operators that add up rows of equal indices sort these first, which takes many small kernels.
    """
    rows = max((t.elements for t in call.distinct if t.dtype.startswith("INT")), default=1)
    written = sum(t.elements for t in call.outputs)
    source = [t for t in call.distinct if "INT" not in t.dtype]
    elements = max((t.elements for t in source), default=1)
    tags = (_types(call), "sorted" if _sorts(call, rows) else "", "")
    if call.in_place and source:
        elements = min(t.elements for t in source)
        moved = elements * source[0].item_bytes
        sizes = logs((elements, elements, rows))
        return CallWork((), "fp32", moved, moved, sizes, tags)
    if not _sorts(call, rows):
        return _stream(call, (written, elements, rows), tags)
    moved = _PASSES * rows * _PAIR_BYTES
    return CallWork(
        (), "fp32", call.read_bytes + moved, call.written_bytes + moved,
        logs((written, elements, rows)), tags, 2 * _PASSES + _OTHER_KERNELS,
    )  # fmt: skip


def _sorts(call: TensorCall, rows: int) -> bool:
    if call.operator == "embedding_dense_backward":
        return rows >= _SORTED
    accumulates = call.operator == "index_put" and call.argument(3) is True
    return accumulates or call.operator == "_embedding_bag_backward"


def resampling(call: TensorCall) -> CallWork:
    """A window over an image: elements written, taps of the window, images and channels.

    A thread of an interpolation computes one pixel of all images and channels in turn.
    """
    window = next((a for a in call.positional if isinstance(a, list)), [1])
    taps = math.prod(window) if "pool2d" in call.operator else 1
    data = call.distinct[0]
    written = sum(t.elements for t in call.outputs)
    tags = (_types(call), "nhwc" if data.channels_last else "", "")
    return _stream(call, (written, taps, math.prod(data.shape[:-2])), tags)


def _stream(call: TensorCall, sizes: Sequence[float], tags: tuple[str, ...]) -> CallWork:
    return CallWork((), "fp32", call.read_bytes, call.written_bytes, logs(sizes), tags)


def _linear(tensor: CallTensor) -> bool:
    """Whether the elements fill a stretch of memory, in whatever order of the axes."""
    axes = sorted((s, d) for d, s in zip(tensor.shape, tensor.strides, strict=True) if d > 1)
    step = 1
    for stride, size in axes:
        if stride != step:
            return False
        step *= size
    return tensor.dense or tensor.channels_last


def _run(tensor: CallTensor) -> int:
    """The number of elements that lie one after another in the order of the axes."""
    run = 1
    for size, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if size > 1 and stride != run:
            return run
        run *= size
    return run


def _types(call: TensorCall) -> str:
    types = [t.dtype for t in (*call.distinct[:1], *call.outputs[:1])]
    return ">".join(dict.fromkeys(types))
