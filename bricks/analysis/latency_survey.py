"""Latencies of all models that a cache knows, on each of its targets, as input of a report.

Here because plans and measurements suffice for it, also those from other hosts: nothing is measured
or decomposed, and no model's file is needed. Must not know how it is shown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Brick, Decomposition, Plan, shapes, titles
from bricks.errors import StoreError
from bricks.samples.call_overhead import needed_by
from bricks.samples.measurement import Failure, Measurement, round_spread
from bricks.session.agreement import kept
from bricks.session.whole_models import memory_of_plan
from bricks.studies.inference.result import ModelComparison, Summary, summarise
from bricks.zoo import entries, programs

if TYPE_CHECKING:
    from bricks.session.agreement import Agreement
    from bricks.session.workspace import Workspace
    from bricks.store.reading import TimedPlan
    from bricks.system import Target
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """The time of one operator, or of one sequence of them, in a run of a model.

    Operators of one name count together, whatever their domain.
    """

    operator: str
    occurrences: int
    total_s: float
    share: float


@dataclass(frozen=True, slots=True)
class BrickTime:
    """The time of a brick's occurrences in one run of each model that has it."""

    brick: str
    operator: str
    shapes: str
    models: int
    occurrences: int
    total_s: float
    share: float

    @property
    def latency_s(self) -> float:
        """The latency of one occurrence, in seconds."""
        return self.total_s / self.occurrences if self.occurrences else 0.0


@dataclass(frozen=True, slots=True)
class SurveyedModel:
    """One model on one target. ``title`` distinguishes it from others of its name.

    ``flops`` and ``weight_bytes`` are those of the executed graph; the first is None where the work
    of an operator is not known. ``measured_s`` is the latency of the whole model; None if it was
    never run. ``task`` is None for models outside the zoo. ``operators`` are in order of decreasing
    time.
    """

    title: str
    plan: Plan
    task: str | None
    flops: int | None
    weight_bytes: int
    recomposed: Estimate | IncompleteEstimate
    memory: PeakMemory | UnknownMemory
    measured_s: Interval | None
    operators: tuple[OperatorShare, ...]

    @property
    def estimate(self) -> Estimate | None:
        """Its estimate; None if that is incomplete."""
        return self.recomposed if isinstance(self.recomposed, Estimate) else None

    @property
    def batch(self) -> int:
        """The number of samples in one run: the first dimension of the first input, or 1."""
        first = self.plan.types[self.plan.inputs[0]] if self.plan.inputs else None
        shape = getattr(first, "shape", ())
        return max(1, int(shape[0])) if shape else 1

    @property
    def peak_bytes(self) -> int | None:
        """Its predicted peak memory; None where it is not predicted."""
        return self.memory.peak_bytes if isinstance(self.memory, PeakMemory) else None

    @property
    def ratio(self) -> float | None:
        """Estimate over measured latency; None unless both are known."""
        if self.estimate is None or self.measured_s is None:
            return None
        return self.estimate.estimate_s / self.measured_s.value


@dataclass(frozen=True, slots=True)
class SurveyedTarget:
    """Models on one target. ``measured`` and ``failed`` count bricks of the models.

    ``summary`` compares the models that were also run as a whole; its wall times exclude reading
    model files. ``costly`` are the bricks of all models, in order of decreasing total time.
    """

    target: Target
    models: tuple[SurveyedModel, ...]
    bricks: int
    measured: int
    failed: int
    summary: Summary
    costly: tuple[BrickTime, ...]

    @property
    def estimated(self) -> tuple[SurveyedModel, ...]:
        """The models with an estimate, the slowest first."""
        known = [model for model in self.models if model.estimate is not None]
        return tuple(sorted(known, key=lambda m: -m.estimate.estimate_s if m.estimate else 0.0))

    @property
    def incomplete(self) -> tuple[SurveyedModel, ...]:
        """The models that lack measurements."""
        return tuple(model for model in self.models if model.estimate is None)


@dataclass(frozen=True, slots=True)
class LatencySurvey:
    """Models by target. The first target is ``here`` if that is known, else one with most models.

    ``unmeasured`` are targets on which models were decomposed but nothing was measured.
    ``agreements`` are kept verdicts on models that several runtimes ran.
    """

    granularity: str
    here: Target
    targets: tuple[SurveyedTarget, ...]
    unmeasured: tuple[Target, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def main(self) -> SurveyedTarget:
        """The target that a report begins with."""
        return self.targets[0]

    @property
    def models(self) -> int:
        """The number of different models."""
        return len({model.plan.digest for view in self.targets for model in view.models})

    @property
    def systems(self) -> int:
        """The number of different systems."""
        return len({view.target.system.key for view in self.targets})


def survey(
    workspace: Workspace,
    targets: Sequence[Target],
    wanted: Callable[[Plan], bool],
    translated: Mapping[str, Sequence[Plan]] = MappingProxyType({}),
) -> LatencySurvey:
    """The models on ``targets`` that are ``wanted``, cut at the granularity of ``workspace``.

    ``translated`` are plans of further programs, by key of the target whose calls they have. Raises
    :class:`StoreError` if nothing is known of them.
    """
    found, unmeasured = [], []
    cut = str(workspace.granularity)
    for target in targets:
        plans = [each for each in workspace.known.plans.all(target.key, cut) if wanted(each[0])]
        plans += [(plan, 0.0) for plan in translated.get(target.key, ())]
        if not plans:
            continue
        surveyed = _Surveyor(workspace, target, plans).target_view()
        if surveyed.measured or surveyed.failed:
            found.append(surveyed)
        else:
            unmeasured.append(target)
    if not found:
        raise StoreError("no model is measured there")
    here = workspace.target
    found.sort(
        key=lambda view: (
            view.target.key != here.key,
            view.target.system.key != here.system.key,
            -len(view.estimated),
            view.target.system.name,
            view.target.key,
        )
    )
    return LatencySurvey(cut, here, tuple(found), tuple(unmeasured), tuple(_agreements(found)))


def _agreements(views: Sequence[SurveyedTarget]) -> Iterator[Agreement]:
    """Kept verdicts on whether runtimes compute the same with models that several ran."""
    targets: dict[str, list[Target]] = defaultdict(list)
    titles_of: dict[str, str] = {}
    for view in views:
        for model in view.estimated:
            titles_of.setdefault(model.plan.digest, model.title)
            targets[model.plan.digest].append(view.target)
    for digest, title in titles_of.items():
        yield from kept(title, digest, targets[digest])


class _Surveyor:
    """The view of a target, from ``plans`` and their wall times of decomposing."""

    def __init__(self, workspace: Workspace, target: Target, plans: Sequence[TimedPlan]) -> None:
        self._workspace = workspace
        self._target = target
        self._plans = plans
        keys = {key for plan, _ in plans for key in (*needed_by(plan), plan.digest)}
        self._estimator = workspace.estimators.known
        self._results = self._estimator.results(sorted(keys), target)
        self._tasks = {entry.name: entry.task for entry in (*entries(), *programs())}

    def target_view(self) -> SurveyedTarget:
        plans = [plan for plan, _ in self._plans]
        read = []
        for number, (plan, title) in enumerate(zip(plans, titles(plans), strict=True)):
            progress = f"reading {title} on {self._target.system.name}"
            self._workspace.progress(progress, number / len(plans))
            read.append(self._model(plan, title))
        models = tuple(read)
        keys = {key for plan, _ in self._plans for key in plan.keys}
        settled = [self._results[key] for key in keys if key in self._results]
        compared = [
            ModelComparison(model.title, model.plan, 0, model.measured_s, model.estimate)
            for model in models
            if model.measured_s is not None and model.estimate is not None
        ]
        walls_s = {plan.digest: wall_s for plan, wall_s in self._plans}
        unread_s = dict.fromkeys(walls_s, 0.0)
        return SurveyedTarget(
            self._target,
            models,
            bricks=len(keys),
            measured=sum(isinstance(result, Measurement) for result in settled),
            failed=sum(isinstance(result, Failure) for result in settled),
            summary=summarise(compared, self._results, decompose_s=walls_s, read_s=unread_s),
            costly=self._costly(models),
        )

    def _model(self, plan: Plan, title: str) -> SurveyedModel:
        results = self._estimator.results([*needed_by(plan), plan.digest], self._target)
        recomposed = recompose(self._estimator.basis(plan, results, self._target))
        bricks = self._workspace.plans.bricks(plan)
        executed, whole = Decomposition(plan, bricks, 0.0), results.get(plan.digest)
        return SurveyedModel(
            title,
            plan,
            self._tasks.get(plan.model),
            executed.flops,
            executed.weight_bytes,
            recomposed,
            memory_of_plan(self._workspace, plan, target=self._target),
            round_spread(whole) if isinstance(whole, Measurement) else None,
            _operators(recomposed, bricks),
        )

    def _costly(self, models: Iterable[SurveyedModel]) -> tuple[BrickTime, ...]:
        every = [share for model in models for share in model.recomposed.shares]
        total_s: dict[str, float] = defaultdict(float)
        counts: Counter[str] = Counter()
        for share in every:
            total_s[share.brick] += share.latency_s
            counts[share.brick] += share.occurrences
        holders = Counter(share.brick for share in every)
        bricks = {
            key: brick
            for plan, _ in self._plans
            for key, brick in self._workspace.plans.bricks(plan).items()
        }
        sum_s = sum(total_s.values())
        return tuple(
            BrickTime(
                key, _operator(bricks[key]), shapes(bricks[key]), holders[key],
                counts[key], total_s[key], total_s[key] / sum_s if sum_s else 0.0,
            )
            for key in sorted(total_s, key=lambda key: (-total_s[key], key))
        )  # fmt: skip


def _operators(
    recomposed: Estimate | IncompleteEstimate, bricks: Mapping[str, Brick]
) -> tuple[OperatorShare, ...]:
    """The operators of a model, the one that takes longest first."""
    total_s: dict[str, float] = defaultdict(float)
    counts: Counter[str] = Counter()
    for share in recomposed.shares:
        operator = _operator(bricks[share.brick])
        total_s[operator] += share.latency_s
        counts[operator] += share.occurrences
    sum_s = sum(total_s.values())
    found = [
        OperatorShare(operator, counts[operator], part_s, part_s / sum_s if sum_s else 0.0)
        for operator, part_s in total_s.items()
    ]
    return tuple(sorted(found, key=lambda part: (-part.total_s, part.operator)))


def _operator(brick: Brick) -> str:
    """The operators of a brick without their domains."""
    return "+".join(name.rpartition(".")[2] for name in brick.operators)
