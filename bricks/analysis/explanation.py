"""An explanation of a model's time: each brick's work, its rates, and the best known latency.

Pure arithmetic on an estimate: for each brick its work, its rates, and their ratio to the machine's
peaks (the roofline of Williams et al., Communications of the ACM, 2009). The lower bound is
Benanza's idea (Li et al., IPDPS 2020): each brick takes as long as the fastest known implementation
of the same work. Must not know how anything was measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import onnx

from bricks.compose.estimate import Estimate, IncompleteEstimate, Share
from bricks.decompose.plan import shapes
from bricks.graph.model_metadata import value_dependence
from bricks.graph.types import TensorType
from bricks.graph.view import parse_model
from bricks.operators.operator import Loops
from bricks.operators.registry import operator_called
from bricks.predict.features import CONVOLUTION, PRODUCT, SIZES, STREAM, BrickFeatures

if TYPE_CHECKING:
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory
    from bricks.decompose.plan import Brick, Plan
    from bricks.session.machine_peaks import Peaks
    from bricks.units.interval import Interval

# Sizes are logarithms: 0 is no dilation.
_DILATION = SIZES[CONVOLUTION].index("dilation")


@dataclass(frozen=True, slots=True)
class BestImplementation:
    """A measured implementation of a brick's work: its brick, target and latency.

    ``half_width_s`` is half the width of the latency's 95 % interval.
    """

    FACTS: ClassVar = ("brick", "target", "latency_s")

    brick: str
    target: str
    latency_s: float
    half_width_s: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class Part:
    """One brick's part of a model. Work and rates are those of one occurrence.

    ``shapes`` shows inputs, weights included, and outputs in readable form. ``latency_s`` is that
    of one occurrence, without the call; ``total_s`` that of all. ``flops`` is None if an operator's
    work is not known. ``bytes`` are read and written, each once. ``models`` is how many other
    models of the cache have the brick on this target. ``fastest`` is the fastest implementation of
    the same work that is known on the system; None if it is this one. ``comparable_flops`` are
    comparable with the peak: operations on 32-bit floats, without those that a kernel skips in the
    padding. None if there are none. ``moved_bytes`` is the minimum traffic: less than ``bytes``
    where windows step over some; None where a runtime may move nothing. ``values`` are facts of
    what it read, by input, where its time depends on values; see ``graph.sketch``. ``net`` is
    ``latency_s`` with its interval; None if only the estimate of the model is known. ``kind`` is
    that of its features. ``device_s`` are the seconds of all its kernels on a device, None without.
    """

    FACTS: ClassVar = (
        "brick", "operator", "shapes", "occurrences", "latency_s", "total_s", "share", "predicted",
        "flops", "bytes", "intensity", "flops_per_s", "bytes_per_s", "peak_share", "bound",
        "values", "models", "lost_s", "fastest", "device_s",
    )  # fmt: skip

    brick: str
    operators: tuple[str, ...]
    shapes: str
    occurrences: int
    total_s: float
    share: float
    predicted: bool
    flops: int | None
    bytes: float
    peaks: Peaks
    models: int
    fastest: BestImplementation | None = None
    comparable_flops: float | None = None
    moved_bytes: float | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    net: Interval | None = None
    kind: str = STREAM
    device_s: float | None = None

    @property
    def operator(self) -> str:
        """Its operators, joined."""
        return "+".join(self.operators)

    @property
    def latency_s(self) -> float:
        """The latency of one occurrence, in seconds."""
        return self.total_s / self.occurrences if self.occurrences else 0.0

    @property
    def work_s(self) -> float:
        """The seconds in which one occurrence does its work: on a device, those of its kernels."""
        if self.device_s is None or not self.occurrences:
            return self.latency_s
        return self.device_s / self.occurrences

    @property
    def intensity(self) -> float | None:
        """Operations per byte."""
        return None if self.flops is None or not self.bytes else self.flops / self.bytes

    @property
    def flops_per_s(self) -> float | None:
        """Operations per second."""
        return None if self.flops is None or not self.work_s else self.flops / self.work_s

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes per second."""
        return self.bytes / self.work_s if self.work_s else None

    @property
    def roof_s(self) -> float | None:
        """The latency of one occurrence at the machine's peaks; None if that is not known."""
        bounds = self._bounds_s
        return None if bounds is None else max(bounds)

    @property
    def _bounds_s(self) -> tuple[float, float] | None:
        """The latency of computing alone, and of moving bytes alone, at the peaks."""
        if self.comparable_flops is None or self.moved_bytes is None:
            return None
        bandwidth = self.peaks.bandwidth(self.moved_bytes)
        if not self.peaks.flops_per_s or not bandwidth:
            return None
        return self.comparable_flops / self.peaks.flops_per_s, self.moved_bytes / bandwidth

    @property
    def peak_share(self) -> float | None:
        """The roofline's latency over its own; values above 1 are noise."""
        roof_s = self.roof_s
        return None if roof_s is None or not self.latency_s else roof_s / self.latency_s

    @property
    def bound(self) -> str | None:
        """The lower roof: ``compute`` or ``memory``."""
        bounds = self._bounds_s
        if bounds is None:
            return None
        return "compute" if bounds[0] >= bounds[1] else "memory"

    @property
    def lost_s(self) -> float:
        """The total excess of its occurrences over the fastest known implementation."""
        if self.fastest is None:
            return 0.0
        return max(0.0, self.total_s - self.occurrences * self.fastest.latency_s)


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """All bricks of one operator, or of one sequence of them."""

    operator: str
    bricks: int
    occurrences: int
    total_s: float
    share: float
    lost_s: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The breakdown of a model's latency; ``parts`` are its bricks, the slowest first.

    An incomplete estimate names its missing bricks: parts are then the known ones, and shares refer
    to their sum.
    """

    estimate: Estimate | IncompleteEstimate
    peaks: Peaks
    parts: tuple[Part, ...]
    memory: PeakMemory | UnknownMemory

    @property
    def operators(self) -> tuple[OperatorPart, ...]:
        """The parts by operator, the one that takes longest first."""
        groups: dict[str, list[Part]] = defaultdict(list)
        for part in self.parts:
            groups[part.operator].append(part)
        found = [
            OperatorPart(
                operator,
                len(parts),
                sum(part.occurrences for part in parts),
                sum(part.total_s for part in parts),
                sum(part.share for part in parts),
                sum(part.lost_s for part in parts),
            )
            for operator, parts in groups.items()
        ]
        return tuple(sorted(found, key=lambda group: (-group.total_s, group.operator)))

    @property
    def fastest_s(self) -> float | None:
        """The latency if each brick were as fast as the fastest known implementation of its work.

        None if the estimate is incomplete. That is a lower bound given the contents of the cache.
        """
        if isinstance(self.estimate, IncompleteEstimate):
            return None
        return self.estimate.estimate_s - sum(part.lost_s for part in self.parts)


def explain(
    plan: Plan,
    estimate: Estimate | IncompleteEstimate,
    bricks: Mapping[str, Brick],
    features: Mapping[str, BrickFeatures],
    *,
    peaks: Peaks,
    models: Mapping[str, int],
    fastest: Mapping[str, BestImplementation],
    memory: PeakMemory | UnknownMemory,
    net: Mapping[str, Interval],
) -> Explanation:
    """The breakdown of ``estimate``; all mappings have keys of bricks.

    Bricks that cost nothing (views of other values) are parts too. ``fastest`` holds only bricks
    with a faster implementation. ``net`` are the latencies of single occurrences, in seconds.
    """

    def part(share: Share) -> Part:
        brick, of = bricks[share.brick], features[share.brick]
        return Part(
            brick=brick.key,
            operators=brick.operators,
            shapes=shapes(brick),
            occurrences=share.occurrences,
            total_s=share.latency_s,
            share=share.share,
            predicted=share.predicted,
            flops=brick.flops,
            bytes=of.read_bytes + of.written_bytes + of.weight_bytes,
            peaks=peaks,
            models=models.get(share.brick, 0),
            fastest=fastest.get(share.brick),
            comparable_flops=None if brick.flops is None else _comparable(brick, of),
            moved_bytes=_moved_bytes(brick, of),
            values=value_dependence(parse_model(brick.model)),
            net=net.get(share.brick),
            kind=of.kind,
            device_s=share.device_s,
        )

    parts = sorted(map(part, estimate.shares), key=lambda each: (-each.total_s, each.brick))
    return Explanation(estimate, peaks, tuple(parts), memory)


def _comparable(brick: Brick, features: BrickFeatures) -> float | None:
    """The operations that a peak of 32-bit floats may be held against; None for other products."""
    if features.kind in (CONVOLUTION, PRODUCT) and features.tag("dtype") != "FLOAT":
        return None
    if features.kind == CONVOLUTION and features.flops and features.sizes[_DILATION] > 0:
        # Kernels skip rows that lie in the padding, which features know; where windows are dilated,
        # about as many columns do.
        return features.flops * min(1.0, features.flops / (brick.flops or features.flops))
    return features.flops


def _moved_bytes(brick: Brick, features: BrickFeatures) -> float | None:
    """The minimum bytes read and written; None for a view of its input, which moves nothing."""
    rows = [operator_called(name) for name in brick.operators]
    if all(row.view for row in rows):
        return None
    moved = features.read_bytes + features.written_bytes + features.weight_bytes
    if any(row.features.slides for row in rows):
        first = next((t for t in brick.inputs.values() if isinstance(t, TensorType)), None)
        if first is not None:
            moved -= (1 - _read_share(brick)) * first.size_bytes
    return moved


def _read_share(brick: Brick) -> float:
    """The share of its input that windows read whose stride exceeds their size."""
    share = 1.0
    for node in onnx.ModelProto.FromString(brick.model).graph.node:
        given = {attribute.name: attribute.ints for attribute in node.attribute}
        sizes, steps = given.get("kernel_shape", ()), given.get("strides", ())
        for size, step in zip(sizes, steps, strict=False):
            share *= min(1.0, size / step) if step > 0 else 1.0
    return share


def _not_fused(operators: str) -> list[str]:
    """The operators of a brick that are not part of its one convolution or product."""
    names = operators.split("+")
    rows = {name: operator_called(name) for name in names}
    products = [name for name in names if rows[name].features.loops is not Loops.STREAM]
    others = (name for name in names if name not in products and not rows[name].absorbed)
    apart = sorted(name.rpartition(".")[2] for name in (*products[1:], *others))
    return [] if len(names) == 1 else apart


def same_work(features: BrickFeatures) -> tuple[object, ...]:
    """A key shared by bricks that do the same work, in any layout or implementation.

    For convolutions and products it holds sizes, types and fused operators; for all others the
    operator too. Weights in a cache and weights in memory are not the same work.
    """
    kind = features.kind
    sizes = (*(round(size, 6) for size in features.sizes), features.context_bytes)
    if kind in (CONVOLUTION, PRODUCT):
        names = ("dtype", "activation", "summed" if kind == CONVOLUTION else "weight")
        return (kind, *map(features.tag, names), sizes, *_not_fused(features.operator))
    operator = tuple(name.rpartition(".")[2] for name in features.operator.split("+"))
    tags = features.tag("dtype"), features.tag("pattern"), features.tag("mode")
    return (kind, operator, *tags, sizes, features.flops)
