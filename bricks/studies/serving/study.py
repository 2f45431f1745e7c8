"""Predicts a scenario: batches from bricks, then a server that is simulated on their latencies.

Missing bricks are measured first, of all sizes of a batch at once; with a check, the same is really
served too. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.compose.queueing.batching import batch_sizes
from bricks.errors import BricksError
from bricks.session.crowding import refuse_crowding as refuse_threads
from bricks.studies.serving.batches import read_sizes, refuse_crowding, service_times
from bricks.studies.serving.check import ServedScenario
from bricks.studies.serving.in_server import in_server
from bricks.studies.serving.options import ScenarioOptions
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind
from bricks.studies.study import Needs, Study, ask, target_asked

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.serving.service import ServiceTimes
    from bricks.system import Target


def predict_scenario(
    workspace: Workspace,
    options: ScenarioOptions,
    *,
    measure: bool = True,
) -> ScenarioResult:
    """Predict a served model as ``options`` say.

    With ``measure``, missing bricks are measured first; nothing can be measured on another
    target than the workspace's. Raises :class:`~bricks.errors.UsageError` where instances need more
    cores than there are, and :class:`~bricks.errors.BricksError` for a model that cannot be
    predicted at some size of a batch.
    """
    return ask(ServingStudy(options, workspace), measure=measure)


class ServingStudy(Study[ScenarioOptions, ScenarioResult, ScenarioResult, ScenarioResult]):
    """A model that is served under a load."""

    _measured: ServiceTimes | None = None

    @cached_property
    def target(self) -> Target:
        """The system that is asked about."""
        return target_asked(self.workspace, self.options.system, self.options.target)

    @property
    def observes(self) -> bool:
        """Whether the model is really served too."""
        return self.options.check

    def needs(self) -> Needs:
        """The bricks of all batch sizes; in the server scenario, their runs in a server too.

        Nothing on another target than the workspace's.
        """
        refuse_crowding(self.target, self.options.serving)
        if self.target.key != self.workspace.target.key:
            return Needs()
        refuse_threads(self.target)
        others = [self._measure_at_once] if self.options.serving.instances > 1 else []
        if self.options.load.kind is ScenarioKind.SERVER:
            others.append(self._measure_in_server)
        return Needs(models=[*self._models.values()], others=others)

    def _measure_at_once(self) -> None:
        """Measure missing bricks of all batch sizes while as many copies run as instances."""
        from bricks.session import measuring

        instances, threads = self.options.serving.instances, self.target.runtime.threads
        with self.workspace.with_options(copies=instances, threads=threads) as at_once:
            measuring.measure(at_once, [*self._models.values()])

    def _times(self) -> ServiceTimes:
        """Latencies of batches, and how busy instances slow each other down if that is known."""
        times = service_times(self.workspace, self._models, self.target)
        instances = self.options.serving.instances
        if instances == 1:
            return times
        runtime = replace(self.target.runtime, copies=instances)
        at_once = replace(self.target, runtime=runtime)
        with suppress(BricksError):  # a warning says that it is not known
            return times.with_busy(instances, service_times(self.workspace, self._models, at_once))
        return times

    def _measure_in_server(self) -> None:
        times = self._times()
        qps = self.options.load.qps
        self._measured = in_server(self.workspace, self._models, times, qps)

    def predict(self) -> ScenarioResult:
        """The figures of a simulated server."""
        times = self._measured
        if times is None:
            times = self._times()
        options, seed = self.options, self.workspace.options.seed
        return scenario_of(
            options.model, self.target, times, options.load, options.serving, seed=seed
        )

    def observe(self) -> Generator[None, ScenarioResult, ScenarioResult]:
        """Serve half of the queries before the prediction, and the others after it."""
        refuse_crowding(self.target, self.options.serving)
        with ServedScenario(self.workspace, self.options) as served:
            if self.options.load.kind is not ScenarioKind.SERVER or self.options.load.qps:
                served.serve(self.options.load.qps)
            prediction = yield
            return served.checked(prediction)

    def result(
        self, prediction: ScenarioResult, observation: ScenarioResult | None
    ) -> ScenarioResult:
        """The prediction; after a real run, with the server's own costs."""
        return prediction if observation is None else observation

    @cached_property
    def _models(self) -> dict[int, Model]:
        options = self.options
        sizes = batch_sizes(options.serving.max_batch)
        return read_sizes(self.workspace, options.model, sizes, options.shapes, options.values)
