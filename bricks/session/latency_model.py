"""The latency model of a target: measured bricks, and predictions for the others.

Here because it combines a target's measurements with a predictor: it learns from all measured
bricks of all models at one granularity, each in the machine state in which it was measured, and
while these are few from the measurements of other targets. Learning starts at the first request.
Must not know how bricks are measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks.compose.prior import OTHER_HOST_SD
from bricks.decompose.plan import Brick, Decomposition, Plan, Usage
from bricks.graph.model_metadata import noted_other_kernels
from bricks.graph.view import parse_model
from bricks.measure.state_panel import learn_states
from bricks.predict.defaults import MIN
from bricks.predict.prediction import Predictions
from bricks.samples.call_overhead import ALL_PROBES, PROBES
from bricks.samples.machine_state import dominant_state, same_state
from bricks.samples.measurement import Failure, Measurement
from bricks.samples.state_correction import StateCorrection
from bricks.samples.state_model import StateModel
from bricks.store import Reading
from bricks.zoo import entries, programs

if TYPE_CHECKING:
    from bricks.predict.features import BrickFeatures, Context
    from bricks.predict.learned_file import Learned
    from bricks.predict.observations import StatesSeen
    from bricks.predict.planner import Belief
    from bricks.predict.prediction import Prediction
    from bricks.predict.predictor import Predictor
    from bricks.predict.transfer import Borrowed, SourceTarget, Transfer

# From this many measured bricks on, a target's own measurements suffice.
WELL_KNOWN = 300

# The number of other targets to use (those with most measurements), and the number of bricks from
# which each learns its unmeasured ones. Keys are digests: the first keys are a random sample.
_MAX_OTHERS, _ENOUGH = 4, 800


@dataclass(slots=True)
class Loaded:
    """Bricks loaded so far, and their features without context: both by key."""

    bricks: dict[str, Brick] = field(default_factory=dict)
    features: dict[str, BrickFeatures] = field(default_factory=dict)


class LatencyModel:
    """Latencies of bricks on one target of ``store``, for models cut at ``granularity``.

    ``loaded`` are bricks and features that latency models of several targets have in common.
    """

    def __init__(
        self,
        store: Reading,
        target_key: str,
        granularity: str,
        loaded: Loaded | None = None,
    ) -> None:
        self._store = store
        self._target = target_key
        self._granularity = granularity
        self._measured: dict[str, Measurement] = {}
        self._known: dict[str, Measurement] = {}  # those of known models, when it last learned
        self._failed: set[str] = set()
        self._loaded = Loaded() if loaded is None else loaded
        self._contexts: dict[str, Context] = {}
        # Models share bricks; in another model or state a brick has other features.
        self._predicted: dict[tuple[str, BrickFeatures], Prediction] = {}
        self.added: set[str] = set()  # digests of models
        self._planned: set[str] = set()  # likewise, of models known by their plans alone
        self._ahead: set[str] = set()  # bricks of added models that no prediction met so far
        self._predictor: Predictor | Transfer | None = None
        self._sources: list[SourceTarget] | None = None
        self._missing_count = 0  # bricks, until there are enough to learn from
        self._state_s: float | None = None  # the machine state in which most is measured
        self._seen: StatesSeen | None = None  # None: all was corrected to one state
        self._correction: StateCorrection | None = None  # to the state in which most is measured
        self._states: StateModel | None = None
        self._kept = False  # whether it was learned earlier
        self._elsewhere = False  # whether it was learned from another host of this kind
        self._stale = True

    def invalidate(self, remeasured: Collection[str] = ()) -> None:
        """Learn again: there are new measurements, and new rounds of the ``remeasured`` bricks."""
        for key in remeasured:
            self._measured.pop(key, None)
        self._failed.clear()
        self._predicted.clear()
        self._states = None
        self._stale = True

    def add_model(self, decomposition: Decomposition) -> None:
        """Add this model's bricks, even if the cache could not store them."""
        if decomposition.plan.digest in self.added:
            return
        self.added.add(decomposition.plan.digest)
        self._loaded.bricks.update(decomposition.bricks)
        self._ahead.update(decomposition.bricks)
        self._note_contexts([decomposition.plan.usage], decomposition.unseen_weight_bytes)

    def add_plan(self, plan: Plan) -> None:
        """Add a model that was decomposed earlier, perhaps for another target."""
        if plan.digest not in self.added | self._planned:
            self._planned.add(plan.digest)
            self._note_contexts([plan.usage])

    def resolved(self, keys: Collection[str]) -> set[str]:
        """Those of ``keys`` that are measured by now, or have failed."""
        open_keys = [k for k in keys if k not in self._measured and k not in self._failed]
        for key, result in self._store.measurements.results(self._target, open_keys).items():
            if isinstance(result, Measurement):
                self._measured[key] = result
            elif isinstance(result, Failure):
                self._failed.add(key)
        return {k for k in keys if k in self._measured or k in self._failed}

    def states(self, keys: Collection[str]) -> StateModel:
        """How latencies change between machine states on this target, those of ``keys`` too."""
        if self._states is None:
            self._states = learn_states(self._store, self._target)
        features = self.features([key for key in keys if not self._states.knows(key)])
        facts = {key: each.size_facts for key, each in features.items()}
        self._states = self._states.with_facts(facts)
        return self._states

    @property
    def missing_count(self) -> int:
        """How many more bricks must be measured before any can be predicted."""
        self.learned()
        return self._missing_count

    def predictions(self, keys: Collection[str], state_s: float | None = None) -> Predictions:
        """Predictions for the unresolved ``keys``; empty if too few bricks are measured anywhere.

        Also for those that cannot be measured, since the runtime runs other kernels for them alone.
        All are for the machine state ``state_s`` if enough is measured in it, and else, as by
        default, for the state in which most is measured.
        """
        unresolved = set(keys) - self.resolved(keys)
        unmeasurable = self._unmeasurable(keys)
        wanted = sorted(unresolved | unmeasurable)
        predictor = (self.learned() or self.borrowed()) if wanted else None
        if predictor is None:
            return Predictions()
        seen = self._seen
        if state_s is None or seen is None or not seen.enough_in(state_s):
            state_s = self._state_s
        features = self._in_state(self.features(wanted), state_s)
        if any(each not in self._predicted for each in features.items()):
            # Those of all added models at once, which takes far less time than one by one.
            ahead = self._ahead - self.resolved(self._ahead) - features.keys()
            self._ahead.clear()
            every = {**features, **self._in_state(self.features(sorted(ahead)), state_s)}
            new = {key: t for key, t in every.items() if (key, t) not in self._predicted}
            for key, prediction in predictor.predict(new).items():
                self._predicted[key, every[key]] = prediction
        predicted = {key: self._predicted[key, t] for key, t in features.items()}
        bias = math.hypot(predictor.bias, OTHER_HOST_SD) if self._elsewhere else predictor.bias
        return Predictions(predicted, bias, state_s, unmeasurable=unmeasurable)

    def _unmeasurable(self, keys: Collection[str]) -> frozenset[str]:
        """Those of ``keys`` that failed since they run as other kernels alone."""
        failed = self._load([key for key in keys if key in self._failed])
        return frozenset(k for k, b in failed.items() if noted_other_kernels(parse_model(b.model)))

    def predictions_in(
        self, state_s: float | None, keys: Collection[str], predictions: Predictions
    ) -> Predictions:
        """Those of ``predictions`` that are of ``keys``, in the machine state ``state_s``.

        They are made anew if ``predictions`` are for another state.
        """
        wanted = set(keys)
        mine = {key: p for key, p in predictions.of.items() if key in wanted}
        if not mine or same_state(state_s, predictions.state_s):
            return replace(predictions, of=mine)
        return self.predictions(mine, state_s)

    def beliefs(self, keys: Collection[str]) -> dict[str, Belief]:
        """Beliefs about each of ``keys``, and about all measured bricks, which inform them.

        A failed brick has a latency of zero, and counts as measured.
        """
        from bricks.predict.planner import Belief
        from bricks.predict.transfer import expected

        predictor = self.learned()
        resolved = self.resolved(keys) | self._measured.keys()
        found = {key: Belief(self._latency_s(key), measured=True) for key in resolved}
        features = self.features(sorted(set(keys) - resolved))
        if predictor is not None:
            features = self._in_state(features, self._state_s)
            for key, prediction in predictor.predict(features).items():
                scale = predictor.scale(features[key])
                found[key] = Belief(prediction.latency_s, scale=scale)
        elif features and self.others:
            found |= {k: Belief(s) for k, s in expected(features, self.others).items()}
        elif features:
            found |= {k: Belief(s) for k, s in self.usual_s(features).items()}
        return found

    def usual_s(self, keys: Collection[str]) -> dict[str, float]:
        """The typical latency of each of ``keys`` in seconds, on an unknown machine."""
        from bricks.predict.roofline import Roofline

        features = self.features(sorted(keys))
        seconds = Roofline.usual().seconds([*features.values()])
        return dict(zip(features, map(float, seconds), strict=True))

    @property
    def others(self) -> Sequence[SourceTarget]:
        """The data of other source targets, as long as too few bricks are measured here."""
        if self._kept or len(self._measured) >= WELL_KNOWN:
            return ()
        if self._sources is None:
            keys = [t.key for t in self._store.systems.targets() if t.key != self._target]
            keys.sort(key=lambda key: (-len(self._store.measurements.costs(key)), key))
            known = (
                LatencyModel(self._store, key, self._granularity, self._loaded)
                for key in keys[:_MAX_OTHERS]
            )
            found = [each.as_source() for each in known]
            self._sources = [each for each in found if each is not None]
        return self._sources

    def borrowed(self) -> Borrowed | None:
        """What other targets tell about this one, if too little is measured here to learn from.

        Preferably those that differ in the system alone.
        """
        if self.learned() is not None or not self.others:
            return None
        from bricks.predict.transfer import Borrowed

        runtimes = {target.key: target.runtime for target in self._store.systems.targets()}
        mine = runtimes.get(self._target)
        alike = [o for o in self.others if runtimes.get(o.target_key) == mine]
        return Borrowed(alike or self.others)

    def borrowed_calls(self) -> dict[str, Measurement | Failure]:
        """What a call costs on a target of which predictions are borrowed; else nothing."""
        borrowed = self.borrowed()
        for key in () if borrowed is None else borrowed.target_keys:
            found = self._store.measurements.results(key, ALL_PROBES)
            if all(isinstance(found.get(probe), Measurement) for probe in PROBES.values()):
                return found
        return {}

    def as_source(self) -> SourceTarget | None:
        """This target's data as a source for another target; None if there are too few."""
        from bricks.predict.predictor import learn
        from bricks.predict.transfer import SourceTarget

        kept = self._learned_before()
        if kept is not None:
            kernels = frozenset[str]().union(*(f.kernels for f in kept.predictor.fields.values()))
            known = kept.predictor, kernels, kept.seen, kept.state_s
            return SourceTarget(self._target, kept.latency_s, *known)
        latency_s, families = self.known_latencies()
        features = self.features(sorted(latency_s)[:_ENOUGH])
        predictor = learn(features, latency_s, families)
        if predictor is None:
            return None
        kernels = frozenset(features.kernel for features in features.values())
        return SourceTarget(self._target, latency_s, predictor, kernels)

    def learned(self) -> Predictor | Transfer | None:
        """The predictor learned from all current measurements; None if there are too few."""
        if self._stale:
            self._store.refuse_damage()  # bricks that cannot be read would be predicted
            kept = self._learned_before()
            self._kept = self._elsewhere = kept is not None
            if kept is not None:
                self._predictor, self._seen, self._state_s = kept.predictor, kept.seen, kept.state_s
            else:
                self._learn()
                own = sum(not m.published for m in self._known.values())
                self._elsewhere = 2 * own < len(self._known)
            self._missing_count = 0 if self._predictor else max(1, MIN - len(self._known))
            self._stale = False
        return self._predictor

    def to_keep(self) -> Learned | None:
        """What is learned from this target's own measurements; None if they are too few."""
        from bricks.predict.learned_file import Learned
        from bricks.predict.predictor import Predictor

        found = self.learned()
        if self._seen is None or not isinstance(found, Predictor) or self.others:
            return None
        return Learned(found, self._seen, self._state_s, self.known_latencies()[0])

    def _learned_before(self) -> Learned | None:
        """What was learned earlier from the same measurements, and kept with them."""
        content = self._store.measurements.learned(self._target)
        if content is None:
            return None
        from bricks.predict.learned_file import read

        found = read(content, self._target, self._granularity)
        if found is not None:
            new = self._store.plans.usage(self._target, self._granularity, unlearned=True)
            self._note_contexts([usage for _, usage in new])
        return found

    def _learn(self) -> None:
        # Imported here, since its libraries take a moment to import.
        from bricks.predict.observations import Observations
        from bricks.predict.predictor import learn

        families = self._look()
        features = self.features(self._known)
        self._seen = self._predictor = None
        if self.others:
            from bricks.predict.transfer import learn_transfer

            latency_s = {key: self._latency_s(key) for key in self._known}
            self._predictor = learn_transfer(features, latency_s, families, self.others)
        if self._predictor is None:
            measured = {key: self._known[key] for key in features}
            observed = Observations.of(measured, self._state_s)
            self._predictor = learn(observed.features(features), observed.latency_s, families)
            self._seen = observed.states_seen

    def known_latencies(self) -> tuple[dict[str, float], dict[str, set[str]]]:
        """Latencies of all measured bricks, in one state, and the bricks of each family."""
        families = self._look()
        return {key: self._latency_s(key) for key in self._known}, families

    def _look(self) -> dict[str, set[str]]:
        """Look which bricks of known models are measured; the bricks of each family."""
        models = self._store.plans.usage(self._target, self._granularity)
        every = sorted({key for _, usage in models for key in usage})
        self._note_contexts([usage for _, usage in models])
        self.resolved(every)
        known = {key: self._measured[key] for key in every if key in self._measured}
        self._state_s = dominant_state(m.state_s for m in known.values())
        self._known, self._correction = known, None
        return _families(models)

    def _in_state(
        self, features: dict[str, BrickFeatures], state_s: float | None
    ) -> dict[str, BrickFeatures]:
        """The features of bricks in a machine state, as the predictor expects them."""
        seen = self._seen
        return features if seen is None else seen.in_state(features, state_s)

    def _latency_s(self, key: str) -> float:
        """What one of many runs of a brick takes in the state in which most is measured; or zero.

        Latencies of two machine states must not be mixed.
        """
        measured = self._measured.get(key)
        if measured is None:
            return 0.0
        if self._correction is None:
            every = self._known.values()
            changed = not all(m.known_in(self._state_s) for m in every)
            states = self.states(self._known) if changed else None
            self._correction = StateCorrection(every, self._state_s, states)
        return self._correction.mean_s(measured)

    def features(self, keys: Collection[str]) -> dict[str, BrickFeatures]:
        """The features of each of ``keys``, in the model of whose work it is the largest share."""
        found = self._bare_features(keys)
        return {
            key: replace(t, context=self._contexts[key]) if key in self._contexts else t
            for key, t in found.items()
        }

    def _bare_features(self, keys: Collection[str]) -> dict[str, BrickFeatures]:
        from bricks.predict.features import extract_features

        found = self._loaded.features
        missing = [key for key in keys if key not in found]
        found |= {key: extract_features(b) for key, b in self._load(missing).items()}
        return {key: found[key] for key in keys if key in found}

    def _note_contexts(self, models: Sequence[Mapping[str, Usage]], unseen_bytes: int = 0) -> None:
        """Note the contexts of these models' bricks; see :func:`contexts`."""
        from bricks.predict.context import contexts

        features = self._bare_features(sorted({key for usage in models for key in usage}))
        for key, context in contexts(models, features, unseen_bytes).items():
            self._contexts[key] = context.prevailing(self._contexts.get(key))

    def _load(self, keys: Collection[str]) -> dict[str, Brick]:
        bricks = self._loaded.bricks
        bricks |= self._store.plans.load_bricks([key for key in keys if key not in bricks])
        return {key: bricks[key] for key in keys if key in bricks}


def _families(models: Iterable[tuple[str, Collection[str]]]) -> dict[str, set[str]]:
    """The bricks of each family of models; a model outside the zoo is a family of its own."""
    family = {entry.name: entry.family for entry in (*entries(), *programs())}
    found: dict[str, set[str]] = defaultdict(set)
    for model, keys in models:
        found[family.get(model, model)].update(keys)
    return dict(found)
