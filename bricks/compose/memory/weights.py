"""The memory that weights take in ONNX Runtime: what its kernels keep, and the peak while loading.

Kernels of products keep a weight packed for their inner loop, instead of the original; blocked
convolutions keep it reordered. Both forms are made while the session is created, each from the one
before, so that loading needs more than running does. Weights are in a file beside the model, which
the runtime maps: they are not copied unless their form changes. Must not know activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bricks.compose.memory.node import node_of
from bricks.decompose.plan import Brick, Plan
from bricks.graph.tensor import TensorType

# Columns of a packed matrix are rounded up to this number.
_PACKED_COLUMNS = 16

# While a weight is reordered, it exists as it is mapped, as it is read, and as it is written; the
# reordered weight is kept besides.
_REORDERING_COPIES = 3

_PRODUCTS = frozenset(("MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm"))
_FUSED = frozenset(("com.microsoft.FusedMatMul", "com.microsoft.FusedGemm"))
# Other kernels that keep a rearranged weight of the same size in place of the original.
_REARRANGED = frozenset(("ConvTranspose", "LSTM", "com.microsoft.Attention"))
# Of these, the one that takes it from the arena, like values; all others take their own memory.
_IN_ARENA = "ConvTranspose"
_BLOCKED = "com.microsoft.nchwc.Conv"


@dataclass(frozen=True, slots=True)
class WeightMemory:
    """The memory of a model's ``count`` weights.

    ``kept_bytes`` stay resident; ``loading_bytes`` are the peak while the model is loaded, and
    ``rewriting_known`` is whether that peak includes the weights that the runtime rewrites when it
    fuses nodes. ``in_arena`` are the sizes of the kept weights that lie in the runtime's arena.
    ``sizeless`` counts weights without a known size (texts), which are left out.
    """

    count: int
    kept_bytes: int
    in_arena: tuple[int, ...]
    loading_bytes: int
    rewriting_known: bool
    sizeless: int


@dataclass(frozen=True, slots=True)
class _Weight:
    """A weight as a kernel keeps it; ``original_bytes`` is its size in the file."""

    original_bytes: int
    kept_bytes: int
    form: str  # "mapped", "packed" or "reordered"
    fused: bool = False
    in_arena: bool = False


def weight_memory(plan: Plan, bricks: Mapping[str, Brick]) -> WeightMemory:
    """The memory of ``plan``'s weights, each counted once however many occurrences share it."""
    weights, sizeless = _distinct(plan, bricks)
    reordered = [w for w in weights if w.form == "reordered"]
    packed = [w for w in weights if w.form == "packed"]
    reordering = total = 0
    for weight in reordered:
        total += weight.kept_bytes
        reordering = max(reordering, total + _REORDERING_COPIES * weight.original_bytes)
    packing = total
    for weight in sorted(packed, key=lambda w: w.fused):  # nodes that fusion made come last
        total += weight.kept_bytes
        packing = max(packing, total + weight.original_bytes)
    rewritten = plan.rewritten_bytes
    return WeightMemory(
        count=len(weights),
        kept_bytes=sum(w.kept_bytes for w in weights),
        in_arena=tuple(w.kept_bytes for w in packed if w.in_arena),
        loading_bytes=max((rewritten or 0) + reordering, packing),
        rewriting_known=rewritten is not None,
        sizeless=sizeless,
    )


def _distinct(plan: Plan, bricks: Mapping[str, Brick]) -> tuple[list[_Weight], int]:
    """The weights in the order of their first use, and the number of those without a size."""
    kinds = {key: list(_weights_of(bricks[key])) for key in plan.keys}
    found: list[_Weight] = []
    forms: dict[int, set[str]] = {}  # by the weight's number
    sizeless = 0
    for occurrence in plan.occurrences:
        for position, weight in enumerate(kinds[occurrence.brick]):
            numbers = occurrence.weights
            number = numbers[position] if position < len(numbers) else None
            if number is not None:
                seen = forms.setdefault(number, set())
                form = "" if weight is None else weight.form
                if form in seen:
                    continue
                seen.add(form)
            if weight is None:
                sizeless += 1
            else:
                found.append(weight)
    return found, sizeless


def _weights_of(brick: Brick) -> Iterator[_Weight | None]:
    """The weights of a brick in their order; None for one without a known size."""
    operator = brick.operators[0] if len(brick.operators) == 1 else ""
    node = node_of(brick) if operator in _PRODUCTS else None
    ports = dict(enumerate(node.weights)) if node is not None else {}
    for position, type_ in enumerate(brick.weights.values()):
        if type_.dtype == "STRING" or not isinstance(type_, TensorType):
            yield None
            continue
        size, rank = type_.size_bytes, len(type_.shape)
        if operator == _BLOCKED and rank == 4:
            yield _Weight(size, size, "reordered")
        elif operator in _REARRANGED and rank >= 2:
            yield _Weight(size, size, "packed", in_arena=operator == _IN_ARENA)
        elif node is not None and ports.get(position) == 1 and rank == 2 and type_.dtype == "FLOAT":
            transposed = bool(node.number("transB"))
            rows, columns = type_.shape[::-1] if transposed else type_.shape
            padded = -(-columns // _PACKED_COLUMNS) * _PACKED_COLUMNS
            yield _Weight(size, 4 * rows * padded, "packed", fused=operator in _FUSED)
        else:
            yield _Weight(size, size, "mapped")
