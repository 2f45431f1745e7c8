"""Measures the probe set in each state of a machine that has several.

Must not know how states are distinguished.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bricks.measure.probe_set import RULE, probe_set, probe_set_keys, probe_set_walk
from bricks.measure.sampling_task import PROBE_SET, SamplingTask
from bricks.samples.measurement import Failure, Measurement

if TYPE_CHECKING:
    from bricks.measure.batch_campaign import CampaignParts

# Seconds of a budget that must be left for the probe set, which takes about one.
_LEFT_S = 10.0


def measure_probe_set(parts: CampaignParts, share: float) -> None:
    """Measure the probe set in the machine's present state, unless it is known there.

    ``share`` is the progress of the campaign, between 0 and 1.
    """
    if parts.deadline.left_s < _LEFT_S:
        return
    states = parts.tasks.states
    state_s = states.state_without_probes()
    if state_s is None:
        return
    results = parts.results(probe_set_keys())
    known = [result for result in results.values() if isinstance(result, Measurement)]
    if len(results) == len(probe_set_keys()) and all(m.known_in(state_s) for m in known):
        return
    parts.store.plans.save_bricks(probe_set())
    _sample(parts, results, share)
    states.forget_model()


def _sample(
    parts: CampaignParts, results: Mapping[str, Measurement | Failure], share: float
) -> None:
    """Sample known bricks of the probe set once more, and the others that can be claimed."""
    failed = {key for key, result in results.items() if isinstance(result, Failure)}
    missing = set(probe_set_keys()) - results.keys()
    tasks = parts.tasks
    claims = tasks.loop.claim(missing)
    others = missing - {claim.key for claim in claims}
    with tasks.loop.holding(claims):
        walks = {PROBE_SET: probe_set_walk(avoid=failed | others)}
        tasks.sample(
            SamplingTask(PROBE_SET, walks, claims, RULE, parts.deadline, span=(share, share))
        )
    # No model needs the probe set: it is no failure if this runtime cannot run some of it.
    tally = tasks.tally
    tally.failures = [failure for failure in tally.failures if failure.key not in probe_set_keys()]
