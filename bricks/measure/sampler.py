"""Runs walks in the worker, and continues without bricks that fail or end the worker.

Steps first run one by one, each announced, to find a brick that fails, crashes the worker, hangs or
exhausts memory. The brick becomes a failure with its reason, and the walk continues without it. The
samples of one walk go by key, with the conditions during the walk. It must not know where samples
are stored, nor how many are enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from bricks.errors import WorkerError
from bricks.measure.conditions import TIMEOUT_S
from bricks.measure.loaded_walks import LoadedWalks
from bricks.measure.protocol.walking import UNKNOWN_CONDITIONS, RunWalk, WalkConditions
from bricks.measure.supervisor import MAX_ATTEMPTS, Supervisor, WorkerDied
from bricks.measure.walk import Walk, WalkStep, steps_for, without_feedback
from bricks.samples.measurement import Round
from bricks.units.sample import Sample, weighted_mean

# A worker that serves and sends nothing for this long hangs.
_SERVED_S = 300.0


class Sampler:
    """Walks that are loaded in the worker together; ``failed_keys`` has the keys that do not run.

    ``eviction_short`` is whether there was memory for only a part of the eviction read.
    ``separate`` are the keys that could not run in one call with their neighbours. ``on_load``
    receives the share that is loaded, between 0 and 1; ``on_step`` is called before each announced
    step.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        walks: Mapping[str, Walk],
        *,
        timeout_s: float = TIMEOUT_S,
        on_load: Callable[[float], None] = lambda share: None,
        on_step: Callable[[], None] = lambda: None,
    ) -> None:
        self._loaded = LoadedWalks(supervisor, walks, timeout_s, on_load)
        self.failed_keys = self._loaded.failed_keys
        self._timeout_s = timeout_s
        self._on_step = on_step
        self._pass_s: dict[str, float] = {}
        self.eviction_short = False
        self.separate: set[str] = set()

    def prepare(self) -> None:
        """Load and bind all walks; the time that this takes is recorded."""
        self._loaded.times.begin()
        self._loaded.set_up()

    @property
    def preparation_s(self) -> dict[str, float]:
        """Seconds that preparing each timed key took; see :meth:`PreparationTimes.by_key`."""
        timed = {name: {s.key for s in self.steps(name) if s.timed} for name in self.names}
        return self._loaded.times.by_key(timed)

    @property
    def names(self) -> list[str]:
        """Names of the walks."""
        return list(self._loaded.walks)

    def steps(self, name: str) -> list[WalkStep]:
        """The steps of a walk whose keys have not failed."""
        return self._loaded.steps(name)

    def walk(self, name: str, passes: int, keys: Collection[str] | None = None) -> WalkSamples:
        """Warm up, and run ``passes`` timed passes; only over steps for ``keys``, unless None.

        The first walk runs its steps once before, announced, which warms up as well.

        Raises :class:`WorkerError` if the worker fails several times although each step runs
        separately.
        """
        broken = 0
        if name not in self._pass_s:
            self._rehearse(name, passes=0)
        while True:
            steps = self.steps(name)
            if keys is not None:
                steps = without_feedback(steps_for(steps, keys))
            if not any(step.timed for step in steps):
                return WalkSamples({})
            try:
                started = time.perf_counter()
                request = self._request(name, steps, passes)
                walked = self._loaded.ask(request, timeout_s=self._limit_s(name, passes))
                if keys is None:
                    self._pass_s[name] = (time.perf_counter() - started) / (passes + 1)
                self.eviction_short |= walked.eviction_short
                self.separate.update(steps[number].key for number in walked.separate)
                samples = by_key(steps, walked.samples)
                if self._loaded.walks[name].displaced_bytes is not None:
                    # Without kernels there is no state of a device that could make a difference.
                    samples = {
                        key: own for key, own in samples.items() if any(s.kernels for s in own)
                    }
                return WalkSamples(samples, walked.conditions)
            except WorkerError as error:
                before = self.failed_keys.count
                if isinstance(error, WorkerDied):
                    self._loaded.set_up()
                self._rehearse(name, passes)  # as many passes: it may not be the first that fails
                broken = broken + 1 if self.failed_keys.count == before else 0
                if broken == MAX_ATTEMPTS:
                    text = f"the worker broke off {broken} times, and no brick is to blame: {error}"
                    raise WorkerError(text) from error

    def served(
        self, name: str, path: str, ready: Callable[[int], None]
    ) -> tuple[WalkSamples, Sequence[float]]:
        """Passes that a client of the socket ``path`` requests, and idle seconds before each.

        ``ready`` is called until the client has connected. Raises :class:`WorkerError` if serving
        fails; the walk has run before, so its steps are known to run.
        """
        steps = self.steps(name)
        request = self._request(name, steps, 0, served_at=path)
        walked = self._loaded.ask(request, timeout_s=_SERVED_S, on_step=ready)
        return WalkSamples(by_key(steps, walked.samples)), walked.idle_s

    def _limit_s(self, name: str, passes: int) -> float:
        """Seconds that a walk may take: 30 times the expected, or the time limits of its steps."""
        runs = len(self.steps(name)) * (passes + 1)
        return min(max(60.0, 30 * self._pass_s[name] * (passes + 1)), runs * self._timeout_s)

    def _rehearse(self, name: str, passes: int) -> None:
        """Run the steps once and ``passes`` times more, announced, until no step fails."""
        broken = 0
        while (refused := self._rehearsed(name, passes)) is not None:
            error, culprit = refused
            if culprit is not None:
                self.failed_keys.note(culprit, error)
            else:
                broken += 1
                if broken == MAX_ATTEMPTS:
                    raise error
            if isinstance(error, WorkerDied):
                self._loaded.set_up()

    def _rehearsed(self, name: str, passes: int) -> tuple[WorkerError, str | None] | None:
        """Rehearse once; the error that ended it, and the key of the announced step, if any."""
        steps, at = list[WalkStep](), -1

        def on_step(number: int) -> None:
            nonlocal at
            at = number
            self._on_step()

        try:
            if not self._loaded.bind_all(name):
                self._loaded.set_up()
            steps = self.steps(name)
            started = time.perf_counter()
            request = self._request(name, steps, passes, announce=True)
            self._loaded.ask(request, timeout_s=self._timeout_s, on_step=on_step)
        except WorkerError as error:
            return error, steps[at].key if at >= 0 else None
        self._pass_s[name] = (time.perf_counter() - started) / (passes + 1)
        return None

    def _request(
        self,
        name: str,
        steps: Sequence[WalkStep],
        passes: int,
        *,
        announce: bool = False,
        served_at: str | None = None,
    ) -> RunWalk:
        walk = self._loaded.walks[name]
        return RunWalk(
            tuple((step.name, step.timed) for step in steps),
            passes,
            announce,
            eviction_bytes=walk.eviction_bytes(steps),
            used=walk.used_parts,
            memory=tuple(map(tuple, walk.allocation_events(steps))),
            served_at=served_at,
            displaced_bytes=walk.displaced_bytes,
            kernels=walk.kernels,
        )


@dataclass(frozen=True, slots=True)
class WalkSamples:
    """Samples of the timed steps of a walk by key, one for each pass, and their conditions."""

    samples: Mapping[str, tuple[Sample, ...]]
    conditions: WalkConditions = UNKNOWN_CONDITIONS

    def rounds(self) -> dict[str, Round]:
        """The samples as a round of each key."""
        of = self.conditions
        known = of.host, of.waited_share, of.device_state
        return {key: Round.of(samples, *known) for key, samples in self.samples.items()}


def by_key(
    steps: Sequence[WalkStep], columns: Sequence[Sequence[Sample]]
) -> dict[str, tuple[Sample, ...]]:
    """Samples by key: for each pass, the mean over the occurrences that the steps stand for.

    ``columns`` has the samples of each step, one for each pass.
    """
    weights: dict[str, list[float]] = {}
    timed: dict[str, list[Sequence[Sample]]] = {}
    for step, column in zip(steps, columns, strict=True):
        if step.timed:
            weights.setdefault(step.key, []).append(step.weight)
            timed.setdefault(step.key, []).append(column)
    return {
        key: tuple(weighted_mean(of_pass, weights[key]) for of_pass in zip(*of_key, strict=True))
        for key, of_key in timed.items()
    }
