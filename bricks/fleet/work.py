"""The work of a fleet: the queue of each target, and the cache that results are merged into.

All hosts that are the same target take batches from one queue, so each brick is measured once for
it. A batch that a host did not finish goes back to the front; one that has failed three times is
given up, because the fault is likely its own. Must not know hosts, nor how they are reached.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.decompose.granularity import Granularity
from bricks.decompose.identity import mismatch
from bricks.decompose.plan import Decomposition
from bricks.errors import StoreError
from bricks.fleet.report import TargetReport
from bricks.measure.jobs import ModelJob, batches, needs_of, spread_out
from bricks.samples.measurement import Failure
from bricks.session.options import Options, effort_of

if TYPE_CHECKING:
    from bricks.fleet.host import BatchResult, Ready
    from bricks.graph.model import Model
    from bricks.store import Store
    from bricks.system import Target

# Keys of bricks; None: all bricks of the models, of which the host chooses as its options say.
KeyBatch = tuple[str, ...] | None

# Bricks of a batch: enough that loading and sampling them takes seconds, and few enough that hosts
# of one target finish at about the same time. Bricks of one model stay in one batch.
_MIN_BRICKS, _MAX_BRICKS, _BATCHES = 10, 100, 8

_MAX_TRIES = 3


@dataclass
class WorkQueue:
    """The waiting batches of one target, and counts of finished and failed batches.

    ``keys`` are all bricks that the models need there; ``errors`` are lines by the names of models
    that cannot be decomposed there; ``divided`` says whether the work is cut into batches;
    ``outstanding`` counts the batches that hosts have now; ``given_up`` are lines about batches
    that failed too often.
    """

    target: Target
    keys: frozenset[str]
    errors: Mapping[str, str]
    batches: deque[KeyBatch]
    divided: bool
    outstanding: int = 0
    new_bricks: int = 0
    given_up: list[str] = field(default_factory=list)
    tries: Counter[KeyBatch] = field(default_factory=Counter)

    @property
    def done(self) -> bool:
        """Whether no batch is waiting or being measured."""
        return not self.batches and not self.outstanding

    @property
    def waiting_bricks(self) -> int:
        """The number of bricks in waiting batches; undivided work counts as none."""
        return sum(len(batch or ()) for batch in self.batches)

    def take(self) -> KeyBatch:
        """The next batch, for a host to measure; IndexError if there is none."""
        batch = self.batches.popleft()
        self.outstanding += 1
        return batch

    def finish(self, new_bricks: int) -> None:
        """Count a batch as measured; of its bricks ``new_bricks`` were not measured before."""
        self.outstanding -= 1
        self.new_bricks += new_bricks

    def put_back(self, batch: KeyBatch, why: str, *, blame: bool = True) -> None:
        """Let another host measure a batch, or give it up after its last try, saying ``why``.

        Without ``blame`` the batch cannot have been at fault, and the try does not count.
        """
        self.outstanding -= 1
        self.tries[batch] += blame
        if self.tries[batch] < _MAX_TRIES:
            self.batches.appendleft(batch)
            return
        count = len(self.keys) if batch is None else len(batch)
        self.given_up.append(
            f"{count} bricks on {self.target.system.name} were given up after {_MAX_TRIES} tries:"
            f" {why}"
        )

    def report(self, store: Store) -> TargetReport:
        """The progress of this queue, from its bricks' results in ``store``."""
        settled = store.measurements.results(self.target.key, sorted(self.keys))
        missing = len(self.keys) - len(settled)
        predicted = missing if self.done and not self.divided and not self.given_up else 0
        return TargetReport(
            target=self.target,
            bricks=len(self.keys),
            new_bricks=self.new_bricks,
            predicted_bricks=predicted,
            unfinished=missing - predicted,
            failures=tuple(r for r in settled.values() if isinstance(r, Failure)),
            errors=self.errors,
            given_up=tuple(self.given_up),
        )


def work_queue(
    store: Store,
    models: Sequence[Model],
    options: Options,
    target: Target,
    errors: Mapping[str, str],
) -> WorkQueue:
    """The queue of bricks of ``models`` that are unmeasured on a target; ``store`` has their plans.

    Models named in ``errors`` are left out. An effort or a budget is for one host to spend, so the
    work is then one batch, None; else it is divided. Raises StoreError where the cache is damaged.
    """
    granularity = str(Granularity.parse(options.granularity))
    jobs: list[ModelJob] = []
    for model in [m for m in models if m.name not in errors]:
        known = store.plans.load(model.digest, granularity, target.key, name=model.name)
        if known is not None:
            plan, wall_s = known
            bricks = store.plans.load_bricks(plan.keys)
            jobs.append(ModelJob(model, Decomposition(plan, bricks, wall_s), whole=False))
    keys = sorted({key for job in jobs for key in job.keys})
    settled = store.measurements.results(target.key, keys)
    missing = {
        key
        for key in keys
        if key not in settled or (options.retry and isinstance(settled[key], Failure))
    }
    divided = effort_of(options).complete and options.conditions.budget_s is None
    waiting: list[KeyBatch] = []
    if missing and not divided:
        waiting = [None]
    elif missing:
        most = min(_MAX_BRICKS, max(_MIN_BRICKS, math.ceil(len(missing) / _BATCHES)))
        parts = batches(spread_out(jobs, missing, needs_of(jobs)), missing, most)
        waiting = [tuple(sorted(missing.intersection(part.keys))) for part in parts]
    return WorkQueue(target, frozenset(keys), errors, deque(waiting), divided)


class FleetWork:
    """The bricks of ``models`` to measure on every target that joins, into ``store``."""

    def __init__(self, store: Store, models: Sequence[Model], options: Options) -> None:
        self._store = store
        self._models = models
        self._options = options
        self._queues: dict[str, WorkQueue] = {}  # by the target's key

    @property
    def begun(self) -> bool:
        """Whether any target has joined."""
        return bool(self._queues)

    @property
    def done(self) -> bool:
        """Whether a target has joined, and nothing is left to measure on any."""
        return self.begun and all(queue.done for queue in self._queues.values())

    @property
    def waiting_bricks(self) -> int:
        """The number of bricks in batches that no host has yet."""
        return sum(queue.waiting_bricks for queue in self._queues.values())

    @property
    def new_bricks(self) -> int:
        """The number of bricks that hosts have measured."""
        return sum(queue.new_bricks for queue in self._queues.values())

    def of(self, target: Target) -> WorkQueue:
        """The queue of a target that has joined."""
        return self._queues[target.key]

    def join(self, ready: Ready) -> None:
        """Merge a host's plans and bricks; the first host of a target fills the target's queue.

        Raises StoreError where the plans or bricks cannot be true.
        """
        self._merge(ready.results)
        if ready.target.key not in self._queues:
            self._queues[ready.target.key] = work_queue(
                self._store, self._models, self._options, ready.target, ready.errors
            )

    def finish(self, target: Target, result: BatchResult) -> None:
        """Merge the results of a batch; StoreError where they cannot be true."""
        self._merge(result.results)
        self.of(target).finish(result.new_bricks)

    def reports(self) -> tuple[TargetReport, ...]:
        """The progress on each target."""
        return tuple(queue.report(self._store) for queue in self._queues.values())

    def _merge(self, results: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="bricks-") as folder:
            path = Path(folder) / "results.jsonl"
            path.write_bytes(results)
            try:
                self._store.contents.merge(path, mismatch)
            except StoreError as exc:
                raise StoreError(str(exc).replace(str(path), "what it sent")) from exc
