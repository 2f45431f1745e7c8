"""Compares two targets: the latency of each brick on both, and the effect on models.

Here because a comparison must hide nothing: old and new may be two versions of a runtime, two
numbers of threads, or two hosts. A change common to all bricks (a machine that has drifted, say) is
distinguished from changes of single bricks, and every ratio includes both. Must not know how
measurements came about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from bricks.analysis.significance import MACHINE_DRIFT, LogRatio, Ratio, judge
from bricks.analysis.target_data import BrickLatency, TargetData, TargetLatencies
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.samples.statistics import NORMAL_95, spread

if TYPE_CHECKING:
    from bricks.system.target import Target
    from bricks.units.facts import Named
    from bricks.units.interval import Interval

# A ratio in JSON.
_RATIO: tuple[Named, ...] = (
    ("ratio.interval", "ratio", "low", "high"), ("ratio.beyond_noise", "beyond_noise"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class BrickDifference:
    """A brick measured on both targets: its latencies in seconds, call overhead included.

    ``rounds`` are the numbers of rounds on the old and on the new target. ``models`` have the brick
    on both. ``disturbed`` says
    that on one of the two targets all its rounds were disturbed by other processes: they count as a
    single one. ``operators`` are empty until they are looked up.
    """

    FACTS: ClassVar = (
        "brick", "operators", "old_s", "new_s", *_RATIO, "rounds", "models", "disturbed",
    )  # fmt: skip

    brick: str
    old_s: float
    new_s: float
    ratio: Ratio
    rounds: tuple[int, int]
    models: tuple[str, ...]
    disturbed: bool
    operators: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of one brick to a model on each target, in seconds, and its occurrences.

    ``predicted`` says that the brick was not measured on at least one of them. ``operators`` are
    empty until they are looked up.
    """

    FACTS: ClassVar = (
        "brick", "old_occurrences", "new_occurrences", "old_s", "new_s", "predicted", "operators",
        "difference_s", "replaced",
    )  # fmt: skip

    brick: str
    old_occurrences: int
    new_occurrences: int
    old_s: float
    new_s: float
    predicted: bool
    operators: tuple[str, ...] = ()

    @property
    def difference_s(self) -> float:
        """The seconds by which the brick slows the model down."""
        return self.new_s - self.old_s

    @property
    def replaced(self) -> bool:
        """Whether only one target executes it."""
        return 0 in (self.old_occurrences, self.new_occurrences)


OfBrick = TypeVar("OfBrick", BrickDifference, Contribution)


@dataclass(frozen=True, slots=True)
class ModelDifference:
    """A model's estimates on both targets, and the bricks behind the difference: largest first.

    Contributions and the difference of ``call_overhead_s`` add up to the difference of the
    estimates. ``disturbed_share`` is the share that was measured only in disturbed rounds, on the
    target where that is larger.
    """

    FACTS: ClassVar = (
        "model", ("old.estimate_s", "old_s"), ("new.estimate_s", "new_s"), *_RATIO,
        "predicted_share", "disturbed_share", "call_overhead_difference_s", "gone_s", "come_s",
        "contributions",
    )  # fmt: skip

    model: str
    old: Estimate
    new: Estimate
    ratio: Ratio
    contributions: tuple[Contribution, ...]
    disturbed_share: float

    @property
    def predicted_share(self) -> float:
        """The unmeasured share, on the target where that is larger."""
        return max(self.old.predicted_share, self.new.predicted_share)

    @property
    def call_overhead_difference_s(self) -> float:
        """The seconds by which call overhead slows the model down."""
        return self.new.call_overhead_s - self.old.call_overhead_s

    @property
    def gone_s(self) -> float:
        """Seconds of the bricks that only the old target executes."""
        return sum(c.old_s for c in self.contributions if not c.new_occurrences)

    @property
    def come_s(self) -> float:
        """Seconds of the bricks that only the new target executes."""
        return sum(c.new_s for c in self.contributions if not c.old_occurrences)


@dataclass(frozen=True, slots=True)
class IncomparableModel:
    """A model that cannot be compared, and why, in one line."""

    model: str
    error: str


@dataclass(frozen=True, slots=True)
class CommonChange:
    """The change common to all bricks: the median of their ratios, with a 95 % interval.

    The interval is that of the median; it does not say whether machine or runtime is the cause.
    """

    FACTS: ClassVar = (("ratio", "ratio", "low", "high"), "bricks", "unusual")

    ratio: Interval
    bricks: int

    @property
    def unusual(self) -> bool:
        """Whether it exceeds the usual difference between two sessions of one machine."""
        return abs(math.log(self.ratio.value)) > NORMAL_95 * math.sqrt(2) * MACHINE_DRIFT


@dataclass(frozen=True, slots=True)
class ComparedTarget:
    """One of two targets, and its name in the cache."""

    FACTS: ClassVar = (
        "name", ("target.key", "key"), ("target.system", "system"), ("target.runtime", "runtime"),
    )  # fmt: skip

    name: str
    target: Target


@dataclass(frozen=True, slots=True)
class Difference:
    """Two targets compared; ``models`` and ``incomparable`` together are all requested models."""

    old: ComparedTarget
    new: ComparedTarget
    common: CommonChange | None
    bricks: tuple[BrickDifference, ...]
    models: tuple[ModelDifference, ...]
    incomparable: tuple[IncomparableModel, ...]

    @property
    def keys(self) -> list[str]:
        """The keys of all bricks that are compared, or contribute to a model."""
        contributing = [
            contribution.brick for model in self.models for contribution in model.contributions
        ]
        return list(dict.fromkeys([*(brick.brick for brick in self.bricks), *contributing]))

    def with_operators(self, operators: Mapping[str, tuple[str, ...]]) -> Difference:
        """This difference with the operators of each brick, by its key; a key may be missing."""

        def named(part: OfBrick) -> OfBrick:
            return replace(part, operators=operators.get(part.brick, ()))

        models = (
            replace(model, contributions=tuple(map(named, model.contributions)))
            for model in self.models
        )
        return replace(self, bricks=tuple(map(named, self.bricks)), models=tuple(models))

    def regressions(self, most: float) -> list[ModelDifference]:
        """The models that are slower by more than ``most`` (0.03: 3 %), and beyond noise.

        Models that are :meth:`unproven` are excluded.
        """
        return [
            m
            for m in self.models
            if m.ratio.slower and m.ratio.interval.value - 1 > most >= m.predicted_share
        ]

    def unproven(self, most: float) -> list[ModelDifference]:
        """The models of which more than ``most`` was not measured on one of the targets.

        A slowdown of that part by a factor of two would exceed ``most``, and stay unseen.
        """
        return [m for m in self.models if m.predicted_share > most]


def difference(old: TargetData, new: TargetData, digests: Iterable[str]) -> Difference:
    """Compare ``old`` and ``new`` over models; each of ``digests`` is of a model of either."""
    digests = list(digests)
    then, now = TargetLatencies(old), TargetLatencies(new)
    models: list[tuple[ModelDifference, LogRatio]] = []
    incomparable = []
    for digest in digests:
        compared = _model(then, now, digest)
        if isinstance(compared, IncomparableModel):
            incomparable.append(compared)
        else:
            models.append(compared)
    ratios = judge([change for _, change in models])
    bricks = _bricks(then, now, digests)
    logs = [math.log(b.ratio.interval.value) for b in bricks]
    return Difference(
        old=ComparedTarget(old.name, old.target),
        new=ComparedTarget(new.name, new.target),
        common=CommonChange(spread(logs).map(math.exp), len(logs)) if logs else None,
        bricks=tuple(
            sorted(bricks, key=lambda b: (not b.ratio.beyond_noise, -b.ratio.interval.value))
        ),
        models=tuple(
            replace(model, ratio=ratio) for (model, _), ratio in zip(models, ratios, strict=True)
        ),
        incomparable=tuple(incomparable),
    )


def _bricks(
    then: TargetLatencies, now: TargetLatencies, digests: Sequence[str]
) -> list[BrickDifference]:
    models: dict[str, list[str]] = {}
    for digest in digests:
        plans = [known.data.plans.get(digest) for known in (then, now)]
        for key in sorted(set.intersection(*(set(p.keys if p else ()) for p in plans))):
            models.setdefault(key, []).append(plans[0].model if plans[0] else "")
    shared = [key for key in models if key in then.latencies and key in now.latencies]
    pairs = [(then.latencies[key], now.latencies[key]) for key in shared]
    ratios = judge([_change(before, after) for before, after in pairs])
    return [
        BrickDifference(
            brick=key,
            old_s=before.latency_s,
            new_s=after.latency_s,
            ratio=ratio,
            rounds=(before.rounds, after.rounds),
            models=tuple(models[key]),
            disturbed=before.disturbed or after.disturbed,
        )
        for key, (before, after), ratio in zip(shared, pairs, ratios, strict=True)
    ]


def _change(before: BrickLatency, after: BrickLatency) -> LogRatio:
    """The logarithm of a brick's latency after over before, with its standard deviation."""
    both = (before, after)
    return LogRatio(
        math.log(after.latency_s / before.latency_s),
        math.hypot(*(sd for t in both for sd in (t.independent_sd, MACHINE_DRIFT))),
        min(t.degrees_of_freedom for t in both),
    )


def _model(
    then: TargetLatencies, now: TargetLatencies, digest: str
) -> IncomparableModel | tuple[ModelDifference, LogRatio]:
    """The differences of one model; noise is judged later, for all models together."""
    plans = [known.data.plans.get(digest) for known in (then, now)]
    estimates: list[Estimate] = []
    for known, plan, other in zip((then, now), plans, plans[::-1], strict=True):
        if plan is None:
            name = other.model if other else digest
            namesakes = any(p.model == name for p in known.data.plans.values())
            knows = "knows another model of that name" if namesakes else "does not know it"
            return IncomparableModel(
                name, f"{name}: {known.data.name} {knows}: measure it there first"
            )
        estimate = known.recomposed(plan)
        if isinstance(estimate, IncompleteEstimate):
            missing = f"{known.data.name} lacks {estimate.lacks}"
            return IncomparableModel(plan.model, f"{plan.model}: {missing}")
        if not estimate.estimate_s > 0:
            nothing = f"{known.data.name} takes no time for it: there is no ratio"
            return IncomparableModel(plan.model, f"{plan.model}: {nothing}")
        estimates.append(estimate)
    (a, b), (before, after) = [plan for plan in plans if plan is not None], estimates
    deviations = (then.deviation(a, before, b.counts), now.deviation(b, after, a.counts))
    change = LogRatio(math.log(after.estimate_s / before.estimate_s), math.hypot(*deviations))
    model_difference = ModelDifference(
        model=b.model,
        old=before,
        new=after,
        ratio=judge([change])[0],
        contributions=_contributions(before, after),
        disturbed_share=max(then.disturbed_share(a), now.disturbed_share(b)),
    )
    return model_difference, change


def _contributions(before: Estimate, after: Estimate) -> tuple[Contribution, ...]:
    old, new = ({s.brick: s for s in estimate.shares} for estimate in (before, after))
    contributions = []
    for key in dict.fromkeys((*old, *new)):
        sides = (old.get(key), new.get(key))
        (n, s), (m, t) = ((x.occurrences, x.latency_s) if x else (0, 0.0) for x in sides)
        contributions.append(Contribution(key, n, m, s, t, any(x.predicted for x in sides if x)))
    return tuple(sorted(contributions, key=lambda c: -abs(c.difference_s)))
