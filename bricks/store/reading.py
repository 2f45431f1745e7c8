"""The read interface of measurements, in a cache or in published files, or in several as one.

Separate so that estimates and predictions do not depend on where a measurement comes from. Of
several sources the cache's own plans and results win; nothing is ever copied. Must not know how
anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from bricks.decompose.occurrence import Usage
from bricks.decompose.plan import Brick, Plan
from bricks.system.target import System, Target

if TYPE_CHECKING:
    from bricks.samples.measurement import Failure, Measurement
    from bricks.system.host_conditions import HostConditions

Value = TypeVar("Value")

# A plan, and the wall time in seconds that decomposing its model took.
TimedPlan = tuple[Plan, float]

# The name of a model, and its bricks as ``Plan.usage``.
ModelUsage = tuple[str, dict[str, Usage]]

# What is learned from a source hardly changes with so many times fewer measurements of another.
_MANY_TIMES = 100


def in_order(keys: Iterable[str], known: Mapping[str, Value]) -> dict[str, Value]:
    """The entries of ``known`` under ``keys``, in the order of ``keys``."""
    return {key: known[key] for key in dict.fromkeys(keys) if key in known}


def by_name(plans: Iterable[TimedPlan]) -> list[TimedPlan]:
    """``plans`` sorted by the names of their models."""
    return sorted(plans, key=lambda timed_plan: (timed_plan[0].model, timed_plan[0].digest))


class SystemsReading(Protocol):
    """Systems and targets; see :class:`bricks.store.systems.Systems`."""

    def all(self) -> list[System]:
        """All systems, by name."""

    def targets(self) -> list[Target]:
        """All targets that run models, by name of their system."""


class PlansReading(Protocol):
    """Plans and bricks; see :class:`bricks.store.plans.CachedPlans`."""

    def load(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> TimedPlan | None:
        """The plan of a model, called ``name``, and the wall seconds of decomposing; or None.

        Without ``name``, it has the name that it was decomposed under.
        """

    def all(self, target_key: str, granularity: str) -> list[TimedPlan]:
        """All plans of a target, with the wall time in seconds of decomposing, by name."""

    def usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[ModelUsage]:
        """The name of each model with a plan on the target, and its ``Plan.usage``.

        With ``unlearned``, models in the file of :meth:`MeasurementsReading.learned` are left out.
        """

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """The known bricks of ``keys``, in their order."""


class MeasurementsReading(Protocol):
    """SettledMeasurement measurements; see :class:`bricks.store.measurements.Measurements`."""

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """The settled results of ``keys`` on this target, in the order of ``keys``."""

    def watched(self, target_key: str) -> list[HostConditions]:
        """The conditions that this target's host was watched in, the last ones first."""

    def costs(self, target_key: str) -> dict[str, float]:
        """Wall seconds, by key, of all that is measured on this target."""

    def learned(self, target_key: str) -> bytes | None:
        """The learned file of all measurements on this target; None if there is none.

        A file of :mod:`bricks.predict.learned_file`, or of a device's
        :mod:`bricks.predict.kernels.learned_kernels`, whose version may be another one.
        """


class Reading(Protocol):
    """A source of measurements: :class:`bricks.Store`, published files, or several as one."""

    @property
    def systems(self) -> SystemsReading:
        """The systems and targets that it knows."""

    @property
    def plans(self) -> PlansReading:
        """The plans of its targets, and their bricks."""

    @property
    def measurements(self) -> MeasurementsReading:
        """The settled measurements on its targets."""

    def refuse_damage(self) -> None:
        """Raise StoreError where what is kept is damaged."""


class Union:
    """Several sources of measurements as one, the first ones first; see :class:`Reading`.

    On the target with the key ``first_only``, only results of the first source count: where bricks
    are measured, results of other hosts are no substitute. Plans of all sources count.
    """

    def __init__(self, *sources: Reading, first_only: str | None = None) -> None:
        self._sources = sources
        self.systems: SystemsReading = _UnionSystems([source.systems for source in sources])
        self.plans: PlansReading = _UnionPlans([source.plans for source in sources])
        self.measurements: MeasurementsReading = _UnionMeasurements(
            [source.measurements for source in sources], first_only
        )

    def refuse_damage(self) -> None:
        """Raise StoreError where a source is damaged."""
        for source in self._sources:
            source.refuse_damage()


class _UnionSystems:
    def __init__(self, sources: Sequence[SystemsReading]) -> None:
        self._sources = sources

    def all(self) -> list[System]:
        """All systems, by name: each as the first source that knows it describes it."""
        by_key = {s.key: s for source in reversed(self._sources) for s in source.all()}
        return sorted(by_key.values(), key=lambda system: system.name)

    def targets(self) -> list[Target]:
        """All targets, by name of their system, which is one for all targets of a system."""
        # A target is kept together with its system. So systems that are read after the targets
        # have that of each, also of one that another process adds meanwhile.
        by_key = {t.key: t for source in reversed(self._sources) for t in source.targets()}
        systems = {system.key: system for system in self.all()}
        named = [Target(systems[t.system.key], t.runtime) for t in by_key.values()]
        return sorted(named, key=lambda target: (target.system.name, target.key))


class _UnionPlans:
    def __init__(self, sources: Sequence[PlansReading]) -> None:
        self._sources = sources

    def load(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> TimedPlan | None:
        """The plan of the first source that has one."""
        plans = (s.load(digest, granularity, target_key, name=name) for s in self._sources)
        return next(filter(None, plans), None)

    def all(self, target_key: str, granularity: str) -> list[TimedPlan]:
        by_digest: dict[str, TimedPlan] = {}
        for source in reversed(self._sources):
            by_digest |= {
                timed_plan[0].digest: timed_plan
                for timed_plan in source.all(target_key, granularity)
            }
        return by_name(by_digest.values())

    def usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[ModelUsage]:
        # A model of several sources is repeated, which does not change any result.
        every = (
            source.usage(target_key, granularity, unlearned=unlearned) for source in self._sources
        )
        return [model for models in every for model in models]

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        bricks: dict[str, Brick] = {}
        for source in self._sources:
            missing = [key for key in keys if key not in bricks]
            bricks |= source.load_bricks(missing) if missing else {}
        return in_order(keys, bricks)


class _UnionMeasurements:
    def __init__(self, sources: Sequence[MeasurementsReading], first_only: str | None) -> None:
        self._sources = sources
        self._first_only = first_only

    def _on(self, target_key: str) -> Sequence[MeasurementsReading]:
        """The sources whose results on a target count."""
        return self._sources[:1] if target_key == self._first_only else self._sources

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        results: dict[str, Measurement | Failure] = {}
        for source in self._on(target_key):
            missing = [key for key in keys if key not in results]
            results |= source.results(target_key, missing) if missing else {}
        return in_order(keys, results)

    def watched(self, target_key: str) -> list[HostConditions]:
        """See the protocol; conditions of the first source that has any."""
        by_source = (source.watched(target_key) for source in self._on(target_key))
        return next(filter(None, by_source), [])

    def costs(self, target_key: str) -> dict[str, float]:
        cost_s: dict[str, float] = {}
        for source in reversed(self._on(target_key)):
            cost_s |= source.costs(target_key)
        return cost_s

    def learned(self, target_key: str) -> bytes | None:
        """The learned file of the source that has nearly all measurements of this target."""
        sources = self._on(target_key)
        counts = [len(source.costs(target_key)) for source in sources]
        most = max(counts, default=0)
        if not most or sum(counts) - most > most / _MANY_TIMES:
            return None
        return sources[counts.index(most)].learned(target_key)
