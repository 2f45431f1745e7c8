"""Display titles of models where many are shown: their names, if these are distinct.

Separate so that all outputs name models the same way. Must not know how titles are displayed.
"""

from __future__ import annotations

from collections.abc import Sequence

from bricks.decompose.plan import Plan


def titles(plans: Sequence[Plan]) -> list[str]:
    """Names of models; where several share a name, their inputs or, if needed, digests are added.

    The list may contain one model with several batch sizes, or two files of one name.
    """
    found = [plan.model for plan in plans]
    for more in (_inputs, lambda plan: plan.digest[:11]):
        repeated = {title for title in found if found.count(title) > 1}
        found = [
            f"{title} ({more(plan)})" if title in repeated else title
            for title, plan in zip(found, plans, strict=True)
        ]
    return found


def _inputs(plan: Plan) -> str:
    return ", ".join(str(plan.types[value]) for value in plan.inputs)
