"""Records which keys do not run in the worker, and why: for lack of memory, or other reasons.

Where memory is short, all pieces that are loaded together may be the cause: such a key is no
failure yet. It must not know how keys are loaded or run.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bricks.measure.failure_explanation import is_out_of_memory
from bricks.measure.supervisor import MAX_ATTEMPTS, WorkerKilled

if TYPE_CHECKING:
    from bricks.errors import WorkerError


class FailedKeys:
    """Keys that do not run, with the reasons: ``failures``, and keys ``out_of_memory``.

    ``shared`` is whether the worker may hold memory of other keys.
    """

    def __init__(self, *, shared: bool) -> None:
        self.failures: dict[str, str] = {}
        self.out_of_memory: dict[str, str] = {}
        self._shared = shared
        self._kills: Counter[str] = (
            Counter()
        )  # of the worker by others, while a key was loaded, bound or run

    def runs(self, key: str) -> bool:
        """Whether a key has no known reason not to run."""
        return key not in self.failures and key not in self.out_of_memory

    @property
    def count(self) -> int:
        """The number of keys that do not run."""
        return len(self.failures) + len(self.out_of_memory)

    def note(self, key: str, error: WorkerError) -> None:
        """Note why ``key`` does not run.

        A lack of memory is a failure only where nothing else was loaded. The first kills of the
        worker are ignored: the key that it was busy with need not be the cause.
        """
        if isinstance(error, WorkerKilled):
            self._kills[key] += 1
            if self._kills[key] < MAX_ATTEMPTS:
                return
        reason = str(error)
        shared_memory = self._shared and is_out_of_memory(reason)
        reasons = self.out_of_memory if shared_memory else self.failures
        reasons[key] = reason
