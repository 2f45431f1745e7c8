"""Several things run in one process, one at a time, in turn: so that all meet the same drift."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Least seconds between two changes: what runs next finds the caches of another. With more, what
# takes half a minute in all would meet a few moments of the machine only.
_SLICE_S = 2.0

Progress = Callable[[str, float], None]


class Turns:
    """Lets each thing run in a thread of its own, and only one at a time.

    Turns change where a thing reports its progress. The one that has had least of the time that it
    is expected to take goes next, so all end at about the same time. (What they report themselves
    would not do: a thing may find that it has more to do when it seems to be at its end.)
    ``spent_s`` is how long each has run, in seconds of wall time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._expected_s: dict[str, float] = {}  # of those that have not ended
        self._now: str | None = None
        self._since = 0.0
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self.spent_s: dict[str, float] = {}

    def add(self, name: str, work: Callable[[Progress], None], expected_s: float) -> None:
        """Have ``work`` run under this name; it is given what to report its progress to.

        Of ``expected_s`` only the proportions matter.
        """
        self._expected_s[name] = expected_s
        self.spent_s[name] = 0.0
        self._threads.append(threading.Thread(target=self._work, args=(name, work)))

    def run(self) -> None:
        """Run all to their ends; raises the first error that one of them met."""
        self._give()
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def clock(self, name: str) -> float:
        """Seconds that this one has run so far, turns of others left out; asked in its own turn."""
        return self.spent_s[name] + time.perf_counter() - self._since

    def _work(self, name: str, work: Callable[[Progress], None]) -> None:
        self._await(name)
        try:
            work(lambda what, share: self._report(name))
        except BaseException as error:
            self._errors.append(error)
        finally:
            self.spent_s[name] += time.perf_counter() - self._since
            del self._expected_s[name]
            self._give()

    def _report(self, name: str) -> None:
        now = time.perf_counter()
        if now - self._since < _SLICE_S:
            return
        self.spent_s[name] += now - self._since
        self._since = now
        if self._next() != name:
            self._give()
            self._await(name)

    def _next(self) -> str | None:
        """Whoever is least advanced; None when all have ended."""
        return min(self._expected_s, key=self._advanced, default=None)

    def _advanced(self, name: str) -> float:
        return self.spent_s[name] / self._expected_s[name]

    def _give(self) -> None:
        with self._changed:
            self._now = self._next()
            self._changed.notify_all()

    def _await(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._now == name)
        self._since = time.perf_counter()
