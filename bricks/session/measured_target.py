"""The bricks of one target in a source of measurements, and their latencies.

Read once, and again as far as new measurements are announced; with the conditions that the host was
watched in, and how its bricks follow them. Must not know what is learned from it, nor how bricks
are measured.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.samples.correction import Correction
from bricks.samples.measurement import Failure, Measurement
from bricks.samples.sensitivity import BrickWork, Sensitivities
from bricks.samples.usual_conditions import UsualConditions
from bricks.system.host_conditions import HostConditions, mean_conditions
from bricks.zoo import entries, programs

if TYPE_CHECKING:
    from bricks.decompose.occurrence import Usage
    from bricks.decompose.plan import Brick, Decomposition, Plan
    from bricks.predict.features import BrickFeatures, Context
    from bricks.store import Reading


@dataclass(slots=True)
class LoadedBricks:
    """Bricks loaded so far, and their features without context: both by key."""

    bricks: dict[str, Brick] = field(default_factory=dict)
    features: dict[str, BrickFeatures] = field(default_factory=dict)


class MeasuredTarget:
    """Results and bricks that ``source`` has of the target with ``key``.

    Bricks are of models cut at ``granularity``.

    ``measured`` and ``failed`` are the results read so far. ``loaded`` are bricks and features that
    several targets share.
    """

    def __init__(
        self, source: Reading, key: str, granularity: str, loaded: LoadedBricks | None = None
    ) -> None:
        self.source = source
        self.key = key
        self.granularity = granularity
        self.loaded = LoadedBricks() if loaded is None else loaded
        self.measured: dict[str, Measurement] = {}
        self.failed: set[str] = set()
        self._contexts: dict[str, Context] = {}

    def forget(self, remeasured: Collection[str]) -> None:
        """Discard results that new measurements and ``remeasured`` bricks replace."""
        for key in remeasured:
            self.measured.pop(key, None)
        self.failed.clear()
        self.__dict__.pop("history", None)

    def resolved(self, keys: Collection[str]) -> set[str]:
        """The subset of ``keys`` that is measured, or has failed."""
        open_keys = [k for k in keys if k not in self.measured and k not in self.failed]
        for key, result in self.source.measurements.results(self.key, open_keys).items():
            if isinstance(result, Measurement):
                self.measured[key] = result
            elif isinstance(result, Failure):
                self.failed.add(key)
        return {k for k in keys if k in self.measured or k in self.failed}

    @cached_property
    def history(self) -> HostHistory:
        """The conditions that its host was watched in."""
        return HostHistory.of(self.source, self.key)

    def latencies(self) -> KnownLatencies:
        """The latencies of measured bricks of all known models."""
        models = self.source.plans.usage(self.key, self.granularity)
        keys = sorted({key for _, usage in models for key in usage})
        self.note_contexts([usage for _, usage in models])
        self.resolved(keys)
        measured = {key: self.measured[key] for key in keys if key in self.measured}
        return KnownLatencies(self, measured, _families(models))

    def latencies_of(self, keys: Collection[str]) -> KnownLatencies:
        """The latencies of the measured bricks among ``keys``, without reading any other."""
        self.resolved(keys)
        measured = {key: self.measured[key] for key in keys if key in self.measured}
        return KnownLatencies(self, measured, {})

    def features(self, keys: Collection[str]) -> dict[str, BrickFeatures]:
        """Features of ``keys``, each brick in the model of whose work it is the largest share."""
        bare = self._bare_features(keys)
        return {
            key: replace(t, context=self._contexts[key]) if key in self._contexts else t
            for key, t in bare.items()
        }

    def usual_s(self, keys: Collection[str]) -> dict[str, float]:
        """The typical latency of each of ``keys`` in seconds, on an unknown machine."""
        from bricks.predict.roofline import Roofline

        features = self.features(sorted(keys))
        seconds = Roofline.usual().seconds([*features.values()])
        return dict(zip(features, map(float, seconds), strict=True))

    def add_model(self, decomposition: Decomposition) -> None:
        """Add a model's bricks, even if the cache could not store them."""
        self.loaded.bricks.update(decomposition.bricks)
        self.note_contexts([decomposition.plan.usage], decomposition.unseen_weight_bytes)

    def add_plans(self, plans: Iterable[Plan]) -> None:
        """Add models that were decomposed earlier, perhaps for another target."""
        self.note_contexts([plan.usage for plan in plans])

    def note_contexts(self, models: Sequence[Mapping[str, Usage]], unseen_bytes: int = 0) -> None:
        """Record the contexts of the bricks of ``models``; see :func:`contexts`."""
        from bricks.predict.features import contexts

        features = self._bare_features(sorted({key for usage in models for key in usage}))
        for key, context in contexts(models, features, unseen_bytes).items():
            self._contexts[key] = context.prevailing(self._contexts.get(key))

    def load(self, keys: Collection[str]) -> dict[str, Brick]:
        """The known bricks of ``keys``."""
        bricks = self.loaded.bricks
        missing = [key for key in keys if key not in bricks]
        bricks |= self.source.plans.load_bricks(missing)
        return {key: bricks[key] for key in keys if key in bricks}

    def _bare_features(self, keys: Collection[str]) -> dict[str, BrickFeatures]:
        from bricks.predict.features import extract_features

        features = self.loaded.features
        missing = [key for key in keys if key not in features]
        features |= {key: extract_features(b) for key, b in self.load(missing).items()}
        return {key: features[key] for key in keys if key in features}


class KnownLatencies:
    """Latencies of ``measured`` bricks of a target, all in the usual conditions of its host.

    ``families`` are keys of bricks by family of models.
    """

    def __init__(
        self,
        target: MeasuredTarget,
        measured: Mapping[str, Measurement],
        families: Mapping[str, set[str]],
    ) -> None:
        self._target = target
        self.measured = measured
        self.families = families

    @cached_property
    def host(self) -> HostConditions | None:
        """The usual conditions; None if they are not known."""
        usual = self._target.history.usual(self.measured.values())
        return None if usual is None else usual.mean

    @property
    def seconds(self) -> dict[str, float]:
        """The latency of each brick in seconds."""
        return {key: self.mean_s(m) for key, m in self.measured.items()}

    def mean_s(self, measurement: Measurement) -> float:
        """The mean latency in seconds of a brick's runs, in the usual conditions."""
        return self._correction.mean_s(measurement)

    @cached_property
    def _correction(self) -> Correction:
        return self._target.history.correction([*self.measured.values()])


def _families(models: Iterable[tuple[str, Collection[str]]]) -> dict[str, set[str]]:
    """The bricks of each family of models; a model outside the zoo is a family of its own."""
    family = {entry.name: entry.family for entry in (*entries(), *programs())}
    families: dict[str, set[str]] = defaultdict(set)
    for model, keys in models:
        families[family.get(model, model)].update(keys)
    return dict(families)


class HostHistory:
    """The history of the target with ``key`` in ``source``, which runs bricks on ``threads``."""

    def __init__(self, source: Reading, key: str, threads: int) -> None:
        self._source, self._key, self.threads = source, key, threads
        self._work: dict[str, BrickWork] = {}

    @classmethod
    def of(cls, source: Reading, key: str) -> HostHistory:
        """The history of a target of ``source``, whose threads are looked up."""
        threads = {t.key: t.runtime.threads for t in source.systems.targets()}
        return cls(source, key, threads.get(key, 1))

    @cached_property
    def watched(self) -> UsualConditions | None:
        """The usual conditions; None if the host was never watched."""
        return UsualConditions.seen(self._source.measurements.watched(self._key))

    def usual(self, measured: Iterable[Measurement]) -> UsualConditions | None:
        """The usual conditions; of an unwatched host, those in which bricks were ``measured``."""
        if self.watched is not None:
            return self.watched
        mean = mean_conditions(m.host for m in measured)
        return None if mean is None else UsualConditions.assumed(mean)

    def sensitivities(self, keys: Collection[str]) -> Sensitivities:
        """How the bricks of ``keys`` follow the conditions."""
        missing = [key for key in keys if key not in self._work]
        if missing:
            bricks = self._source.plans.load_bricks(missing)
            self._work |= {key: work_of(brick) for key, brick in bricks.items()}
        mean = None if self.watched is None else self.watched.mean
        return Sensitivities(self._work, self.threads, mean)

    def correction(self, measured: Collection[Measurement]) -> Correction:
        """The correction of measurements to the usual conditions."""
        sensitivities = self.sensitivities([m.key for m in measured])
        return Correction(sensitivities, self.usual(measured), measured)


def work_of(brick: Brick) -> BrickWork:
    """The work of a brick, from its types and operators."""
    weights, values = brick.numeric_weight_bytes, brick.bytes_moved - brick.numeric_weight_bytes
    names = [name.lower() for name in brick.operators]
    if any("gather" in name or "embedding" in name for name in names):
        weights = min(weights, values)  # only some rows of a table are read
    convolves = any("conv" in name for name in names)
    return BrickWork(float(brick.flops or 0), float(values), float(weights), len(names), convolves)
