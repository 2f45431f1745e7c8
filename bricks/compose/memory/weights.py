"""The memory of weights in ONNX Runtime, and of the workspaces of its kernels.

Kernels of products keep a weight packed for their inner loop, instead of the original; blocked
convolutions keep it reordered. Both forms are made while the session is created, each from the form
before, so that loading needs more memory than running. Weights are in a file next to the model,
which the runtime maps: they are copied only if their form changes.

Workspaces are what kernels allocate from the arena while they run.

They are buffers for im2col, transposed copies, scores of attention. Each rule of ``operators``
follows from the runtime's resident memory before and during a run of the operator; a test repeats
the comparison. An operator without a rule has an unknown workspace. Must not know activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import onnx

from bricks.graph.payload import type_of
from bricks.graph.types import TensorType
from bricks.operators.node import Node
from bricks.operators.operator import WeightForm, no_workspace
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Plan
    from bricks.graph.types import ValueType

# Columns of a packed matrix are rounded up to this number.
_PACKED_COLUMNS = 16

# While a weight is reordered, it exists as it is mapped, as it is read, and as it is written; the
# reordered weight is kept besides.
_REORDERING_COPIES = 3

_PACKED = (WeightForm.PACKED, WeightForm.PACKED_BY_FUSION)
_REARRANGED = (WeightForm.REARRANGED, WeightForm.REARRANGED_IN_ARENA)


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
    form: WeightForm = WeightForm.MAPPED

    @property
    def packed(self) -> bool:
        """Whether a kernel replaces the original by a copy in the form of its inner loop."""
        return self.form in (*_PACKED, *_REARRANGED)


def weight_memory(plan: Plan, bricks: Mapping[str, Brick]) -> WeightMemory:
    """Return the memory of ``plan``'s weights; a weight that occurrences share counts once."""
    weights, sizeless = _distinct(plan, bricks)
    reordered = [w for w in weights if w.form is WeightForm.BLOCKED]
    packed = [w for w in weights if w.packed]
    reordering = total = 0
    for weight in reordered:
        total += weight.kept_bytes
        reordering = max(reordering, total + _REORDERING_COPIES * weight.original_bytes)
    packing = total
    for weight in sorted(packed, key=lambda w: w.form is WeightForm.PACKED_BY_FUSION):
        total += weight.kept_bytes
        packing = max(packing, total + weight.original_bytes)
    rewritten = plan.rewritten_bytes
    return WeightMemory(
        count=len(weights),
        kept_bytes=sum(w.kept_bytes for w in weights),
        in_arena=tuple(w.kept_bytes for w in packed if w.form is WeightForm.REARRANGED_IN_ARENA),
        loading_bytes=max((rewritten or 0) + reordering, packing),
        rewriting_known=rewritten is not None,
        sizeless=sizeless,
    )


def _distinct(plan: Plan, bricks: Mapping[str, Brick]) -> tuple[list[_Weight], int]:
    """The weights in the order of their first use, and the number of weights without a size."""
    weights_by_brick = {key: list(_weights_of(bricks[key])) for key in plan.keys}
    weights: list[_Weight] = []
    forms: dict[int, set[WeightForm | None]] = {}  # by the weight's number
    sizeless = 0
    for occurrence in plan.occurrences:
        for position, weight in enumerate(weights_by_brick[occurrence.brick]):
            numbers = occurrence.weights
            number = numbers[position] if position < len(numbers) else None
            if number is not None:
                seen = forms.setdefault(number, set())
                # Kernels share one form for all kinds of packing.
                packed = weight is not None and weight.packed
                form = WeightForm.PACKED if packed else None if weight is None else weight.form
                if form in seen:
                    continue
                seen.add(form)
            if weight is None:
                sizeless += 1
            else:
                weights.append(weight)
    return weights, sizeless


def _weights_of(brick: Brick) -> Iterator[_Weight | None]:
    """The weights of a brick in their order; None for one without a known size."""
    single = len(brick.operators) == 1
    form = operator_called(brick.operators[0]).weights if single else WeightForm.MAPPED
    node = node_of(brick) if form in _PACKED else None
    for name, type_ in brick.weights.items():
        if type_.dtype == "STRING" or not isinstance(type_, TensorType):
            yield None
            continue
        size, rank = type_.size_bytes, len(type_.shape)
        if (form is WeightForm.BLOCKED and rank == 4) or (form in _REARRANGED and rank >= 2):
            yield _Weight(size, size, form)
        elif node is not None and node.name_at(1) == name and rank == 2 and type_.dtype == "FLOAT":
            rows, columns = type_.shape[::-1] if node.number("transB") else type_.shape
            padded = -(-columns // _PACKED_COLUMNS) * _PACKED_COLUMNS
            yield _Weight(size, 4 * rows * padded, form)
        else:
            yield _Weight(size, size)


def workspace(brick: Brick, threads: int) -> tuple[int, ...] | None:
    """Return the sizes in bytes of the buffers of ``brick``'s kernel; None if unknown."""
    rules = [operator_called(name).workspace for name in brick.operators]
    if all(rule is no_workspace for rule in rules):
        return () if rules else None
    rule = rules[0] if len(rules) == 1 else None
    node = None if rule is None else node_of(brick)
    if rule is None or node is None:
        return None
    try:
        return tuple(size for size in rule(node, threads) if size)
    except (LookupError, ValueError):  # ports or types for which no rule was found
        return None


def node_of(brick: Brick) -> Node | None:
    """Return the node of ``brick``; None if it has several nodes, or bytes that are no model."""
    try:
        model = onnx.ModelProto.FromString(brick.model)
    except Exception:  # protobuf's error classes differ between its implementations
        return None
    if len(model.graph.node) != 1:
        return None
    (proto,) = model.graph.node
    types: dict[str, ValueType] = {t.name: type_of(t) for t in model.graph.initializer}
    types |= {**brick.inputs, **brick.weights, **brick.outputs}
    version = next((o.version for o in model.opset_import if o.domain == proto.domain), 0)
    return Node(proto, types, version=version)
