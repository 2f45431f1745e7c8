"""Measures the panel of bricks that shows how machine states differ, where there are several.

Must not know how states are told apart.
"""

from __future__ import annotations

from collections.abc import Mapping

from bricks.measure.batch_campaign import CampaignParts
from bricks.measure.state_panel import RULE, panel, panel_keys, panel_walk
from bricks.measure.task import PANEL, Task
from bricks.samples.measurement import Failure, Measurement

# The panel is measured if there are so many seconds left of a budget: it takes about one.
_PANEL_S = 10.0


def measure_panel(parts: CampaignParts, share: float) -> None:
    """Measure the panel in the state that the machine is in now, unless it was before.

    ``share`` is what is done of the campaign.
    """
    if parts.deadline.left_s < _PANEL_S:
        return
    states = parts.tasks.states
    state_s = states.wanting_panel()
    if state_s is None:
        return
    results = parts.results(panel_keys())
    known = [result for result in results.values() if isinstance(result, Measurement)]
    if len(results) == len(panel_keys()) and all(m.known_in(state_s) for m in known):
        return
    parts.store.plans.save_bricks(panel())
    _sample(parts, results, share)
    states.forget_model()


def _sample(
    parts: CampaignParts, results: Mapping[str, Measurement | Failure], share: float
) -> None:
    """Sample what is measured of the panel once more, and the rest as far as nobody else does."""
    failed = {key for key, result in results.items() if isinstance(result, Failure)}
    missing = set(panel_keys()) - results.keys()
    tasks = parts.tasks
    claims = tasks.loop.claim(missing)
    others = missing - {claim.key for claim in claims}
    with tasks.loop.holding(claims):
        walks = {PANEL: panel_walk(avoid=failed | others)}
        tasks.sample(Task(PANEL, walks, claims, RULE, parts.deadline, span=(share, share)))
    # No model needs the panel: it is no failure if this runtime cannot run some of it.
    failures = [each for each in tasks.tally.failures if each.key not in panel_keys()]
    tasks.tally.failures[:] = failures
