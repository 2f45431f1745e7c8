"""Which bricks would an effort measure? Asks the package, and answers it from a full cache.

Used by prediction.py. Nothing is timed: what is chosen is copied from the full cache.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from bricks import Bench, Measurement, Store
from bricks.measure.campaign_result import CampaignResult
from bricks.measure.jobs import ModelJob
from bricks.measure.progress import Progress
from bricks.predict.effort import EFFORTS
from bricks.session.adaptive import AdaptiveMeasurement
from bricks.session.latencies import Latencies
from bricks.store import Owner
from bricks.system import Target
from bricks.zoo import entries


def chosen_by(bench: Bench, effort: str, results: Mapping[str, Measurement]) -> frozenset[str]:
    """The bricks of the zoo that an effort would measure, if ``results`` were what it found."""
    models = [bench.read(entry.name) for entry in entries()]
    jobs = [ModelJob(model, bench.decompose(model), whole=False) for model in models]
    target, owner = bench.target, Owner.current()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        store.systems.save_target(target)
        for job in jobs:
            store.plans.save(job.decomposition, target.key)
        latencies = Latencies(store, target.key, "executed")

        def run(
            jobs: Sequence[ModelJob], _left_s: float | None, _progress: Progress
        ) -> CampaignResult:
            wanted = {key for job in jobs for key in job.bricks} & results.keys()
            new = sorted(wanted - store.measurements.results(target.key, sorted(wanted)).keys())
            _copy({key: results[key] for key in new}, store, target, owner)
            return CampaignResult({}, (), frozenset())

        AdaptiveMeasurement(jobs, latencies, EFFORTS[effort], None, lambda *_: None).run(run)
        keys = {key for job in jobs for key in job.bricks}
        return frozenset(store.measurements.results(target.key, sorted(keys)))


def _copy(results: Mapping[str, Measurement], store: Store, target: Target, owner: Owner) -> None:
    keys = sorted(results)
    store.claims.claim(target.key, keys, owner)
    for number in range(max((len(m.rounds) for m in results.values()), default=0)):
        rounds = {k: (m.rounds[number], 0.0) for k, m in results.items() if number < len(m.rounds)}
        store.claims.append_rounds(target.key, rounds, owner)
    store.claims.finish(target.key, keys, owner)
