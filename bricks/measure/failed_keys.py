"""Which keys do not run in the worker, and why; for lack of memory, and for other reasons.

Where there is too little memory, everything that is loaded together may be the cause: such a key is
no failure yet. It must not know how keys are loaded or run.
"""

from __future__ import annotations

from collections import Counter

from bricks.errors import WorkerError
from bricks.measure.failure_explanation import is_out_of_memory
from bricks.measure.supervisor import MAX_ATTEMPTS, WorkerKilled


class FailedKeys:
    """Keys that do not run, with the reasons: ``failures``, and those ``out_of_memory``.

    ``shared`` says that memory of other keys may be held in the worker.
    """

    def __init__(self, *, shared: bool) -> None:
        self.failures: dict[str, str] = {}
        self.out_of_memory: dict[str, str] = {}
        self._shared = shared
        self._kills: Counter[str] = Counter()  # by others, while a key was loaded, bound or run

    def runs(self, key: str) -> bool:
        """Whether nothing is known that keeps a key from running."""
        return key not in self.failures and key not in self.out_of_memory

    @property
    def count(self) -> int:
        """How many keys do not run."""
        return len(self.failures) + len(self.out_of_memory)

    def note(self, key: str, error: WorkerError) -> None:
        """Note why ``key`` does not run.

        A lack of memory is a failure only where nothing else was loaded. The first kills by others
        are ignored: they need not have to do with the key that the worker was busy with.
        """
        if isinstance(error, WorkerKilled):
            self._kills[key] += 1
            if self._kills[key] < MAX_ATTEMPTS:
                return
        reason = str(error)
        found = self.out_of_memory if self._shared and is_out_of_memory(reason) else self.failures
        found[key] = reason
