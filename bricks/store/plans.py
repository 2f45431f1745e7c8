"""Plans and bricks of a cache: how models were decomposed for each target.

Must not know how models are decomposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, select

from bricks.decompose.plan import Brick, Decomposition
from bricks.store.database import Database
from bricks.store.engine import chunks, insert_or_ignore, insert_or_replace
from bricks.store.reading import ModelUsage, TimedPlan, by_name, in_order
from bricks.store.rows import brick_of, brick_row, decoding, plan_of, plan_row, usage_in
from bricks.store.schema import bricks, plans


class CachedPlans:
    """The plans that a cache has of each target, and their bricks."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def save(self, decomposition: Decomposition, target_key: str) -> None:
        """Store a plan and its new bricks; a plan saved again replaces the earlier one."""
        plan = decomposition.plan
        row = plan_row(plan, target_key, decomposition.wall_s)
        new = [brick_row(brick) for _, brick in sorted(decomposition.bricks.items())]
        with self._database.writing() as connection:
            insert_or_ignore(connection, bricks, new)
            unique = ["digest", "granularity", "target_key"]
            insert_or_replace(connection, plans, row, unique)

    def save_bricks(self, new_bricks: Iterable[Brick]) -> None:
        """Store the bricks that do not exist yet."""
        new = [brick_row(brick) for brick in new_bricks]
        if new:
            with self._database.writing() as connection:
                insert_or_ignore(connection, bricks, new)

    def load(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> TimedPlan | None:
        """The plan of a model, and the wall time in seconds that decomposing took; or None.

        ``name`` becomes the plan's ``model``: the same model may go by several names. None: the
        name that it was decomposed under.
        """
        query = _plans_of(target_key, granularity).where(plans.c.digest == digest)
        with self._database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            return None
        with decoding(f"the plan of {name or digest}"):
            plan = plan_of(row)
            return plan if name is None else replace(plan, model=name), row.wall_s

    def all(self, target_key: str, granularity: str) -> list[TimedPlan]:
        """All plans of a target, with the wall time in seconds of decomposing, by name."""
        plans_by_name: list[TimedPlan] = []
        with self._database.reading() as connection:
            for row in connection.execute(_plans_of(target_key, granularity)):
                with decoding(f"the plan of {row.digest}"):
                    plans_by_name.append((plan_of(row), row.wall_s))
        return by_name(plans_by_name)

    def usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[ModelUsage]:
        """The name of each model with a plan on the target, and its ``Plan.usage``.

        ``unlearned`` or not: see :meth:`bricks.store.measurements.Measurements.learned`.
        """
        query = _plans_of(target_key, granularity).order_by(plans.c.id)
        by_model = []
        with self._database.reading() as connection:
            for row in connection.execute(query):
                with decoding(f"the plan of {row.digest}"):
                    by_model.append(usage_in(row))
        return by_model

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """The known bricks of ``keys``, in their order."""
        with self._database.reading() as connection:
            known = bricks_in(connection, keys)
        return in_order(keys, known)


def bricks_in(connection: Connection, keys: Collection[str]) -> dict[str, Brick]:
    """The known bricks of ``keys``, in a transaction that the caller opened."""
    known: dict[str, Brick] = {}
    for chunk in chunks(keys):
        for row in connection.execute(select(bricks).where(bricks.c.key.in_(chunk))):
            with decoding(f"brick {row.key}"):
                known[row.key] = brick_of(row)
    return known


def _plans_of(target_key: str, granularity: str) -> Select[Any]:
    return select(plans).where(plans.c.granularity == granularity, plans.c.target_key == target_key)
