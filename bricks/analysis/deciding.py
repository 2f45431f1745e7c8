"""What would decide whether an undecided candidate meets an SLO, and what measuring that costs.

Must not know commands, nor how advice is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.compose.slo import MeetsSlo
from bricks.predict.cost import fit
from bricks.samples.call_overhead import needed_by

if TYPE_CHECKING:
    from bricks.analysis.advice import AdvisedSetting, Candidate
    from bricks.decompose.plan import Plan
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Costs of unmeasured bricks are learned from at most so many measured ones.
_LEARNED_FROM = 300


def deciding_setting(candidate: Candidate, here: Target) -> AdvisedSetting | None:
    """The undecided setting that is worth measuring; None for a candidate that is decided.

    Of those that may do with the fewest hosts, one on the system of ``here``, else the fastest.
    """
    if not candidate.undecided:
        return None
    fewest = None if candidate.range is None else candidate.range.fewest
    open_ = [
        setting
        for setting in candidate.settings
        if setting.meets_slo is MeetsSlo.UNCERTAIN
        and (setting.hosts is None or setting.hosts.fewest == fewest)
    ]
    return min(open_, key=lambda of: _order(of, here), default=None)


def _order(of: AdvisedSetting, here: Target) -> tuple[bool, float]:
    return of.target.system.key != here.system.key, of.latency_s.value


def measured_again(setting: AdvisedSetting) -> bool:
    """Whether all of the setting's estimate is measured, so that only further rounds decide."""
    of = setting.provenance
    return not round(of.published_share + of.predicted_share, 6)


def measuring_s(workspace: Workspace, plan: Plan, target: Target) -> float | None:
    """About how many seconds measuring ``plan`` on ``target`` takes; None if it is not known.

    Bricks in the own cache count only where all are measured, and so would be measured again.
    """
    keys = [*needed_by(plan)]
    own = workspace.store.measurements.results(target.key, keys)
    missing = [key for key in keys if key not in own] or keys
    costs = workspace.known.measurements.costs(target.key)
    known_s = sum(costs[key] for key in missing if key in costs)
    rest = [key for key in missing if key not in costs]
    if not rest:
        return known_s
    predicted_s = _predicted_s(workspace, rest, costs)
    return None if predicted_s is None else known_s + predicted_s


def _predicted_s(workspace: Workspace, keys: list[str], costs: dict[str, float]) -> float | None:
    """The seconds that bricks take which were never measured on a target with these ``costs``."""
    learned = workspace.known.plans.load_bricks([*costs][-_LEARNED_FROM:])
    model = fit([(brick, costs[key]) for key, brick in learned.items()])
    if model is None:
        return None
    return model.cost_s(workspace.known.plans.load_bricks(keys).values()).value
