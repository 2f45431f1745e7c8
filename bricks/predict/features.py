"""Features of a brick that are known without running it, for learning latencies.

Features are few, and chosen for their effect on latency: the operator, its layout and fused
operators, the shapes of its inner loops, and the total bytes and operations. Bricks of one ``kind``
have the same features in the same columns, so that they can be compared.

The context of a brick in its model is a feature too: it decides how much of its data is cached.

The same brick takes longer in a model that touches much memory in each run, and in a model where it
occurs only once, because less of the runtime's code and data, of its weights and of its values is
cached. Must not know latencies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import onnx

from bricks.decompose.stretches import SHORTEST
from bricks.graph.form import ModelForm, node_form
from bricks.graph.model_metadata import inner_types, noted_weight_bytes
from bricks.operators.operator import Loops
from bricks.operators.registry import operator_of
from bricks.predict.operator_features import (
    BrickNode,
    Description,
    call_convolution,
    call_product,
    node_convolution,
    node_product,
    node_stream,
    node_types,
    weight_shape,
)

if TYPE_CHECKING:
    from bricks.decompose.occurrence import Usage
    from bricks.decompose.plan import Brick
    from bricks.graph.types import ValueType

CONVOLUTION, PRODUCT, STREAM = (loops.value for loops in Loops)

# The sizes of each kind, in order; all are logarithms to base 2.
SIZES = {
    CONVOLUTION: ("pixels", "width", "terms", "outputs", "groups", "taps", "stride", "dilation"),
    PRODUCT: ("batch", "rows", "columns", "terms"),
    STREAM: ("written", "read", "run", "operands", "taps"),
}
# The tags of each kind, in order. The operator is stored separately.
TAGS = {
    CONVOLUTION: ("form", "layout", "dtype", "activation", "summed"),
    PRODUCT: ("form", "layout", "dtype", "activation", "transposed", "weight"),
    STREAM: ("layout", "dtype", "pattern", "mode"),
}

# A node of a stretch of tiny ones takes about a tenth of a call.
_NODE_CALLS = 0.1


@dataclass(frozen=True, slots=True)
class Context:
    """Facts about a brick's model on which latencies depend.

    ``working_set_bytes`` are the weights that the model reads in each run, and its largest values.
    The brick occurs ``repeats`` times in the model, and is this ``share`` of its work. By default
    the model is unknown, and its working set is assumed to exceed every cache. ``slowness`` is the
    host's, in factors of two, which only learned files of earlier versions distinguish.
    """

    working_set_bytes: float = math.inf
    repeats: int = 1
    share: float = 0.0
    slowness: float = 0.0

    def prevailing(self, other: Context | None) -> Context:
        """Return the context in which the brick is the larger share of the model's work."""
        if other is None:
            return self
        return max(self, other, key=lambda c: (c.share, -c.working_set_bytes, c.repeats))


@dataclass(frozen=True, slots=True)
class BrickFeatures:
    """The features of one brick; ``SIZES`` and ``TAGS`` describe ``sizes`` and ``tags``.

    ``operator`` is its operator, or all of them joined by ``+``. ``flops`` is 0 where the work is
    not known. ``weight_bytes`` are the bytes of weights read: of a table, only the selected rows.
    ``pieces`` is the number of contiguous memory stretches accessed, 0 if unknown.
    ``context_bytes`` is the approximate size of all weights of its model, noted in bricks that are
    bound by reading their weights; None in others.
    """

    kind: str
    operator: str
    tags: tuple[str, ...]
    sizes: tuple[float, ...]
    flops: float
    read_bytes: float
    written_bytes: float
    weight_bytes: float
    pieces: float
    context_bytes: float | None = None
    context: Context = Context()

    @property
    def calls(self) -> float:
        """The overhead in calls of the runtime: one, and a share for each of many nodes."""
        nodes = self.operator.count("+") + 1
        return 1.0 + _NODE_CALLS * nodes if nodes >= SHORTEST else 1.0

    def tag(self, name: str) -> str:
        """Return the feature tag called ``name``; ``ValueError`` if its kind has none."""
        return self.tags[TAGS[self.kind].index(name)]

    @property
    def kernel(self) -> str:
        """The operator and its variant, for which runtimes have a separate kernel.

        All operators that are a single matrix product share the kernels of their data type.
        """
        variant = self.tag("pattern" if self.kind == STREAM else "form")
        if self.kind == PRODUCT and "+" not in self.operator:
            return f"{self.tag('dtype')} product {variant}"
        return f"{self.operator} {variant}"

    @property
    def moved_bytes(self) -> float:
        """The bytes of values and weights that are read or written."""
        return self.read_bytes + self.written_bytes + self.weight_bytes

    @property
    def work_bytes(self) -> float:
        """A rough amount of work in bytes, as :func:`bricks.decompose.plan.work_of` counts it."""
        return 1.0 + self.flops / 20 + self.moved_bytes


def extract_features(brick: Brick) -> BrickFeatures:
    """Extract the features of ``brick``; of several nodes, the likely slowest one is described.

    The context is the one noted in the brick, without its model's; see
    :func:`bricks.predict.features.in_context`.
    """
    model = onnx.ModelProto.FromString(brick.model)
    heaviest = min(
        model.graph.node, key=lambda node: _ORDER.index(operator_of(node).features.loops)
    )
    stated = {**inner_types(model), **brick.inputs, **brick.weights, **brick.outputs}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    node = BrickNode(heaviest, node_types(model, stated), constants)
    form, loops = node_form(heaviest), node.features.loops
    tags, sizes = _DESCRIBED[form][loops](node)
    read, written, weights = _bytes(brick, node)
    pieces = max(sizes[:2]) / max(1.0, sizes[2]) if loops is Loops.STREAM else 0.0
    context_bytes = noted_weight_bytes(model)
    return BrickFeatures(
        kind=loops.value,
        operator="+".join(brick.operators),
        tags=tags,
        sizes=tuple(math.log2(max(1.0, size)) for size in sizes),
        flops=_flops(brick, node, form, sizes),
        read_bytes=read,
        written_bytes=written,
        weight_bytes=weights,
        pieces=pieces,
        context_bytes=context_bytes,
        context=Context() if context_bytes is None else Context(context_bytes),
    )


def _bytes(brick: Brick, node: BrickNode) -> tuple[float, float, float]:
    """The bytes read, the bytes written, and the bytes of weights read."""
    weights = brick.numeric_weight_bytes
    written = sum(_size_bytes(t) for t in brick.outputs.values())
    read = brick.bytes_moved - weights - written
    if len(brick.operators) == 1 and node.features.selects:
        read, weights = min(read, written), min(weights, written)
    return float(read), float(written), float(weights)


def _flops(brick: Brick, node: BrickNode, form: ModelForm, sizes: Sequence[float]) -> float:
    flops = float(brick.flops or 0)
    if len(brick.operators) > 1 or form is ModelForm.PROGRAMS:
        return flops
    if node.features.window and sizes[4] > 1:
        return min(flops, sizes[0] * sizes[4])  # `streams` bounds windows that are too large
    if node.features.loops is Loops.CONVOLUTION:
        return flops * sizes[5] / max(1, math.prod(weight_shape(node)[2:]))
    return flops


def _size_bytes(type_: ValueType) -> int:
    try:
        return type_.size_bytes
    except KeyError:  # strings
        return 0


# Loops by their likely latency, the longest first.
_ORDER = (Loops.CONVOLUTION, Loops.PRODUCT, Loops.STREAM)
_DESCRIBED: Mapping[ModelForm, Mapping[Loops, Callable[[BrickNode], Description]]] = {
    ModelForm.MODELS: {
        Loops.CONVOLUTION: node_convolution,
        Loops.PRODUCT: node_product,
        Loops.STREAM: node_stream,
    },
    ModelForm.PROGRAMS: {
        Loops.CONVOLUTION: call_convolution,
        Loops.PRODUCT: call_product,
        Loops.STREAM: node_stream,
    },
}


def contexts(
    models: Iterable[Mapping[str, Usage]],
    features: Mapping[str, BrickFeatures],
    unseen_bytes: int = 0,
) -> dict[str, Context]:
    """Return the context of each brick of ``models``, each a :attr:`Plan.usage`.

    Of several models, the context is in the one of whose work the brick is the largest share,
    because the brick is measured in this model. Bricks without ``features`` are ignored. Each model
    has ``unseen_bytes`` of weights besides those of its bricks.
    """
    by_key: dict[str, Context] = {}
    for usage in models:
        for key, context in _of_model(usage, features, unseen_bytes).items():
            by_key[key] = context.prevailing(by_key.get(key))
    return by_key


def in_context(
    features: Mapping[str, BrickFeatures], models: Iterable[Mapping[str, Usage]]
) -> dict[str, BrickFeatures]:
    """Return ``features`` with the contexts of ``models``; other bricks keep their context."""
    by_key = contexts(models, features)
    return {key: replace(t, context=by_key.get(key, t.context)) for key, t in features.items()}


def slowed(features: Mapping[str, BrickFeatures], slowness: float) -> dict[str, BrickFeatures]:
    """Return ``features`` with this slowness of the host, which some learned files distinguish."""
    if not slowness:
        return dict(features)
    return {
        key: replace(t, context=replace(t.context, slowness=slowness))
        for key, t in features.items()
    }


def _of_model(
    usage: Mapping[str, Usage], features: Mapping[str, BrickFeatures], unseen_bytes: int
) -> dict[str, Context]:
    known = {key: features[key] for key in usage if key in features}
    weight_bytes = sum(usage[key].copies * t.weight_bytes for key, t in known.items())
    # Twice the values of the largest brick: about what is live at most, and what was live before.
    live_bytes = 2 * max((t.read_bytes + t.written_bytes for t in known.values()), default=0.0)
    working_set_bytes = weight_bytes + unseen_bytes + live_bytes
    works = {key: usage[key].occurrences * t.work_bytes for key, t in known.items()}
    all_work = sum(works.values())
    return {
        key: Context(working_set_bytes, usage[key].occurrences, works[key] / all_work)
        for key in known
    }
