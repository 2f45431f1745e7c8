"""Runs several jobs in one process, alternating, so that all meet the same drift."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# Minimum seconds between two changes, since the next job finds the processor's caches full of other
# data. With more, a job of half a minute would meet only a few moments of the machine.
_SLICE_S = 2.0

Progress = Callable[[str, float], None]


class Turns:
    """Runs each job in a thread of its own, one at a time.

    Jobs alternate where they report their progress. The job that has had the smallest share of its
    expected time goes next, so all end at about the same time. (The reported progress would not do:
    a job may find more to do when it seems to be at its end.) ``spent_s`` is the wall time that
    each job has run.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._expected_s: dict[str, float] = {}  # of jobs that have not ended
        self._now: str | None = None
        self._since = 0.0
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self.spent_s: dict[str, float] = {}

    def add(self, name: str, work: Callable[[Progress], None], expected_s: float) -> None:
        """Add a job; ``work`` is called with a function that takes its progress reports.

        Only the proportions between the jobs' ``expected_s`` matter.
        """
        self._expected_s[name] = expected_s
        self.spent_s[name] = 0.0
        self._threads.append(threading.Thread(target=self._work, args=(name, work)))

    def run(self) -> None:
        """Run all jobs to their ends; raises the first error of any of them."""
        self._give()
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def clock(self, name: str) -> float:
        """Seconds that this job has run so far, without the others; call it from the job."""
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
        """The least advanced job; None when all have ended."""
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
