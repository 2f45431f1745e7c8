"""Calls of a program as they are made, with the shapes and strides of their results.

Those of elementwise results are as PyTorch's ``TensorIterator`` chooses them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from bricks.backends.torch.cuda_calls.listing import CallListing, IssuedCall, Operand
from bricks.backends.torch.cuda_calls.strides import VIEWS, Strides, reordered
from bricks.graph.call import FORWARD
from bricks.graph.program import contiguous
from bricks.graph.types import TensorType

# The type of weights and values, and the namespace of PyTorch's own operators.
DTYPE, ATEN = "BFLOAT16", "aten"


@dataclass(slots=True)
class Tape:
    """Writes calls into a ``listing``; ``weights`` and ``buffers`` exist before the step."""

    listing: CallListing = field(default_factory=lambda: CallListing([], {}, training=False))
    weights: list[str] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)

    def shape(self, of: Operand) -> tuple[int, ...]:
        """The shape of a value."""
        return self.listing.types[of.value].shape

    def weight(self, name: str, *shape: int) -> Operand:
        """A tensor of the module; the same one for the same name."""
        return self._begun(name, shape, self.weights)

    def buffer(self, name: str, *shape: int) -> Operand:
        """A tensor that is no parameter: a part of the cache, or a table."""
        return self._begun(name, shape, self.buffers)

    def _begun(self, name: str, shape: tuple[int, ...], among: list[str]) -> Operand:
        if name not in self.listing.types:
            self.listing.types[name] = TensorType(DTYPE, shape)
            self.listing.begins.append(name)
            among.append(name)
        return Operand(name, 0, contiguous(shape))

    def given(self, name: str, *shape: int) -> Operand:
        """An input of integers."""
        self.listing.types[name] = TensorType("INT64", shape)
        return Operand(name, 0, contiguous(shape))

    def call(
        self,
        operator: str,
        arguments: Sequence[Any],
        shape: Sequence[int],
        strides: Strides | None = None,
        others: Sequence[str] = (),
        named: Mapping[str, Any] | None = None,
        dtype: str = DTYPE,
        namespace: str = ATEN,
    ) -> Operand:
        """A call whose first result has this shape; ``others`` are names of further results."""
        outputs = (self.new(operator, shape, dtype), *others)
        self.listing.calls.append(
            IssuedCall(
                operator, list(arguments), outputs, named or {}, phase=FORWARD, namespace=namespace
            )
        )
        output = outputs[0]
        return Operand(output, 0, contiguous(shape) if strides is None else strides)

    def new(self, operator: str, shape: Sequence[int], dtype: str = DTYPE) -> str:
        """The name of a further result of a call."""
        return self.listing.new(operator.partition(".")[0], dtype, shape)

    def each(self, operator: str, *arguments: Any, **named: Any) -> Operand:
        """A call that makes an element of each element of its operands."""
        operands = [each for each in arguments if isinstance(each, Operand)]
        shape = broadcast([self.shape(each) for each in operands])
        layouts = [(self.shape(each), each.strides) for each in operands]
        return self.call(operator, arguments, shape, result_strides(shape, layouts), named=named)

    def view(
        self, of: Operand, *shape: int, written: Sequence[int] = (), unsafe: bool = False
    ) -> Operand:
        """A view of another ``shape``; ``written`` as the caller gives it, if otherwise."""
        operator = "_unsafe_view" if unsafe else "view"
        strides = VIEWS[operator](self.shape(of), of.strides, [list(shape)])
        assert strides is not None
        return self._shared(operator, of, [list(written or shape)], shape, strides)

    def joined(self, of: Operand) -> Operand:
        """``of`` with the last two dimensions in one: a view, or else a view of a copy."""
        *outer, heads, head = self.shape(of)
        shape, written = (*outer, heads * head), [*outer, -1]
        if VIEWS["view"](self.shape(of), of.strides, [shape]) is not None:
            return self.view(of, *shape, written=written)
        named = {"memory_format": {"format": "contiguous_format"}}
        copy = self.call("clone", [of], self.shape(of), named=named)
        return self.view(copy, *shape, unsafe=True)

    def transposed(self, of: Operand, first: int, second: int) -> Operand:
        """A view with two dimensions exchanged."""
        shape = reordered(self.shape(of), first, second)
        strides = reordered(of.strides, first, second)
        return self._shared("transpose.int", of, [first, second], shape, strides)

    def turned(self, of: Operand) -> Operand:
        """A matrix, transposed."""
        return self._shared("t", of, [], self.shape(of)[::-1], of.strides[::-1])

    def sliced(self, of: Operand, dim: int, begin: int, end: int, length: int) -> Operand:
        """A view of ``length`` elements of a dimension; ``begin`` below 0 counts from the end."""
        shape = list(self.shape(of))
        first = begin % shape[dim] if begin < 0 else begin
        offset, shape[dim] = of.offset + first * of.strides[dim], length
        return self._shared("slice.Tensor", of, [dim, begin, end], shape, of.strides, offset)

    def halves(self, of: Operand) -> tuple[Operand, Operand]:
        """Views of both halves of the last dimension."""
        *outer, width = self.shape(of)
        shape = (*outer, width // 2)
        names = [self.new("split", shape) for _ in range(2)]
        shared = dict.fromkeys(names, of.value)
        arguments = [of, width // 2, -1]
        self.listing.calls.append(
            IssuedCall("split.Tensor", arguments, (*names,), shared=shared, phase=FORWARD)
        )
        first, second = (
            Operand(name, of.offset + at * width // 2 * of.strides[-1], of.strides)
            for at, name in enumerate(names)
        )
        return first, second

    def written(self, into: Operand, dim: int, at: Operand, values: Operand) -> Operand:
        """``into`` with ``values`` at the positions ``at`` of a dimension, in place."""
        return self.changed("index_copy_", into, dim, at, values)

    def changed(
        self, operator: str, of: Operand, *arguments: Any, namespace: str = ATEN
    ) -> Operand:
        """``of`` after a call in place."""
        shape, offset = self.shape(of), of.offset
        return self._shared(operator, of, arguments, shape, of.strides, offset, namespace)

    def widened(self, of: Operand) -> Operand:
        """A view with a last dimension of one element."""
        shape, strides = (*self.shape(of), 1), (*of.strides, 1)
        return self._shared("unsqueeze", of, [-1], shape, strides)

    def _shared(
        self,
        operator: str,
        of: Operand,
        arguments: Sequence[Any],
        shape: Sequence[int],
        strides: Strides,
        offset: int | None = None,
        namespace: str = ATEN,
    ) -> Operand:
        output = self.new(operator, shape, self.listing.types[of.value].dtype)
        shared = {output: of.value}
        self.listing.calls.append(
            IssuedCall(
                operator, [of, *arguments], (output,), shared=shared, phase=FORWARD,
                namespace=namespace,
            )
        )  # fmt: skip
        return Operand(output, of.offset if offset is None else offset, strides)


# The shape of a tensor, and its strides in elements.
Layout = tuple[Sequence[int], Sequence[int]]


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The shape of the result of operands with these shapes."""
    sizes = zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1)
    return tuple(max(of) for of in sizes)[::-1]


def result_strides(shape: Sequence[int], operands: Sequence[Layout]) -> Strides:
    """Strides of the result: dimensions in the order of the operands' strides, without gaps."""
    same = all(tuple(own) == tuple(shape) for own, _ in operands)
    if same and all(_is_contiguous(*operand) for operand in operands):
        return contiguous(shape)
    spread = [_spread(shape, *operand) for operand in operands]
    result, step = [0] * len(shape), 1
    for dim in _order(shape, spread):
        result[dim] = step
        step *= shape[dim]
    return tuple(result)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    plain = contiguous(shape)
    return all(
        size == 1 or own == wanted for size, own, wanted in zip(shape, strides, plain, strict=True)
    )


def _spread(shape: Sequence[int], own: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Strides over the dimensions of the result; 0 where the operand repeats."""
    added = len(shape) - len(own)
    repeated = [size == 1 != whole for size, whole in zip(own, shape[added:], strict=True)]
    known = zip(repeated, strides, strict=True)
    return [0] * added + [0 if repeats else stride for repeats, stride in known]


def _order(shape: Sequence[int], operands: Sequence[Sequence[int]]) -> list[int]:
    """Dimensions from the fastest to the slowest (``reorder_dimensions``)."""
    order = list(range(len(shape)))[::-1]
    for last in range(1, len(order)):
        at = last
        for before in range(last - 1, -1, -1):
            turn = _compared(shape, operands, order[before], order[at])
            if turn < 0:
                break
            if turn > 0:
                order[before], order[at] = order[at], order[before]
                at = before
    return order


def _compared(
    shape: Sequence[int], operands: Sequence[Sequence[int]], first: int, second: int
) -> int:
    """Above 0 where ``first`` is the slower dimension, below 0 where ``second`` is."""
    for strides in operands:
        one, other = strides[first], strides[second]
        if one and other and one != other:
            return 1 if one > other else -1
        if one and other and shape[first] > shape[second]:
            return 1
    return 0
