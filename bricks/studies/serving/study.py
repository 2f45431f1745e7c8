"""Predicts a scenario: batches from bricks, then a server that is simulated on their latencies.

Missing bricks are measured first, of all sizes of a batch at once. Pauses, threads and clients of a
server lengthen runs: passes of bricks in a server take turns with passes back to back, and nothing
of that is stored. With a check, the same is really served too. Must not know how results are shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.compose.queueing.batching import batch_sizes
from bricks.compose.queueing.idle import NO_IDLE_PENALTY, ServerRuns, fit_server_state
from bricks.compose.queueing.run import single_runs_s
from bricks.errors import BricksError, WorkerError
from bricks.session.defaults import refuse_crowding as refuse_threads
from bricks.session.whole_models import served_walk
from bricks.studies.serving.check import ServedScenario
from bricks.studies.serving.options import ScenarioOptions
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind
from bricks.studies.serving.service import read_sizes, refuse_crowding, service_times
from bricks.studies.study import Needs, Study, ask, target_asked

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.measure.served import Samples
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
        qps = self.options.load.qps
        self._measured = in_server(self.workspace, self._models, self._times(), qps)

    def predict(self) -> ScenarioResult:
        """The figures of a simulated server."""
        times = self._times() if self._measured is None else self._measured
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


# Bricks are served in place of the model for these seconds, within these numbers of passes. At half
# of the server's capacity, pauses between runs have all relevant lengths.
_SERVING_S, _FEWEST_PASSES, _MOST_PASSES = 8.0, 80, 400
_UTILISATION = 0.5
# At a lower rate than this, pauses last until the deepest idle state.
_RARE_QPS = 10.0
# Turns of passes in a server and back to back. A host changes within seconds, so passes back to
# back take these seconds of a turn too, within these numbers of passes.
_TURNS = 8
_LOOPED_S, _FEWEST_LOOPED, _MOST_LOOPED = 0.5, 5, 200
# A processor recovers from idling in some ten milliseconds: longer runs hardly have a penalty.
_LONG_RUN_S = 0.1

_Collected = defaultdict[str, list[float]]


def in_server(
    workspace: Workspace, models: Mapping[int, Model], times: ServiceTimes, qps: float | None = None
) -> ServiceTimes:
    """``times`` of ``models``, by batch size, corrected to runs in a server.

    A server runs the bricks of each model at random arrivals, ``qps`` a second or at half of its
    capacity, in turn with passes back to back. So runs contain the cost of pauses, threads and
    clients. Batches of long runs are not corrected. The result is not stored.
    """
    short = [batch for batch in times.batches if batch.run.latency_s.value <= _LONG_RUN_S]
    # A quota stops passes in a server and back to back, by itself: their ratio tells nothing.
    throttled = workspace.target.system.quota is not None
    if throttled or not workspace.setup.info.timed:
        short = []
    idle_model, states = None, {}
    for done, batch in enumerate(short):
        workspace.progress("measuring bricks in a server", done / len(short))
        most_qps = _UTILISATION / batch.run.latency_s.value
        rate_qps = min(max(qps or most_qps, _RARE_QPS), most_qps)
        runs = _served_runs(workspace, models[batch.size], batch.run.latency_s.value, rate_qps)
        states[batch.size] = state = fit_server_state(runs, idle_model)
        idle_model = state.idle_model
    batches = [batch.in_state(states.get(batch.size)) for batch in times.batches]
    return replace(times, batches=batches, idle_model=idle_model or NO_IDLE_PENALTY)


def _served_runs(workspace: Workspace, model: Model, latency_s: float, qps: float) -> ServerRuns:
    """Runs of the bricks of ``model`` in a server with ``qps`` arrivals a second.

    A run takes about ``latency_s`` seconds.
    """
    count = min(_MOST_PASSES, max(_FEWEST_PASSES, int(_SERVING_S * qps))) // _TURNS
    looped_count = min(_MOST_LOOPED, max(_FEWEST_LOOPED, int(_LOOPED_S / latency_s)))
    counts = workspace.plans.decompose(model).plan.counts
    idle_s, in_server_s, looped = list[float](), _Collected(list), _Collected(list)
    with workspace.timing(), served_walk(workspace, model) as served:
        for turn in range(_TURNS):
            _collect(served.looped(looped_count), looped)
            passes = served.passes(qps, count, seed=_TURNS * workspace.options.seed + turn)
            idle_s += passes[0]
            _collect(passes[1], in_server_s)
        timed = served.timed_counts
    run_s, looped_s = (single_runs_s(of, counts, timed).tolist() for of in (in_server_s, looped))
    return ServerRuns(idle_s, run_s, looped_s, _TURNS)


def _collect(samples: Samples, to: _Collected) -> None:
    """Append the seconds of further passes by brick."""
    if not samples:
        raise WorkerError("none of the model's bricks runs in a server")
    for key, seconds in samples.items():
        to[key] += seconds
