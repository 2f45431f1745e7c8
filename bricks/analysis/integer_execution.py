"""How a quantised model is executed: in integers, converted, or still in floats, and with what.

From the operators that the runtime really executes, with their latencies, next to those of the
model file. Which instructions a runtime's kernels use is not known, only which the processor has.
Must not know how it is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from bricks.analysis.operator_times import titles_of
from bricks.backends.quantising import computes_in_integers, quantised
from bricks.graph.topology import all_nodes
from bricks.graph.types import TensorType
from bricks.graph.view import parse_model
from bricks.operators.operator import Loops
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.analysis.explanation import Explanation, Part
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.system import System

# Operators that a quantised file has around those that compute in floats.
_IN_FILE = frozenset(("QuantizeLinear", "DequantizeLinear"))
_CONVERTING = _IN_FILE | {"DynamicQuantizeLinear"}
_CAST, _SUM = "Cast", "INT32"
# Instructions that multiply 8-bit integers and add up in 32 bits.
_INSTRUCTIONS = frozenset(("avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm"))


class Numbers(StrEnum):
    """The numbers in which a kernel computes.

    ``INTEGERS`` are of 8 bits. ``CONVERSIONS`` only make one kind of numbers from another.
    ``FLOAT_PRODUCTS`` are convolutions and products of matrices in floats, ``OTHERS`` the rest.
    """

    INTEGERS = "8-bit integers"
    CONVERSIONS = "conversions"
    FLOAT_PRODUCTS = "float products"
    OTHERS = "other operators"


@dataclass(frozen=True, slots=True)
class NumbersTime:
    """The executed nodes of one kind of ``numbers``, their seconds in a run, and their share.

    A node may be several operators as one; ``products`` are the convolutions and products of
    matrices among them. ``operators`` are the names, with the types of integer products, the one
    that takes longest first.
    """

    numbers: Numbers
    nodes: int
    products: int
    total_s: float
    share: float
    operators: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FloatVersion:
    """The model of the same inputs in floats: its ``latency_s``, and those of two kinds of kernels.

    All are seconds of one run.
    """

    model: str
    latency_s: float
    products_s: float
    others_s: float


@dataclass(frozen=True, slots=True)
class IntegerExecution:
    """How a quantised model is executed.

    The file has ``in_file`` QuantizeLinear and DequantizeLinear nodes, of which ``apart`` are
    kernels of their own: the others are parts of kernels, or were computed before any run.
    ``instructions`` are the processor's for 8-bit products; None if its instructions are not known.
    ``floats`` is the same model in floats, None unless given.
    """

    in_file: int
    apart: int
    times: tuple[NumbersTime, ...]
    instructions: tuple[str, ...] | None
    floats: FloatVersion | None = None

    FACTS: ClassVar = ("in_file", "apart", "times", "instructions", "floats")

    def time(self, numbers: Numbers) -> NumbersTime:
        """The kernels of one kind of numbers, which may be none."""
        none = NumbersTime(numbers, 0, 0, 0.0, 0.0, ())
        return next((time for time in self.times if time.numbers is numbers), none)


def integer_execution(
    model: Model, explanation: Explanation, bricks: Mapping[str, Brick], system: System
) -> IntegerExecution | None:
    """How ``model`` is executed by its ``explanation`` on ``system``; None if it is in floats.

    ``bricks`` are those of the explanation, by key.
    """
    nodes = list(all_nodes(parse_model(model.skeleton).graph))
    if not quantised(nodes):
        return None
    sets = system.identity.get("instruction_sets")
    return IntegerExecution(
        in_file=sum(node.op_type in _IN_FILE for node in nodes),
        apart=sum(
            part.occurrences * sum(name in _IN_FILE for name in titles_of(part))
            for part in explanation.parts
            if _numbers(part, bricks[part.brick]) is Numbers.CONVERSIONS
        ),
        times=_times(explanation, bricks),
        instructions=None if sets is None else tuple(n for n in sets if n in _INSTRUCTIONS),
    )


def float_version(model: str, latency_s: float, parts: Sequence[Part]) -> FloatVersion:
    """The version in floats that takes ``latency_s``, in these ``parts``."""
    seconds = {True: 0.0, False: 0.0}
    for part in parts:
        seconds[_products(part) > 0] += part.total_s
    return FloatVersion(model, latency_s, seconds[True], seconds[False])


def _times(explanation: Explanation, bricks: Mapping[str, Brick]) -> tuple[NumbersTime, ...]:
    """Each kind of numbers that has a kernel, in the order of :class:`Numbers`."""
    parts: dict[Numbers, list[Part]] = defaultdict(list)
    for part in explanation.parts:
        parts[_numbers(part, bricks[part.brick])].append(part)
    times = []
    for numbers in Numbers:
        if of := parts[numbers]:
            seconds: dict[str, float] = defaultdict(float)
            for part in of:
                seconds[_title(part, bricks[part.brick], numbers)] += part.total_s
            times.append(
                NumbersTime(
                    numbers,
                    sum(part.occurrences for part in of),
                    sum(part.occurrences * _products(part) for part in of),
                    sum(part.total_s for part in of),
                    sum(part.share for part in of),
                    tuple(sorted(seconds, key=lambda name: -seconds[name])),
                )
            )
    return tuple(times)


def _products(part: Part) -> int:
    """The number of convolutions and products of matrices in a part."""
    rows = map(operator_called, part.operators)
    return sum(row.features.loops is not Loops.STREAM for row in rows)


def _numbers(part: Part, brick: Brick) -> Numbers:
    """The numbers in which a kernel computes.

    A kernel with a product and its conversions, as OpenVINO makes it, computes in integers.
    """
    names = titles_of(part)
    if any(map(computes_in_integers, names)):
        return Numbers.INTEGERS
    if _products(part):
        return Numbers.FLOAT_PRODUCTS if _IN_FILE.isdisjoint(names) else Numbers.INTEGERS
    sums = _SUM in (type_.dtype for type_ in brick.inputs.values())
    if all(name in _CONVERTING or (name == _CAST and sums) for name in names):
        return Numbers.CONVERSIONS
    return Numbers.OTHERS


def _title(part: Part, brick: Brick, numbers: Numbers) -> str:
    """The operators of a kernel; of an integer product, also the types of its factors."""
    name = "+".join(titles_of(part))
    factors = [
        type_.dtype.lower()
        for type_ in (*brick.inputs.values(), *brick.weights.values())
        if isinstance(type_, TensorType) and len(type_.shape) > 1
        if type_.dtype in ("INT8", "UINT8")
    ]
    if numbers is not Numbers.INTEGERS or len(factors) < 2:
        return name
    return f"{name} ({factors[0]} × {factors[1]})"
