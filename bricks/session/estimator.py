"""Estimates of models on any target of a cache, from measured and predicted bricks.

Here so that several models share the latency model of each target. A workspace has two estimators:
one from all measurements, one from those of this host. Nothing is measured here. Must not know how
bricks are measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.basis import (
    Basis,
    DeviceBasis,
    Results,
    imprecise_bricks,
    launch_costs,
    prior_of_measurement,
    prior_of_prediction,
)
from bricks.compose.recompose import own_run
from bricks.compose.recomposition_error import OwnRun, OwnRuns
from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.samples.call_overhead import DEVICE_PROBES, needed_by
from bricks.samples.correction import conditions_of
from bricks.samples.measurement import Failure, Measurement, round_spread
from bricks.samples.usual_conditions import UsualConditions
from bricks.session.latencies import Latencies
from bricks.session.measured_target import HostHistory, LoadedBricks
from bricks.store import Reading, Union

if TYPE_CHECKING:
    from bricks.compose.schedule import Construction
    from bricks.decompose.plan import Brick, Plan
    from bricks.session.device_latencies import DeviceLatencies
    from bricks.session.plans import Plans
    from bricks.session.resources import Resources
    from bricks.system import Target
    from bricks.system.accelerator import Accelerator

# At most so many runs of whole models are read for an answer, evenly from all that the cache has.
_MOST_RUNS = 12


class Estimator:
    """Estimates from the measurements of ``source`` for models cut and run as ``resources`` say.

    Bricks that ``plans`` has decomposed are not loaded again. ``prior`` is the estimator without
    this host's own measurements, used where these are too uncertain.
    """

    def __init__(
        self, source: Reading, resources: Resources, plans: Plans, prior: Estimator | None = None
    ) -> None:
        self._source = source
        self._resources = resources
        self._plans = plans
        self._prior = prior
        self._latencies: dict[str, Latencies] = {}  # by target
        self._devices: dict[str, DeviceLatencies] = {}  # by target
        self._histories: dict[str, HostHistory] = {}  # by target
        self._runs: dict[bool, OwnRuns] = {}  # with predicted bricks or without
        self._loaded = LoadedBricks()
        # By target: models share most of their bricks, and decoding samples takes longest.
        self._settled: dict[str, dict[str, Measurement | Failure]] = {}

    def latencies(self, target: Target) -> Latencies:
        """Latencies of bricks on ``target``."""
        if target.key not in self._latencies:
            cut = str(self._resources.granularity)
            borrows = target.runtime.copies == 1
            found = Latencies(self._source, target.key, cut, self._loaded, borrows=borrows)
            self._latencies[target.key] = found
        return self._latencies[target.key]

    def forget(self) -> None:
        """Discard all that was learned: the store has changed."""
        self._latencies.clear()
        self._devices.clear()
        self._histories.clear()
        self._runs.clear()
        self._settled.clear()

    def note_measured(self, target: Target, remeasured: Collection[str]) -> None:
        """Discard results on ``target`` that new measurements and ``remeasured`` bricks replace."""
        self._settled.pop(target.key, None)
        self._histories.pop(target.key, None)
        self._runs.clear()
        self.latencies(target).invalidate(remeasured)

    def results(self, keys: Collection[str], target: Target) -> Results:
        """The stored results of ``keys`` on ``target``: bricks, probes and whole models.

        Pass no needless keys: a key that the user's cache lacks is searched in published files,
        which takes long.
        """
        settled = self._settled.setdefault(target.key, {})
        missing = [key for key in dict.fromkeys(keys) if key not in settled]
        if missing:
            settled |= self._source.measurements.results(target.key, missing)
        return {key: settled[key] for key in dict.fromkeys(keys) if key in settled}

    def predictions(
        self, keys: Sequence[str], results: Results, target: Target, plan: Plan | None = None
    ) -> BrickPredictions:
        """Predictions for all ``keys`` without a measurement.

        ``plan`` is the plan that the keys belong to, if any.
        """
        if all(isinstance(results.get(key), Measurement) for key in keys):
            return BrickPredictions()  # return early: searching the whole cache takes a while
        latencies = self.latencies(target)
        for digest, decomposition in self._plans.decompositions.items():
            if digest not in latencies.added:
                latencies.add_model(decomposition)
        latencies.add_plans(self._plans.known)
        if plan is not None:
            latencies.add_plans([plan])
        return latencies.predictions(keys)

    def history(self, target: Target) -> HostHistory:
        """The conditions that the host of ``target`` was watched in."""
        if target.key not in self._histories:
            threads = target.runtime.threads
            self._histories[target.key] = HostHistory(self._source, target.key, threads)
        return self._histories[target.key]

    def conditions(self, plan: Plan, results: Results, target: Target) -> UsualConditions | None:
        """The usual conditions of the host of ``target``, which an estimate is for."""
        measured = [m for k in plan.keys if isinstance(m := results.get(k), Measurement)]
        usual = self.history(target).usual(measured)
        if usual is None or self._resources.setup.info.timed:
            return usual
        return usual.steady  # made-up latencies never vary

    def basis(
        self,
        plan: Plan,
        results: Results,
        target: Target,
        *,
        conditions: UsualConditions | None = None,
        predictions: BrickPredictions | None = None,
        construction: Construction | None = None,
        bare: bool = False,
    ) -> Basis:
        """All inputs of an estimate of ``plan`` on ``target``, in ``conditions``; None: usual ones.

        ``predictions`` are those of several plans; None: of this one. A ``bare`` estimate does not
        follow what this host's own runs of whole models show.
        """
        if (accelerator := target.system.accelerator) is not None:
            device = self._device(plan, results, target, accelerator)
            return Basis(plan, results, device=device)
        if construction is None and self._resources.options.workers > 1:
            bricks = self._source.plans.load_bricks(plan.keys)
            construction = self.construction(plan, bricks, target)
        if predictions is None:
            predictions = self.predictions(plan.keys, results, target, plan)
        if predictions.of:
            results = {**self.latencies(target).borrowed_calls(), **results}
        if conditions is None:
            conditions = self.conditions(plan, results, target)
        sensitivities = None
        if conditions is not None:
            sensitivities = self.history(target).sensitivities(plan.keys)
        own_runs = None
        if not bare and self._resources.earns_intervals(target):
            own_runs = self._own_runs(predicted=bool(predictions.of)).without(plan.digest)
        basis = Basis(plan, results, predictions, conditions, sensitivities, own_runs, construction)
        if self._prior is None or not (uncertain := imprecise_bricks(basis)):
            return basis
        bricks = self._source.plans.load_bricks(plan.keys)
        prior = self._prior.elsewhere(sorted(uncertain), plan, bricks, target)
        return replace(basis, predictions=replace(basis.predictions, prior=prior))

    def _device(
        self, plan: Plan, results: Results, target: Target, accelerator: Accelerator
    ) -> DeviceBasis:
        """The costs of launching on an accelerator, and its kernels for unmeasured bricks."""
        from bricks.session.device_latencies import device_latencies

        costs = launch_costs(self.results([*DEVICE_PROBES.values()], target))
        bricks = self._plans.known_bricks(plan)
        unmeasured = {key: brick for key, brick in bricks.items() if key not in results}
        if target.key not in self._devices:
            self._devices[target.key] = device_latencies(self._source, target)
        known = self._devices[target.key]
        predicted = known.predicted(unmeasured)
        return DeviceBasis(accelerator, costs, bricks, predicted, known.transfer_error)

    def _own_runs(self, *, predicted: bool) -> OwnRuns:
        """The whole models that this host ran; with ``predicted``, those with such bricks too."""
        if predicted not in self._runs:
            digests = self._resources.whole_runs()
            step = -(-len(digests) // _MOST_RUNS) or 1
            found = [self._own_run(digest, predicted=predicted) for digest in digests[::step]]
            self._runs[predicted] = OwnRuns([run for run in found if run is not None])
        return self._runs[predicted]

    def _own_run(self, digest: str, *, predicted: bool) -> OwnRun | None:
        """What one run shows; None where it is not known, or has ``predicted`` bricks unasked."""
        target, cut = self._resources.target, str(self._resources.granularity)
        loaded = self._resources.store.plans.load(digest, cut, target.key, name=None)
        if loaded is None or loaded[0].memory.outdated:
            return None
        plan = loaded[0]
        results = self.results([*needed_by(plan), digest], target)
        measured = all(isinstance(results.get(key), Measurement) for key in plan.keys)
        run = results.get(digest)
        if not isinstance(run, Measurement) or not (measured or predicted):
            return None
        basis = self.basis(plan, results, target, conditions=conditions_of(run), bare=True)
        return own_run(basis, run)

    def elsewhere(
        self, keys: Sequence[str], plan: Plan, bricks: Mapping[str, Brick], target: Target
    ) -> dict[str, Prediction]:
        """Predictions for ``keys`` among the ``bricks`` of ``plan`` from other hosts of this kind.

        Other hosts may not know these bricks.
        """
        self._loaded.bricks.update(bricks)
        results = self.results(keys, target)
        measured = {key: m for key, m in results.items() if isinstance(m, Measurement)}
        known = {key: prior_of_measurement(round_spread(m)) for key, m in measured.items()}
        predictions = self.predictions(keys, results, target, plan)
        predicted = {key: of for key, of in predictions.of.items() if key in set(keys)}
        return known | {key: prior_of_prediction(of) for key, of in predicted.items()}

    def construction(self, plan: Plan, bricks: Mapping[str, Brick], target: Target) -> Construction:
        """The streams and rules by which parallel workers run ``plan`` on ``target``."""
        from bricks.compose.schedule import Construction
        from bricks.decompose.plan import streams_of

        options, timed = self._resources.options, self._resources.setup.info.timed
        # The fake runtime has no threads that could compete.
        return Construction(
            workers=options.workers,
            streams=streams_of(plan, bricks, options.workers),
            bricks=bricks,
            rule=options.may_overlap,
            threads=target.runtime.threads if timed else 1,
            processors=target.system.processors if timed else None,
        )


class Estimators:
    """Estimators of models cut and run as ``resources`` say; they share the ``plans``.

    ``known`` estimates from the cache and all published measurements. ``measured`` ignores
    published measurements of this host's target, for estimates whose bricks are measured here.
    """

    def __init__(self, resources: Resources, plans: Plans) -> None:
        self._resources = resources
        published, target = resources.published, resources.target
        prior = Estimator(published, resources, plans)
        self.known = self.measured = Estimator(resources.known, resources, plans, prior)
        if any(
            published_target.key == target.key for published_target in published.systems.targets()
        ):
            others: Reading = Union(resources.store, published, first_only=target.key)
            self.measured = Estimator(others, resources, plans, prior)

    def of(self, plan: Plan, target: Target, *, measure: bool = False) -> Estimator:
        """The estimator of ``plan``: published measurements are read if own ones are missing.

        With ``measure``, missing ones will be measured.
        """
        here = target.key == self._resources.target.key and self.measured is not self.known
        if not here or measure:
            return self.measured if measure else self.known
        keys = set(needed_by(plan))
        measured = keys == self._resources.store.measurements.settled(target.key, sorted(keys))
        return self.measured if measured else self.known

    def latencies(self, target: Target | None = None) -> Latencies:
        """Latencies of bricks on ``target``, by default this host's."""
        return self.known.latencies(self._resources.target if target is None else target)

    def note_measured(self, remeasured: Collection[str]) -> None:
        """Notify the estimators of new results, and of new rounds of the ``remeasured`` bricks."""
        for estimator in {self.known, self.measured}:
            estimator.note_measured(self._resources.target, remeasured)

    def forget(self) -> None:
        """Discard all that was learned: the store has changed."""
        for estimator in {self.known, self.measured}:
            estimator.forget()
