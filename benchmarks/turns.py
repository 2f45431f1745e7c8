"""Several things run in one process, one at a time, in turn: so that all meet the same drift."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Least seconds between two changes: what runs next finds the caches of another. With five, what
# takes half a minute in all would meet six moments of the machine only.
_SLICE_S = 1.0

Progress = Callable[[str, float], None]


class Turns:
    """Lets each thing run in a thread of its own, and only one at a time.

    Turns change where a thing reports its progress. The one that is least advanced goes next, so
    all end at about the same time. ``spent_s`` is how long each has run, in seconds of wall time.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._shares: dict[str, float] = {}
        self._now: str | None = None
        self._since = 0.0
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self.spent_s: dict[str, float] = {}

    def add(self, name: str, work: Callable[[Progress], None]) -> None:
        """Have ``work`` run under this name; it is given what to report its progress to."""
        self._shares[name] = 0.0
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
            work(lambda what, share: self._report(name, share))
        except BaseException as error:
            self._errors.append(error)
        finally:
            self.spent_s[name] += time.perf_counter() - self._since
            del self._shares[name]
            self._give()

    def _report(self, name: str, share: float) -> None:
        self._shares[name] = max(self._shares[name], share)
        held_s = time.perf_counter() - self._since
        if held_s < _SLICE_S or min(self._shares, key=self._shares.__getitem__) == name:
            return
        self.spent_s[name] += held_s
        self._give()
        self._await(name)

    def _give(self) -> None:
        """Give the turn to whoever is least advanced."""
        with self._changed:
            shares = self._shares
            self._now = min(shares, key=shares.__getitem__) if shares else None
            self._changed.notify_all()

    def _await(self, name: str) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._now == name)
        self._since = time.perf_counter()
