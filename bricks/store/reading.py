"""The read interface of measurements, in a cache or in published files.

Separate so that estimates and predictions do not depend on where a measurement comes from. Must not
know how anything is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from bricks.decompose.occurrence import Usage
from bricks.decompose.plan import Brick, Plan

if TYPE_CHECKING:
    from bricks.samples.measurement import Failure, Measurement
    from bricks.system.host_conditions import HostConditions
    from bricks.system.target import System, Target

Value = TypeVar("Value")

# A plan, and the wall time in seconds that decomposing its model took.
TimedPlan = tuple[Plan, float]

# The name of a model, and its bricks as ``Plan.usage``.
ModelUsage = tuple[str, dict[str, Usage]]


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
