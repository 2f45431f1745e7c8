"""Loads walks in one worker together, and loads them again when the worker has ended.

All models are loaded at once, which is fast; where that fails, one after the other, which shows the
model that fails. Keys that do not run there are kept with their reasons. Where memory is short or
the worker crashes, anything that the worker has loaded may be the cause: such a key is no failure,
until it fails in a worker of its own. It must not know how steps are run.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from bricks.errors import WorkerError
from bricks.measure.graphs import is_out_of_memory
from bricks.measure.protocol.walking import BindPiece, LoadPiece, LoadPieces, MakeRegion, UnloadAll
from bricks.measure.supervisor import (
    MAX_ATTEMPTS,
    Supervisor,
    WorkerCrashed,
    WorkerDied,
    WorkerKilled,
)
from bricks.measure.walk import Load, Walk, WalkStep, without_feedback, without_region

if TYPE_CHECKING:
    from bricks.measure.protocol.request import Answer, Request


class WorkerLost(WorkerDied):
    """The worker that had loaded the walks has ended, and the request is not the cause."""


class LoadedWalks:
    """Walks in a worker: their models are loaded, and their steps are bound to memory.

    ``failed_keys`` records the keys that fail, and ``times`` how long loading and binding take.
    ``on_load`` receives the share that is loaded, between 0 and 1.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        walks: Mapping[str, Walk],
        timeout_s: float,
        on_load: Callable[[float], None],
    ) -> None:
        keys = {load.key for walk in walks.values() for load in walk.loads}
        # The worker may still hold memory of earlier models, unless it is fresh.
        self.failed_keys = FailedKeys(shared=len(keys) > 1 or not supervisor.fresh)
        self.times = PreparationTimes(walks)
        self.walks = walks
        self._supervisor = supervisor
        self._timeout_s = timeout_s
        self._on_load = on_load
        self._region_bytes = max((w.region_bytes for w in walks.values()), default=0)
        self._to_load = len({load.name for walk in walks.values() for load in walk.loads})
        self._at_once = self._to_load > 1  # whether all models may be loaded at once
        self._bound: dict[str, WalkStep] = {}
        self._starts = 0  # number of the worker that has loaded the walks

    def steps(self, name: str) -> list[WalkStep]:
        """The steps of a walk that have not failed."""
        return without_feedback(
            step for step in self.walks[name].steps if self.failed_keys.runs(step.key)
        )

    def set_up(self) -> None:
        """Load and bind all keys that have not failed, in a worker that survives it."""
        lost = 0
        while True:
            try:
                if self._set_up_everything():
                    return
            except WorkerLost:
                lost += 1
                if lost == MAX_ATTEMPTS:
                    raise

    def _set_up_everything(self) -> bool:
        """Whether the worker survived; if not, the key that ended it is recorded as failed."""
        self._make_room()
        if self._at_once and not self._load_at_once():
            return False
        for name, walk in self.walks.items():
            loads = () if self._at_once else walk.loads
            alive = all(self._load(load) for load in loads if self.failed_keys.runs(load.key))
            alive = alive and self.bind_all(name)
            self.times.end_lap(name)
            if not alive:
                return False
        return True

    def _make_room(self) -> None:
        """Unload everything, and make the shared region; if it is too large, use own buffers.

        A model whose activations exceed memory cannot run; most of its bricks still can.
        """
        self._bound.clear()
        with suppress(WorkerDied):  # the next has nothing loaded
            self._supervisor.ask(UnloadAll(), timeout_s=self._timeout_s)
        try:
            self._make_region()
        except WorkerError:
            if not self._region_bytes:
                raise
            self._region_bytes = 0
            self.walks = {name: without_region(walk) for name, walk in self.walks.items()}
            self._make_region()
        self._starts = self._supervisor.starts

    def _make_region(self) -> None:
        eviction_bytes = max((walk.eviction_bytes(()) for walk in self.walks.values()), default=0)
        used = {part for walk in self.walks.values() for part in walk.used_parts}
        self._supervisor.ask_afresh(
            MakeRegion(self._region_bytes, eviction_bytes, tuple(sorted(used))),
            timeout_s=self._timeout_s,
        )

    def _load_at_once(self) -> bool:
        """Load all models at once; whether that succeeded.

        If it failed, the key that is the cause is unknown: from then on, models are loaded one
        after the other.
        """
        loads = {
            load.name: (name, load)
            for name, walk in reversed([*self.walks.items()])
            for load in walk.loads
            if self.failed_keys.runs(load.key)
        }
        try:
            loads_s = self.ask(
                LoadPieces(tuple(_load_piece(load) for _, load in loads.values())),
                timeout_s=self._timeout_s,
                on_step=lambda number: self._on_load((number + 1) / len(loads)),
            )
        except WorkerError:
            self._at_once = False
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            return False
        self.times.end_lap_of_loads(loads.values(), loads_s)
        return True

    def _load(self, load: Load) -> bool:
        """Load a model; whether the worker survived."""
        started = time.perf_counter()
        alive = self._try(load.key, _load_piece(load))
        self.times.note_load(load, time.perf_counter() - started)
        self._on_load(self.times.loaded / self._to_load)
        return alive

    def bind_all(self, name: str) -> bool:
        """Bind the steps whose binding has changed; whether the worker survived."""
        # Where a step fails, steps that would have overwritten its result get other buffers.
        while missing := [step for step in self.steps(name) if self._bound.get(step.name) != step]:
            for step in missing:
                bind = BindPiece(step.name, step.load, step.inputs, step.outputs, step.repeated)
                if self.failed_keys.runs(step.key) and not self._try(step.key, bind):
                    return False
                self._bound[step.name] = step
        return True

    def _try(self, key: str, request: Request[None]) -> bool:
        """Send a request about ``key``, and record its failure; whether the worker survived."""
        try:
            self.ask(request, timeout_s=self._timeout_s)
        except WorkerLost:
            raise
        except WorkerDied as death:
            self.failed_keys.note(key, death)
            return False
        except WorkerError as error:
            self.failed_keys.note(key, error)
        return True

    def ask(
        self,
        request: Request[Answer],
        *,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
    ) -> Answer:
        """As :meth:`Supervisor.ask`; :class:`WorkerLost` if that worker has ended."""
        refused = None
        try:
            answer = self._supervisor.ask(request, timeout_s=timeout_s, on_step=on_step)
        except WorkerError as error:
            refused = error
        if self._supervisor.starts != self._starts:
            raise WorkerLost("the worker ended while it was idle") from refused
        if refused is not None:
            raise refused
        return answer


def _load_piece(load: Load) -> LoadPiece:
    return LoadPiece(
        load.name, load.key, load.model, load.optimize, streams=load.streams, folder=load.folder
    )


class FailedKeys:
    """Keys that do not run, with the reasons: ``failures``, and ``suspects``.

    Suspects ran out of memory or crashed in a worker that is ``shared``: one that may hold memory
    of other keys. Whether they run by themselves is unknown.
    """

    def __init__(self, *, shared: bool) -> None:
        self.failures: dict[str, str] = {}
        self.suspects: dict[str, str] = {}
        self._shared = shared
        # Of the worker by others, while a key was loaded, bound or run.
        self._kills: Counter[str] = Counter()

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


class PreparationTimes:
    """Seconds of preparing walks: ``walk_s`` by their names, ``load_s`` of loading by key."""

    def __init__(self, names: Iterable[str]) -> None:
        self.walk_s = dict.fromkeys(names, 0.0)
        self.load_s: dict[str, float] = {}
        self._loaded: set[str] = set()
        self._lap = 0.0

    @property
    def loaded(self) -> int:
        """The number of timed loads."""
        return len(self._loaded)

    def begin(self) -> None:
        """Begin a lap."""
        self._lap = time.perf_counter()

    def end_lap(self, name: str) -> None:
        """Charge a walk with the lap, and begin the next one."""
        now = time.perf_counter()
        self.walk_s[name] += now - self._lap
        self._lap = now

    def end_lap_of_loads(self, loads: Iterable[tuple[str, Load]], loads_s: Sequence[float]) -> None:
        """Charge walks, by name, with a lap in which ``loads`` ran in parallel."""
        now = time.perf_counter()
        factor = (now - self._lap) / max(sum(loads_s), 1e-9)
        self._lap = now
        for (name, load), seconds in zip(loads, loads_s, strict=True):
            self.walk_s[name] += factor * seconds
            self.note_load(load, factor * seconds)

    def by_key(self, keys: Mapping[str, Collection[str]]) -> dict[str, float]:
        """Seconds of preparing each of the ``keys``, which are those of each walk by its name.

        A key is charged with its own loading. Binding is divided equally among the keys of a walk.
        """
        seconds: dict[str, float] = {}
        for name, of_walk in keys.items():
            load_s = {key: self.load_s.get(key, 0.0) for key in of_walk}
            common_s = max(0.0, self.walk_s[name] - sum(load_s.values()))
            seconds |= {key: own_s + common_s / len(load_s) for key, own_s in load_s.items()}
        return seconds

    def note_load(self, load: Load, seconds: float) -> None:
        """Record the seconds of the first loading."""
        if load.name not in self._loaded:
            self._loaded.add(load.name)
            self.load_s[load.key] = self.load_s.get(load.key, 0.0) + seconds
