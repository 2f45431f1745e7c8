"""The work of a fleet: the queue of each target, and the cache that results are merged into.

Must not know hosts, nor how they are reached.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.decompose.identity import mismatch
from bricks.errors import StoreError
from bricks.fleet.queue import WorkQueue, work_queue

if TYPE_CHECKING:
    from bricks.fleet.host import BatchResult, Ready
    from bricks.fleet.report import TargetReport
    from bricks.graph.model import Model
    from bricks.session.options import Options
    from bricks.store import Store
    from bricks.system import Target


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
