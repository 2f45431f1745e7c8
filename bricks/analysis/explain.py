"""Explains the latency of models by brick: gathers the inputs of an explanation from the cache.

Here because it starts from an estimate, which :mod:`bricks.session.predicting` makes. Only the
peaks of a machine are measured here, and only on request.

The parts of one model for pictures, and the gain of a quantised model, come from the cache alone.
Must not know how explanations are shown.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from bricks.analysis.explanation import BestImplementation, Explanation, same_work
from bricks.analysis.explanation import explain as explained
from bricks.analysis.integer_execution import (
    FloatVersion,
    IntegerExecution,
    float_version,
    integer_execution,
)
from bricks.analysis.operator_times import OWN, Gain, Replacement, gains
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.latencies import latencies
from bricks.compose.recompose import recompose
from bricks.errors import BricksError
from bricks.samples.measurement import round_spread
from bricks.session import predicting, whole_models
from bricks.session.machine_peaks import Peaks, call_s, measured_peaks
from bricks.sources import Unread
from bricks.sources.quantised import Quantisation
from bricks.sources.source import INT8
from bricks.studies.inference.prediction import SETTING_FACTS, PredictedModel
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.analysis.explanation import OperatorPart, Part
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.predict.features import BrickFeatures
    from bricks.session.workspace import Workspace
    from bricks.system import Runtime, Target

# A smaller advantage than this counts as none: two measurements of one brick differ by as much.
_NOTABLE = 0.05

# A key that bricks share which do the same work.
Work = tuple[object, ...]


def explain(
    workspace: Workspace, model: Model, *, measure: bool = True, target: Target | None = None
) -> Explanation:
    """The breakdown of the latency of ``model`` on ``target``, by default the workspace's own.

    With ``measure``, missing bricks and peaks are measured first; on another target nothing ever
    is. Raises :class:`~bricks.errors.UsageError` as :meth:`bricks.Bench.predict` does.
    """
    return Explainer(workspace, target, measure=measure).explain(model)


@dataclass
class Explainer:
    """Explanations of several models on one target, which share their inputs."""

    workspace: Workspace
    target: Target | None = None
    measure: bool = False
    _peaks: Peaks | None = field(default=None, init=False)
    _models: Mapping[str, Collection[str]] | None = field(default=None, init=False)
    _holders: Counter[str] = field(default_factory=Counter, init=False)
    _fastest: dict[Work, BestImplementation | None] = field(default_factory=dict, init=False)
    _works: dict[str, Mapping[Work, Sequence[str]]] = field(default_factory=dict, init=False)

    def explain(
        self, model: Model, estimate: Estimate | IncompleteEstimate | None = None
    ) -> Explanation:
        """The breakdown of the latency of ``model``; ``estimate`` is passed if known already."""
        workspace, target = self.workspace, self._target
        if estimate is not None:
            return self.of(workspace.plans.plan(model, target=target), estimate)
        if self.measure:
            # First: whatever is measured tells of the machine's states, and so changes estimates.
            _ = self.peaks
        basis = predicting.basis(workspace, model, measure=self.measure, target=target)
        found, known = recompose(basis), latencies(basis)
        if isinstance(found, Estimate) and found.device is not None:
            return self.of(basis.plan, found)  # calls take longer in a step than one by one
        return self.of(basis.plan, found, {key: known.net(key) for key in known.gross_s})

    def of(
        self,
        plan: Plan,
        estimate: Estimate | IncompleteEstimate,
        net: Mapping[str, Interval] = MappingProxyType({}),
    ) -> Explanation:
        """The breakdown of ``estimate``, which was made from ``plan``.

        ``net`` are the latencies of single occurrences with their intervals, in seconds, by brick.
        """
        workspace, target = self.workspace, self._target
        bricks = workspace.plans.bricks(plan)
        features = self._features(plan)
        return explained(
            plan,
            estimate,
            bricks,
            features,
            peaks=self.peaks,
            models=self._models_with(plan),
            fastest=self._faster(plan, estimate),
            memory=whole_models.memory_of_plan(workspace, plan, target=target),
            net=net,
        )

    def gains(self, explanation: Explanation, model: Model | None = None) -> tuple[Gain, ...]:
        """What replacing the costliest operators of an explained model would gain.

        With the ``model``, also what quantising it would gain, if it was quantised before.
        """
        own, estimate = self._target, explanation.estimate
        if isinstance(estimate, Estimate) and estimate.device is not None:
            return ()  # replacing a call hardly matters where another lane limits the step
        names = {of.key: runtime_title(of.runtime) for of in self._same_host_targets()}
        names[own.key] = f"{OWN} {own.runtime.backend}"
        found = gains(explanation, own.system, names)
        if model is None or not isinstance(estimate, Estimate):
            return found
        quantised = _quantised_gain(self.workspace, model, estimate, own)
        return found if quantised is None else (*found, quantised)

    def integers(self, model: Model, explanation: Explanation) -> IntegerExecution | None:
        """How an explained model is executed if it is quantised; None for a model in floats."""
        plan = self.workspace.plans.plan(model, target=self._target)
        bricks = self.workspace.plans.bricks(plan)
        return integer_execution(model, explanation, bricks, self._target.system)

    @property
    def _target(self) -> Target:
        return self.workspace.target if self.target is None else self.target

    @property
    def peaks(self) -> Peaks:
        """The peak rates of the target, as far as they are measured."""
        if self._peaks is None:
            self._peaks = measured_peaks(self.workspace, self._target, measure=self.measure)
        return self._peaks

    def _features(self, plan: Plan) -> dict[str, BrickFeatures]:
        """The features of a plan's bricks, also of those that no cache holds."""
        known = self.workspace.estimators.latencies(self._target).target
        known.loaded.bricks.update(self.workspace.plans.bricks(plan))
        return known.features(plan.keys)

    def _models_with(self, plan: Plan) -> Counter[str]:
        """The number of other models in the cache that have each brick, on this target."""
        if self._models is None:
            cut = str(self.workspace.granularity)
            self._models = dict(self.workspace.known.plans.usage(self._target.key, cut))
            self._holders = Counter(key for used in self._models.values() for key in used)
        itself = self._models.get(plan.model, ())
        return Counter({key: self._holders[key] - (key in itself) for key in plan.keys})

    def _faster(
        self, plan: Plan, estimate: Estimate | IncompleteEstimate
    ) -> dict[str, BestImplementation]:
        """For each measured brick, the fastest other implementation of its work, if any."""
        if self._target.system.accelerator is not None:  # implementations differ there by the host
            return {}
        features = self._features(plan)
        measured = [each for each in estimate.shares if not each.predicted and each.occurrences > 0]
        works = {share.brick: same_work(features[share.brick]) for share in measured}
        new = [work for work in dict.fromkeys(works.values()) if work not in self._fastest]
        self._fastest |= dict.fromkeys(new)
        for target in self._same_host_targets() if new else ():
            # Only bricks of these works are read.
            of_target = self.workspace.estimators.latencies(target).target
            by_work = self._bricks_by_work(target)
            bricks = {key: work for work in new for key in by_work.get(work, ())}
            known, overhead_s = of_target.latencies_of(bricks), call_s(self.workspace, target)
            for key, latency_s in known.seconds.items():
                work, net_s = bricks[key], max(0.0, latency_s - overhead_s)
                best = self._fastest[work]
                if best is None or net_s < best.latency_s:
                    half_s = round_spread(known.measured[key]).half_width
                    self._fastest[work] = BestImplementation(key, target.key, net_s, half_s)
        faster = {}
        for share in measured:
            best = self._fastest[works[share.brick]]
            own_s = share.latency_s / share.occurrences
            if best is not None and best.latency_s < (1 - _NOTABLE) * own_s:
                faster[share.brick] = best
        return faster

    def _same_host_targets(self) -> Iterable[Target]:
        own = self._target
        for other in self.workspace.known.systems.targets():
            same_host = other.system.key == own.system.key
            if same_host and other.runtime.threads == own.runtime.threads:
                yield other

    def _bricks_by_work(self, target: Target) -> Mapping[Work, Sequence[str]]:
        """The keys of bricks of all models that were decomposed on ``target``, by their work."""
        if target.key not in self._works:
            cut = str(self.workspace.granularity)
            models = self.workspace.known.plans.usage(target.key, cut)
            keys = sorted({key for _, usage in models for key in usage})
            of_target = self.workspace.estimators.latencies(target).target
            found: dict[Work, list[str]] = defaultdict(list)
            for key, features in of_target.features(keys).items():
                found[same_work(features)].append(key)
            self._works[target.key] = found
        return self._works[target.key]


def with_float_versions(
    models: Sequence[Model | Unread], explained: Sequence[ExplainedModel]
) -> list[ExplainedModel]:
    """``explained`` models, the quantised ones with the first in floats that has the same inputs.

    ``models`` are the same, in the same order.
    """
    floats: dict[object, FloatVersion] = {}
    for model, of in zip(models, explained, strict=True):
        if not isinstance(model, Unread) and of.integers is None and of.interval is not None:
            floats.setdefault(model.inputs, float_version(of.model, of.latency_s.value, of.parts))
    return [
        of
        if isinstance(model, Unread) or of.integers is None
        else replace(of, integers=replace(of.integers, floats=floats.get(model.inputs)))
        for model, of in zip(models, explained, strict=True)
    ]


def runtime_title(runtime: Runtime) -> str:
    """A runtime with its version, and with its level of optimisation unless that is the highest."""
    level = "" if runtime.optimization == "all" else f" ({runtime.optimization})"
    return f"{runtime.backend} {runtime.version}{level}"


def _quantised_gain(
    workspace: Workspace, model: Model, estimate: Estimate, target: Target
) -> Gain | None:
    """The seconds that ``model`` takes less in int8 on ``target`` than its ``estimate``.

    None if it was never quantised, or its bricks have no latency there. It is negative for a
    quantised model that takes longer.
    """
    try:
        quantisation = Quantisation.of(model, target.runtime.backend)
        digest = quantisation.quantised().digest if quantisation.is_kept else None
    except BricksError:  # it cannot be quantised, or its tool is not installed
        digest = None
    plan = None if digest is None else workspace.plans.known_plan(digest, target=target)
    after = None if plan is None else predicting.predict_plan(workspace, plan, target=target)
    if not isinstance(after, Estimate):
        return None
    width_s = math.hypot(estimate.latency_s.half_width, after.latency_s.half_width)
    seconds = Interval.around(estimate.estimate_s - after.estimate_s, width_s)
    return Gain(None, Replacement.INT8, INT8, seconds, bound=False)


_NOT_MEASURED = Peaks()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedModel(PredictedModel):
    """A prediction with its explanation, and what replacing its operators would gain.

    The explanation is None where there is no prediction, ``integers`` for models in floats too.
    """

    FACTS: ClassVar = (
        *(("parts", "bricks") if fact == ("shares", "bricks") else fact
          for fact in PredictedModel.FACTS if fact not in SETTING_FACTS),
        "fastest_s", "peaks", "operators", "gains", "integers",
    )  # fmt: skip

    explanation: Explanation | None = None
    gains: tuple[Gain, ...] = ()
    integers: IntegerExecution | None = None

    @property
    def LIKE(self) -> type:
        """The class with the JSON facts of this object: incomplete estimates have one more."""
        return IncompleteExplained if isinstance(self.estimate, IncompleteEstimate) else type(self)

    @property
    def parts(self) -> Sequence[Part]:
        """Its bricks, the one that takes longest first."""
        return () if self.explanation is None else self.explanation.parts

    @property
    def operators(self) -> Sequence[OperatorPart]:
        """Its operators, the one that takes longest first."""
        return () if self.explanation is None else self.explanation.operators

    @property
    def peaks(self) -> Peaks:
        """The best rates of the machine."""
        return _NOT_MEASURED if self.explanation is None else self.explanation.peaks

    @property
    def fastest_s(self) -> float | None:
        """The latency with the fastest known implementation of each brick."""
        return None if self.explanation is None else self.explanation.fastest_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteExplained(ExplainedModel):
    """An explained model of which some bricks have no latency."""

    FACTS: ClassVar = (*ExplainedModel.FACTS, ("estimate.measured_s", "measured_s"))


@dataclass(frozen=True, slots=True)
class ModelPicture:
    """A model's ``plan`` on a ``target``, and the ``explanation`` of its latency there."""

    target: Target
    plan: Plan
    explanation: Explanation


def model_picture(workspace: Workspace, plan: Plan, target: Target) -> ModelPicture:
    """The parts of the latency of ``plan`` on ``target``, from the contents of the cache."""
    estimate = predicting.recomposed(workspace, plan, target=target)
    return ModelPicture(target, plan, Explainer(workspace, target).of(plan, estimate))
