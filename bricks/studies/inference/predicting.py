"""Predicts models from their bricks, after measuring missing bricks.

Must not know how a prediction is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.errors import BackendError, BricksError, ModelError, WorkerError
from bricks.session import predicting
from bricks.sources import Unread
from bricks.studies.inference.branches import OtherBranch, other_branches, unmeasured_branches
from bricks.studies.inference.changing import ChangingInputs, changing_inputs
from bricks.studies.inference.prediction import (
    ModelPredictions,
    PredictedModel,
    SingleRuns,
    without,
)
from bricks.studies.inference.settings import Setting
from bricks.studies.study import Needs, Study

if TYPE_CHECKING:
    from bricks.compose.basis import Basis
    from bricks.graph.model import Model
    from bricks.samples.usual_conditions import UsualConditions
    from bricks.session.workspace import Workspace
    from bricks.system import Target


# Quantiles of single runs that are kept: enough for a p99 of a size with a tenth of all requests.
_QUANTILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionOptions:
    """``models``, in order, on a ``target`` of the cache; None: that of the workspace.

    ``settings`` are those of the models, one for each; without them, those of the target. Peak
    memory and percentiles of single runs are left out unless ``memory``. With
    ``now``, latencies are for the present conditions of this host too.
    """

    models: Sequence[Model | Unread]
    target: Target | None = None
    settings: Sequence[Setting] = ()
    memory: bool = True
    now: bool = False


class PredictionStudy(Study[PredictionOptions, tuple[PredictedModel, ...], None, ModelPredictions]):
    """The latencies of models, and the memory that they need."""

    _present: UsualConditions | None = None

    @property
    def target(self) -> Target:
        """Where models would run."""
        return self.options.target or self.workspace.target

    def needs(self) -> Needs:
        """The bricks of all models that can be decomposed, if they run here."""
        if self.target.key != self.workspace.target.key:
            return Needs()
        return Needs(others=[self._measure])

    def _measure(self) -> None:
        every = decomposable(self.workspace, self.options.models)
        models = predicting.lacking(self.workspace, every)
        branches = unmeasured_branches(self.workspace, every)
        if models or branches:
            from bricks.session import measuring  # an answer from the cache needs none of it

            done = measuring.measure(self.workspace, models, branches)
            budget_s = self.workspace.options.conditions.budget_s
            if budget_s is not None and done.unfinished and not done.new_bricks:
                self.notice(
                    f"nothing was measured within {budget_s:g} s, and the answer is from"
                    " measurements of others: give a larger --budget"
                )
        if self.options.now and self.target.system.accelerator is None:
            from bricks.session import measuring

            measuring.renew(self.workspace, every)

    def predict(self) -> tuple[PredictedModel, ...]:
        """Each model; one that fails does not stop the others."""
        models, usual = self.options.models, Setting(runtime=self.target.runtime.backend)
        if self.options.now:
            from bricks.session.predicting import present_conditions  # starts a worker

            self._present = present_conditions(self.workspace, decomposable(self.workspace, models))
        settings = self.options.settings or [usual] * len(models)
        return tuple(map(self._in_setting, models, settings))

    def _in_setting(self, model: Model | Unread, setting: Setting) -> PredictedModel:
        setting = setting.on(self.target, self.workspace.target)
        if isinstance(model, Unread):
            return PredictedModel(model=model.name, failure=model.error, setting=setting)
        return replace(self._predicted(model), setting=setting.running(model))

    def _predicted(self, model: Model) -> PredictedModel:
        workspace, target = self.workspace, self.target
        memory, runs = None, None
        branches: tuple[OtherBranch, ...] = ()
        changing: ChangingInputs | None = None
        try:
            basis = predicting.basis(workspace, model, measure=False, target=target)
            estimate = recompose(basis)
            if isinstance(estimate, Estimate):
                branches = other_branches(workspace, model, estimate, target)
                changing = changing_inputs(workspace, model, estimate, target)
            if self.options.memory:
                from bricks.session import whole_models

                memory = whole_models.predict_memory(workspace, model, target=target)
                runs = _single_runs(basis, estimate)
        except BricksError as error:
            return PredictedModel(model=model.name, failure=str(error))
        predicted = PredictedModel(
            model=model.name,
            estimate=estimate,
            memory=memory,
            single_runs=runs,
            branches=branches,
            changing_inputs=changing,
        )
        if self._present is not None and isinstance(estimate, Estimate):
            from bricks.session.measuring import old_bricks  # as above

            present = predicting.predict(
                workspace, model, measure=False, target=target, conditions=self._present
            )
            assert isinstance(present, Estimate), "the usual estimate is whole"
            predicted = replace(
                predicted,
                estimate=present,
                usual_s=estimate.latency_s,
                old_bricks=len(old_bricks(workspace, model)),
            )
        if isinstance(estimate, IncompleteEstimate):
            from bricks.measure.graphs import explain_failure

            return replace(predicted, hint=explain_failure(model, without(estimate)))
        return predicted

    def result(self, prediction: tuple[PredictedModel, ...], observation: None) -> ModelPredictions:
        """All of them."""
        cut, workers = str(self.workspace.granularity), self.workspace.options.workers
        return ModelPredictions(self.target, cut, workers, prediction)


def _single_runs(basis: Basis, estimate: Estimate | IncompleteEstimate) -> SingleRuns | None:
    """Percentiles of single runs at any time; None for a device, several workers, or a gap."""
    if not isinstance(estimate, Estimate) or basis.device is not None or estimate.workers > 1:
        return None
    import numpy as np

    from bricks.compose.queueing.run import run_factors

    factors = run_factors(basis, estimate)
    # A run is at any time: all its bricks are slower or faster together.
    moments = np.random.default_rng(0).normal(0.0, estimate.conditions_sd, len(factors))
    runs_s = estimate.estimate_s * factors * np.exp(moments)
    quantiles_s = np.quantile(runs_s, (np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    p50_s, p90_s, p99_s = np.percentile(runs_s, (50, 90, 99)).tolist()
    return SingleRuns(p50_s, p90_s, p99_s, tuple(quantiles_s.tolist()))


def decomposable(workspace: Workspace, models: Sequence[Model | Unread]) -> list[Model]:
    """The models that can be decomposed; predictions of the others say why they cannot."""
    decomposed = []
    for model in models:
        if not isinstance(model, Unread):
            with suppress(BackendError, ModelError, WorkerError):
                workspace.plans.plan(model)
                decomposed.append(model)
    return decomposed
