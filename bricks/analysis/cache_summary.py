"""Summary of a cache: all models on all targets, as input of a report.

Here because plans and measurements suffice for it, also those from other hosts: nothing is measured
or decomposed, and no model's file is needed. Must not know how it is shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from bricks.analysis.explain import Explainer
from bricks.analysis.explanation import Explanation
from bricks.analysis.similarity import Similarity, similarity
from bricks.compose.estimate import Estimate
from bricks.compose.memory.peak import PeakMemory
from bricks.compose.parts import Results, state_of
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.decompose.titles import titles
from bricks.errors import StoreError
from bricks.samples.measurement import Failure, Measurement, round_spread
from bricks.session import predicting
from bricks.session.machine_peaks import Peaks
from bricks.session.workspace import Workspace
from bricks.store.reading import TimedPlan
from bricks.studies.inference.result import ModelComparison, Summary, summarise
from bricks.system import Target
from bricks.units.interval import Interval
from bricks.zoo import entries, programs


@dataclass(frozen=True, slots=True)
class ModelView:
    """One model on one target. ``title`` distinguishes it from others of its name.

    ``flops`` and ``weight_bytes`` are those of the executed graph; the first is None where the work
    of an operator is not known. ``measured`` is the latency of the whole model; None if it was
    never run. ``task`` is None for models outside the zoo.
    """

    title: str
    plan: Plan
    task: str | None
    flops: int | None
    weight_bytes: int
    explanation: Explanation
    measured_s: Interval | None

    @property
    def estimate(self) -> Estimate | None:
        """Its estimate; None if that is incomplete."""
        estimate = self.explanation.estimate
        return estimate if isinstance(estimate, Estimate) else None

    @property
    def peak_bytes(self) -> int | None:
        """Its predicted peak memory; None where it is not predicted."""
        memory = self.explanation.memory
        return memory.peak_bytes if isinstance(memory, PeakMemory) else None

    @property
    def ratio(self) -> float | None:
        """Estimate over measured latency; None unless both are known."""
        if self.estimate is None or self.measured_s is None:
            return None
        return self.estimate.estimate_s / self.measured_s.value


@dataclass(frozen=True, slots=True)
class CostlyBrick:
    """A brick of many models: the total time of its occurrences in one run of each model."""

    brick: str
    operator: str
    shapes: str
    models: int
    occurrences: int
    latency_s: float
    total_s: float
    share: float


@dataclass(frozen=True, slots=True)
class TargetView:
    """Models on one target. ``measured`` and ``failed`` count bricks of the models.

    ``summary`` compares the models that were also run as a whole; its wall times exclude reading
    model files. ``costly`` are all bricks, in order of decreasing total time over all models.
    """

    target: Target
    models: tuple[ModelView, ...]
    bricks: int
    measured: int
    failed: int
    summary: Summary
    peaks: Peaks
    similarity: Similarity
    costly: tuple[CostlyBrick, ...]


@dataclass(frozen=True, slots=True)
class CacheSummary:
    """The contents of a cache by target; targets with most known models come first.

    ``unmeasured`` are targets on which models were decomposed but nothing was measured.
    """

    granularity: str
    targets: tuple[TargetView, ...]
    unmeasured: tuple[Target, ...] = ()


def summarise_cache(
    workspace: Workspace,
    *,
    targets: Sequence[Target] | None = None,
    digests: Collection[str] | None = None,
    peaks: bool = False,
) -> CacheSummary:
    """The summary of the workspace's cache for models cut at its granularity.

    ``targets`` are by default all that have such models, ``digests`` all models of these. With
    ``peaks``, missing peaks of this host are measured. Raises :class:`StoreError` if there is
    nothing to show.
    """
    views, unmeasured = [], []
    cut = str(workspace.granularity)
    for target in workspace.known.systems.targets() if targets is None else targets:
        known = workspace.known.plans.all(target.key, cut)
        plans = [
            timed_plan for timed_plan in known if digests is None or timed_plan[0].digest in digests
        ]
        keys = sorted({key for plan, _ in plans for key in plan.keys})
        if workspace.known.measurements.results(target.key, keys):
            views.append(view_of(workspace, target, plans, peaks=peaks))
        elif plans:
            unmeasured.append(target)
    if not views:
        raise StoreError(
            f"the cache {workspace.store.path} knows nothing of such models at granularity {cut}:"
            " run 'bricks measure' or 'bricks compare' first"
        )
    views.sort(key=lambda view: (-len(view.models), view.target.system.name, view.target.key))
    return CacheSummary(cut, tuple(views), tuple(unmeasured))


def view_of(
    workspace: Workspace,
    target: Target,
    plans: Sequence[TimedPlan],
    *,
    peaks: bool = False,
) -> TargetView:
    """The view of a target with the models of ``plans``, and their wall times of decomposing."""
    insight = Explainer(workspace, target, measure=peaks)
    keys = sorted({key for plan, _ in plans for key in plan.keys})
    bricks = {
        key: brick for plan, _ in plans for key, brick in workspace.plans.bricks(plan).items()
    }
    results = workspace.known.measurements.results(
        target.key, [*keys, *(plan.digest for plan, _ in plans)]
    )
    called = titles([plan for plan, _ in plans])
    tasks = {entry.name: entry.task for entry in (*entries(), *programs())}
    models = []
    for number, ((plan, _), title) in enumerate(zip(plans, called, strict=True)):
        workspace.progress(f"looking at {title} on {target.system.name}", number / len(plans))
        models.append(_model_view(insight, plan, title, tasks.get(plan.model), results))
    compared = [
        ModelComparison(view.title, view.plan, 0, view.measured_s, view.estimate)
        for view in models
        if view.measured_s is not None and view.estimate is not None
    ]
    walls_s = {plan.digest: wall_s for plan, wall_s in plans}
    settled = [results[key] for key in keys if key in results]
    return TargetView(
        target=target,
        models=tuple(models),
        bricks=len(keys),
        measured=sum(isinstance(result, Measurement) for result in settled),
        failed=sum(isinstance(result, Failure) for result in settled),
        summary=summarise(
            compared, results, decompose_s=walls_s, read_s=dict.fromkeys(walls_s, 0.0)
        ),
        peaks=insight.peaks,
        similarity=similarity([view.plan for view in models]),
        costly=_costly(models, bricks),
    )


def _model_view(
    insight: Explainer, plan: Plan, title: str, task: str | None, results: Results
) -> ModelView:
    """The view of one model on the target of ``insight``."""
    workspace = insight.workspace
    estimate = predicting.recomposed(workspace, plan, target=insight.target)
    executed = Decomposition(plan, workspace.plans.bricks(plan), 0.0)
    return ModelView(
        title,
        plan,
        task,
        executed.flops,
        executed.weight_bytes,
        insight.of(plan, estimate),
        _measured(plan, results),
    )


def _measured(plan: Plan, results: Results) -> Interval | None:
    """The latency of the whole model, in the machine state of its estimate."""
    whole = results.get(plan.digest)
    if not isinstance(whole, Measurement):
        return None
    return round_spread(whole, state_of(plan, results, whole))


def _costly(models: Iterable[ModelView], bricks: dict[str, Brick]) -> tuple[CostlyBrick, ...]:
    places: dict[str, int] = defaultdict(int)
    holders: dict[str, int] = defaultdict(int)
    seconds: dict[str, float] = defaultdict(float)
    shapes: dict[str, str] = {}
    for model in models:
        for part in model.explanation.parts:
            places[part.brick] += part.occurrences
            holders[part.brick] += 1
            seconds[part.brick] += part.total_s
            shapes[part.brick] = part.shapes
    every_s = sum(seconds.values())
    costly = [
        CostlyBrick(
            brick=key,
            operator="+".join(bricks[key].operators),
            shapes=shapes[key],
            models=holders[key],
            occurrences=places[key],
            latency_s=total_s / places[key] if places[key] else 0.0,
            total_s=total_s,
            share=total_s / every_s if every_s else 0.0,
        )
        for key, total_s in seconds.items()
    ]
    return tuple(sorted(costly, key=lambda brick: (-brick.total_s, brick.brick)))
