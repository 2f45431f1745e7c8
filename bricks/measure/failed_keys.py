"""Records which keys do not run in the worker, and why.

Where memory is short or the worker crashes, anything that the worker has loaded may be the cause:
such a key is no failure, until it fails in a worker of its own. It must not know how keys are
loaded or run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bricks.measure.failure_explanation import is_out_of_memory
from bricks.measure.supervisor import MAX_ATTEMPTS, WorkerCrashed, WorkerKilled

if TYPE_CHECKING:
    from bricks.errors import WorkerError


class FailedKeys:
    """Keys that do not run, with the reasons: ``failures``, and ``suspects``.

    Suspects ran out of memory or crashed in a worker that is ``shared``: one that may hold memory
    of other keys. Whether they run by themselves is unknown.
    """

    def __init__(self, *, shared: bool) -> None:
        self.failures: dict[str, str] = {}
        self.suspects: dict[str, str] = {}
        self._shared = shared
        self._kills: Counter[str] = (
            Counter()
        )  # of the worker by others, while a key was loaded, bound or run

    def runs(self, key: str) -> bool:
        """Whether a key has no known reason not to run."""
        return key not in self.failures and key not in self.suspects

    @property
    def count(self) -> int:
        """The number of keys that do not run."""
        return len(self.failures) + len(self.suspects)

    def note(self, key: str, error: WorkerError) -> None:
        """Note why ``key`` does not run.

        A lack of memory or a crash is a failure only where nothing else was loaded. The first kills
        of the worker are ignored: the key that it was busy with need not be the cause.
        """
        if isinstance(error, WorkerKilled):
            self._kills[key] += 1
            if self._kills[key] < MAX_ATTEMPTS:
                return
        reason = str(error)
        by_others = is_out_of_memory(reason) or isinstance(error, WorkerCrashed)
        reasons = self.suspects if self._shared and by_others else self.failures
        reasons[key] = reason
