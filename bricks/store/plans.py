"""Plans and bricks of a cache: how models were decomposed for each target.

Must not know how models are decomposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.store.reading import ModelUsage, TimedPlan, by_name, in_order
from bricks.store.rows import brick_of, brick_row, decoding, plan_of, plan_row, usage_in
from bricks.store.views import CacheView, chunks, listed

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.store.database import Database


_PLANS = "SELECT * FROM plans WHERE granularity = :granularity AND target_key = :target"


class CachedPlans:
    """The plans that a cache has of each target, and their bricks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, decomposition: Decomposition, target_key: str) -> None:
        """Store a plan and its new bricks; a plan saved again replaces the earlier one."""
        plan = decomposition.plan
        row = plan_row(plan, target_key, decomposition.wall_s)
        from bricks.store.engine import insert_or_ignore, insert_or_replace
        from bricks.store.schema import bricks, plans

        new = [brick_row(brick) for _, brick in sorted(decomposition.bricks.items())]
        with self._database.writing() as connection:
            insert_or_ignore(connection, bricks, new)
            unique = ["digest", "granularity", "target_key"]
            insert_or_replace(connection, plans, row, unique)

    def save_bricks(self, new_bricks: Iterable[Brick]) -> None:
        """Store the bricks that do not exist yet."""
        new = [brick_row(brick) for brick in new_bricks]
        if new:
            from bricks.store.engine import insert_or_ignore
            from bricks.store.schema import bricks

            with self._database.writing() as connection:
                insert_or_ignore(connection, bricks, new)

    def load(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> TimedPlan | None:
        """The plan of a model, and the wall time in seconds that decomposing took; or None.

        ``name`` becomes the plan's ``model``: the same model may go by several names. None: the
        name that it was decomposed under.
        """
        values = {"granularity": granularity, "target": target_key, "digest": digest}
        with self._database.viewing() as view:
            row = next(view.rows(f"{_PLANS} AND digest = :digest", values), None)
        if row is None:
            return None
        with decoding(f"the plan of {name or digest}"):
            plan = plan_of(row)
            return plan if name is None else replace(plan, model=name), row.wall_s

    def all(self, target_key: str, granularity: str) -> list[TimedPlan]:
        """All plans of a target, with the wall time in seconds of decomposing, by name."""
        plans_by_name: list[TimedPlan] = []
        values = {"granularity": granularity, "target": target_key}
        with self._database.viewing() as view:
            for row in view.rows(_PLANS, values):
                with decoding(f"the plan of {row.digest}"):
                    plans_by_name.append((plan_of(row), row.wall_s))
        return by_name(plans_by_name)

    def usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[ModelUsage]:
        """The name of each model with a plan on the target, and its ``Plan.usage``.

        ``unlearned`` or not: see :meth:`bricks.store.measurements.Measurements.learned`.
        """
        values = {"granularity": granularity, "target": target_key}
        by_model = []
        with self._database.viewing() as view:
            for row in view.rows(f"{_PLANS} ORDER BY id", values):
                with decoding(f"the plan of {row.digest}"):
                    by_model.append(usage_in(row))
        return by_model

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """The known bricks of ``keys``, in their order."""
        with self._database.viewing() as view:
            known = bricks_in(view, keys)
        return in_order(keys, known)


def bricks_in(view: CacheView, keys: Collection[str]) -> dict[str, Brick]:
    """The known bricks of ``keys``, in a transaction that the caller opened."""
    known: dict[str, Brick] = {}
    for chunk in chunks(keys):
        these, values = listed(chunk)
        for row in view.rows(f"SELECT * FROM bricks WHERE key IN {these}", values):
            with decoding(f"brick {row.key}"):
                known[row.key] = brick_of(row)
    return known
