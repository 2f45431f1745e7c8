"""The estimators of a workspace: from all measurements, and from this host's measurements.

Here to choose between them, and so that both learn of new measurements. Must not know how bricks
are measured.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from bricks.samples.call_overhead import needed_by
from bricks.session.estimator import Estimator
from bricks.store import Reading, Union

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.session.latencies import Latencies
    from bricks.session.plans import Plans
    from bricks.session.resources import Resources
    from bricks.system import Target


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
