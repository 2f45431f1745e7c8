"""What to call models where many are shown: by their names, as far as these tell them apart."""

from __future__ import annotations

from collections.abc import Sequence

from bricks.decompose.plan import Plan


def titles(plans: Sequence[Plan]) -> list[str]:
    """Names of models; with their inputs, or as far as needed the digest, where several have one.

    A model may be there with several batch sizes, and two files may have one name.
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
