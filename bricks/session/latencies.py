"""Latencies of bricks on one target: measured, or predicted by the current latency model.

Here because it decides when a target's :class:`~bricks.session.latency_model.LatencyModel` is
learned: at the first request, and at the first one after new measurements. While these are few,
other targets inform it.

Small matrices are computed on one thread: more threads wait for each other longer than they
compute. On two busy cores, solving for a hundred bricks with two threads takes a hundred times as
long. And what one thread computes does not depend on how many there are. Must not know how bricks
are measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from threadpoolctl import ThreadpoolController

from bricks.predict.prediction import BrickPredictions, Prediction
from bricks.session.latency_model import LatencyModel, SourceTargets
from bricks.session.measured_target import LoadedBricks, MeasuredTarget

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition, Plan
    from bricks.predict.features import BrickFeatures
    from bricks.predict.learned_file import Learned
    from bricks.predict.planner import Posterior
    from bricks.predict.transfer import SourceTarget, ZeroShotTransfer
    from bricks.samples.measurement import Failure, Measurement
    from bricks.store import Reading

# From this many measured bricks on, a target's own measurements suffice.
WELL_KNOWN = 300


class Latencies:
    """Latencies on one target of ``source``, for models cut at ``granularity``.

    ``target`` has the source's bricks and results of this target. ``loaded`` are bricks and
    features that several targets share. Unless it ``borrows``, nothing is predicted from other
    targets alone.
    """

    def __init__(
        self,
        source: Reading,
        target_key: str,
        granularity: str,
        loaded: LoadedBricks | None = None,
        *,
        borrows: bool = True,
    ) -> None:
        self._borrows = borrows
        self.target = MeasuredTarget(source, target_key, granularity, loaded)
        self.added: set[str] = set()  # digests of models
        self._planned: set[str] = set()  # digests of models with a plan but without bricks
        self._unpredicted: set[str] = set()  # bricks of added models without a prediction so far
        # Models share bricks; in another model a brick has other features.
        self._predicted: dict[tuple[str, BrickFeatures], Prediction] = {}
        self._sources = SourceTargets(self.target)
        self._model: LatencyModel | None = None
        self._outdated = True  # whether there are measurements that the model has not learned from

    def invalidate(self, remeasured: Collection[str] = ()) -> None:
        """Discard predictions: there are new measurements, and new rounds of ``remeasured``."""
        self.target.forget(remeasured)
        self._predicted.clear()
        self._outdated = True

    def add_model(self, decomposition: Decomposition) -> None:
        """Add the bricks of a decomposed model, whether or not the cache stores them."""
        if decomposition.plan.digest not in self.added:
            self.added.add(decomposition.plan.digest)
            self._unpredicted.update(decomposition.bricks)
            self.target.add_model(decomposition)

    def add_plans(self, plans: Iterable[Plan]) -> None:
        """Add models that were decomposed earlier, perhaps for another target."""
        new = [p for p in plans if p.digest not in self.added and p.digest not in self._planned]
        if new:
            self._planned.update(plan.digest for plan in new)
            self._unpredicted.update(*(plan.keys for plan in new))
            self.target.add_plans(new)

    def model(self) -> LatencyModel:
        """The model learned from all current measurements."""
        if self._model is None or self._outdated:
            # Bricks that cannot be read would be predicted.
            self.target.source.refuse_damage()
            model = LatencyModel.read(self.target)
            if model is None:
                self._model = None  # one that was read says no longer that others are not needed
                known = self.target.latencies()
                features = self.target.features(known.measured)
                model = LatencyModel.learn(known, features, self.others)
            self._model = model
            self._outdated = False
        return self._model

    @property
    def learned(self) -> bool:
        """Whether there is a predictor, perhaps from before the last measurements."""
        return self._model is not None and self._model.predictor is not None

    @property
    def others(self) -> Sequence[SourceTarget]:
        """Other targets to learn from; empty once enough bricks are measured on this one."""
        kept = self._model is not None and self._model.kept
        return () if kept or len(self.target.measured) >= WELL_KNOWN else self._sources.all

    def borrowed(self) -> ZeroShotTransfer | None:
        """The predictor of other targets, if too few bricks are measured on this one."""
        if not self._borrows or self.model().predictor is not None or not self.others:
            return None
        return self._sources.borrowed()

    @property
    def borrows_unscaled(self) -> bool:
        """Whether other targets are all that is known, and a second here would scale them."""
        borrowed = self.borrowed()
        return borrowed is not None and borrowed.scalable and borrowed.host is None

    def borrowed_calls(self) -> dict[str, Measurement | Failure]:
        """Measured call overhead of a target whose predictor is borrowed; empty without one."""
        borrowed = self.borrowed()
        return {} if borrowed is None else self._sources.calls(borrowed)

    def predictions(self, keys: Collection[str]) -> BrickPredictions:
        """Predictions for the unresolved ``keys``; empty if too few bricks are measured anywhere.

        Bricks for which the runtime runs other kernels outside the model cannot be measured, so
        they are predicted too. Latencies are for the usual conditions of the host.
        """
        unresolved = set(keys) - self.target.resolved(keys)
        from bricks.graph.model_metadata import noted_other_kernels
        from bricks.graph.view import parse_model

        failed = self.target.load([key for key in keys if key in self.target.failed])
        unmeasurable = frozenset(
            k for k, b in failed.items() if noted_other_kernels(parse_model(b.model))
        )
        predictable = sorted(unresolved | unmeasurable)
        if not predictable:
            return BrickPredictions()
        model, borrowed = self.model(), self.borrowed()
        if borrowed is not None:
            model = replace(model, predictor=borrowed)
        elif model.predictor is None:
            return BrickPredictions()
        predicted = self._predict(model, predictable)
        host = model.known.host
        return BrickPredictions(predicted, model.bias, host, unmeasurable=unmeasurable)

    def _predict(self, model: LatencyModel, keys: Sequence[str]) -> Mapping[str, Prediction]:
        """Predictions for ``keys``; for bricks of all added models at once, which is faster."""
        assert model.predictor is not None
        features = model.slowed(self.target.features(keys))
        if any(item not in self._predicted for item in features.items()):
            ahead = self._unpredicted - self.target.resolved(self._unpredicted) - features.keys()
            self._unpredicted.clear()
            others = model.slowed(self.target.features(sorted(ahead)))
            every = {**features, **others}
            new = {key: t for key, t in every.items() if (key, t) not in self._predicted}

            # The library of linear algebra under NumPy uses one thread.
            with _controller().limit(limits=1, user_api="blas"):
                predicted = model.predictor.predict(new)
            for key, prediction in predicted.items():
                self._predicted[key, every[key]] = prediction
        return {key: self._predicted[key, t] for key, t in features.items()}

    def posteriors(self, keys: Collection[str]) -> dict[str, Posterior]:
        """Latency posteriors of the bricks ``keys``, and of all measured bricks.

        A failed brick has a latency of zero and counts as measured.
        """
        from bricks.predict.planner import Posterior

        model, measured = self.model(), self.target.measured
        resolved = self.target.resolved(keys) | measured.keys()
        seconds = {k: model.known.mean_s(measured[k]) if k in measured else 0.0 for k in resolved}
        measured_beliefs = {
            key: Posterior(latency_s, measured=True) for key, latency_s in seconds.items()
        }
        return measured_beliefs | self._expected(model, sorted(set(keys) - resolved))

    def _expected(self, model: LatencyModel, keys: Sequence[str]) -> dict[str, Posterior]:
        """Posteriors of unmeasured bricks: from the model, other targets, or a typical host."""
        from bricks.predict.planner import Posterior
        from bricks.predict.transfer import expected_s

        features, predictor = self.target.features(keys), model.predictor
        if predictor is not None:
            features = model.slowed(features)
            return {
                key: Posterior(prediction.latency_s, scale=predictor.scale(features[key]))
                for key, prediction in predictor.predict(features).items()
            }
        if not features:
            return {}
        if self.others:
            return {k: Posterior(s) for k, s in expected_s(features, self.others).items()}
        return {k: Posterior(s) for k, s in self.target.usual_s(features).items()}

    def to_keep(self) -> Learned | None:
        """The learned content of this target's own measurements; None if they are too few."""
        from bricks.predict.learned_file import Learned
        from bricks.predict.predictor import Predictor

        model = self.model()
        if not isinstance(model.predictor, Predictor) or self.others:
            return None
        return Learned(model.predictor, model.slowness, self.target.latencies().seconds)


@cache
def _controller() -> Any:
    import numpy  # noqa: F401  # the controller finds what is loaded

    return ThreadpoolController()
