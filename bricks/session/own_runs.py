"""Whole models that this host has run along with their bricks.

Must not know why they were run, nor what their runs say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bricks.session.resources import Resources
    from bricks.system import Target


def earns_intervals(resources: Resources, target: Target | None = None) -> bool:
    """Whether ``target``, by default this host's, is one whose own runs count."""
    target = resources.target if target is None else target
    return (
        target.key == resources.target.key
        and resources.setup.info.timed
        and resources.options.workers == 1
        and target.system.accelerator is None
    )


def stored_runs(resources: Resources) -> list[str]:
    """The digests of the whole models that this host has run, in order."""
    costs = resources.store.measurements.costs(resources.target.key)
    return [key for key in costs if key.startswith("m1-") and "-w" not in key]
