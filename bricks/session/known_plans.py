"""Plans of models that a cache or published measurements hold, for any target.

A plan serves every target whose runtime executes the same graph. Nothing is decomposed here. Must
not know how bricks are measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks import backends
from bricks.graph.form import operator_title

if TYPE_CHECKING:
    from bricks.decompose.granularity import Granularity
    from bricks.decompose.plan import Brick, Plan
    from bricks.store import Reading, Store
    from bricks.store.reading import TimedPlan
    from bricks.system import Target


class KnownPlans:
    """Plans of models cut at ``granularity``, in ``store`` and in ``known``, which includes it."""

    def __init__(self, store: Store, known: Reading, granularity: Granularity) -> None:
        self._store = store
        self._known = known
        self._granularity = granularity

    def stored(self, digest: str, target: Target, name: str | None) -> TimedPlan | None:
        """The user's own plan of a model on ``target``; see :meth:`find`."""
        return self._load(self._store, digest, target, name)

    def find(self, digest: str, target: Target, name: str | None = None) -> TimedPlan | None:
        """The plan of the model with ``digest`` on ``target``, or None.

        It may be of another target that executes the same graph. ``name`` becomes the plan's
        ``model``; None keeps the name under which the model was decomposed.
        """
        for source in (self._store, self._known):  # opening published files takes a moment
            plan = self._load(source, digest, target, name)
            if plan is not None:
                return plan
        for other in self._known.systems.targets() if self._granularity.executed else ():
            if other.key != target.key and _may_execute_same_graph(other, target):
                plan = self._load(self._known, digest, other, name)
                if plan is not None and _executes_same_graph(plan[0], other, target):
                    return plan
        return None

    def serves(self, plan: Plan, bricks: Mapping[str, Brick], own: Target, target: Target) -> bool:
        """Whether ``plan`` of ``bricks``, which ``own`` executes, is that of ``target`` too."""
        if target.key == own.key or not self._granularity.executed:
            return True
        # A target that has measured all bricks of the plan got them in a private suite.
        results = self._known.measurements.results(target.key, plan.keys)
        return (
            len(results) == len(plan.keys)
            or _executes_same_graph(plan, own, target)
            or (own.executes_like(target, any_vectors=True) and _any_vectors(bricks, own))
        )

    def _load(
        self, source: Reading, digest: str, target: Target, name: str | None
    ) -> TimedPlan | None:
        plan = source.plans.load(digest, str(self._granularity), target.key, name=name)
        if plan is None or plan[0].memory.outdated:
            return None  # it is made again
        if self._granularity.executed and _revised(source, plan[0], target):
            return None
        return plan


def _revised(source: Reading, plan: Plan, target: Target) -> bool:
    """Whether ``plan`` follows an earlier rule of its runtime that was wrong of its operators."""
    name = target.runtime.backend
    own = backends.offer(name) if name in backends.names() else None
    if own is None or plan.rule >= own.rule:
        return False
    return not own.revised.isdisjoint(_operators(source.plans.load_bricks(plan.keys)))


def _operators(bricks: Mapping[str, Brick]) -> set[str]:
    """The plain names of the operators of ``bricks``."""
    return {operator_title(name) for brick in bricks.values() for name in brick.operators}


def _any_vectors(bricks: Mapping[str, Brick], target: Target) -> bool:
    """Whether the graph of ``bricks`` is that of all widths of vectors."""
    vectorised = backends.offer(target.runtime.backend).vectorised
    return vectorised is not None and vectorised.isdisjoint(_operators(bricks))


def _may_execute_same_graph(one: Target, other: Target) -> bool:
    """Whether some plan of one target may be that of another."""
    mine, theirs = one.runtime, other.runtime
    same_runtime = (mine.backend, mine.version) == (theirs.backend, theirs.version)
    return same_runtime or one.executes_like(other)


def _executes_same_graph(plan: Plan, one: Target, other: Target) -> bool:
    """Whether ``plan`` of one target is that of another; recorded programs are equal on all."""
    if plan.memory.processor_specific:
        return one.executes_like(other)
    return _may_execute_same_graph(one, other)
