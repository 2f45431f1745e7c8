"""What the branches take that synthetic data did not choose: each is a brick, measured by itself.

Must not know how a prediction is shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.decompose.identity import with_other_branch
from bricks.samples.measurement import Measurement, round_spread
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

THEN, ELSE = "then_branch", "else_branch"


@dataclass(frozen=True, slots=True)
class OtherBranch:
    """An If called ``node`` that took branch ``taken``, for ``taken_s`` seconds of the estimate.

    Branch ``other`` takes ``other_s`` seconds by itself, with its inputs in the caches or not as in
    any model; None if it was not measured.
    """

    node: str
    taken: str
    other: str
    taken_s: float
    other_s: Interval | None


def unmeasured_branches(workspace: Workspace, models: Iterable[Model]) -> list[Brick]:
    """The bricks of branches that data did not choose in ``models``, without a measurement here."""
    bricks = {
        other.key: other
        for model in models
        for _, _, other in _others(workspace, model, workspace.target)
    }
    if not bricks:
        return []
    known = workspace.store.measurements.settled(workspace.target.key, sorted(bricks))
    again = workspace.options.conditions.again
    return [brick for key, brick in bricks.items() if again or key not in known]


def other_branches(
    workspace: Workspace, model: Model, estimate: Estimate, target: Target
) -> tuple[OtherBranch, ...]:
    """The branches that data did not choose in ``model``, and what was measured of them."""
    chosen = _others(workspace, model, target)
    if not chosen:
        return ()
    results = workspace.estimators.known.results([other.key for *_, other in chosen], target)
    shares = {share.brick: share for share in estimate.shares}
    branches = []
    for title, brick, other in chosen:
        share, result = shares[brick.key], results.get(other.key)
        taken, spared = (THEN, ELSE) if _takes_then(brick) else (ELSE, THEN)
        other_s = round_spread(result) if isinstance(result, Measurement) else None
        taken_s = share.latency_s / max(1, share.occurrences)
        branches.append(OtherBranch(title, taken, spared, taken_s, other_s))
    return tuple(branches)


def _others(workspace: Workspace, model: Model, target: Target) -> list[tuple[str, Brick, Brick]]:
    """Of each choice: the node's title, the brick with the branch taken, that with the other."""
    choices = workspace.plans.plan(model, target=target).choices
    if not choices:
        return []
    bricks = workspace.store.plans.load_bricks([key for key, _ in choices])
    pairs = ((title, bricks[key], with_other_branch(bricks[key])) for key, title in choices)
    return [(title, brick, other) for title, brick, other in pairs if other is not None]


def _takes_then(brick: Brick) -> bool:
    """Whether the only condition among the examples of a brick is true."""
    other = with_other_branch(brick)
    assert other is not None, "only such bricks are asked about"
    (name,) = (n for n, values in brick.examples.items() if other.examples[n] != values)
    return bool(brick.examples[name][0])
