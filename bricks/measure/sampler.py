"""Runs walks in the worker, and goes on without the bricks that break it.

Steps are first run one by one, each announced, to find a brick that fails, crashes the worker,
hangs or exhausts memory. It becomes a failure with its reason, and the walk goes on without it.
Where there is too little memory, everything that is loaded together may be the cause: such a brick
is no failure yet. It must not know where samples are kept, nor how many are enough.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from bricks.errors import WorkerError
from bricks.measure.defaults import TIMEOUT_S
from bricks.measure.failure_explanation import is_out_of_memory
from bricks.measure.protocol.loading import BindPiece, LoadPiece, LoadPieces, MakeRegion, UnloadAll
from bricks.measure.protocol.request import Answer, Request
from bricks.measure.protocol.walking import RunWalk, Walked
from bricks.measure.supervisor import MAX_ATTEMPTS, Supervisor, WorkerDied, WorkerKilled
from bricks.measure.walk import Load, Step, Walk, grounded, narrowed, without_region
from bricks.measure.walk_samples import WalkSamples, by_key

# A worker that serves and says nothing for so long hangs.
_SERVED_S = 300.0


class WorkerLost(WorkerDied):
    """The worker in which everything was loaded is gone, and the request is not the cause."""


class Sampler:
    """Walks that are loaded in the worker together, and the failures so far.

    ``failures`` maps keys to reasons, and so does ``out_of_memory``, of keys for which there was
    too little memory while others were loaded. ``load_s`` maps keys to the seconds that loading
    them took, and ``prepare_s`` walks to those of loading, placing and rehearsing. Whether there
    was memory for only a part of the eviction read, says ``eviction_short``. ``apart`` are the keys
    that could not run in one call with their neighbours. ``on_load`` receives the share that is
    loaded, between 0 and 1; ``on_step`` is called before each announced step.
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
        self._supervisor = supervisor
        self._timeout_s = timeout_s
        self._walks = walks
        self._on_load = on_load
        self._on_step = on_step
        self._region_bytes = max((w.region_bytes for w in walks.values()), default=0)
        self._keys = {load.key for walk in walks.values() for load in walk.loads}
        self._to_load = len({load.name for walk in walks.values() for load in walk.loads})
        self._inherited = not supervisor.fresh  # whether memory of earlier loads may still be held
        self._loaded: set[str] = set()
        self._at_once = self._to_load > 1  # whether everything may be loaded at once
        self._placed: dict[str, Step] = {}
        self._starts = 0  # the worker in which everything is loaded, by its number
        self._pass_s: dict[str, float] = {}
        self.prepare_s = dict.fromkeys(walks, 0.0)
        self._lap = 0.0
        self._kills: dict[str, int] = {}  # by others, while a key was loaded, placed or run
        self.failures: dict[str, str] = {}
        self.out_of_memory: dict[str, str] = {}
        self.load_s: dict[str, float] = {}
        self.eviction_short = False
        self.apart: set[str] = set()

    def prepare(self) -> None:
        """Load and place everything."""
        self._lap = time.perf_counter()
        self._setup()

    @property
    def names(self) -> list[str]:
        """Names of the walks."""
        return list(self._walks)

    def steps(self, name: str) -> list[Step]:
        """The steps of a walk that have not failed."""
        return grounded(s for s in self._walks[name].steps if self._runs(s.key))

    def walk(self, name: str, passes: int, keys: Collection[str] | None = None) -> WalkSamples:
        """Passes to warm up and ``passes`` timed ones; of ``keys`` alone, if they are given.

        The first time, the steps are run once before, announced, which warms up as well.

        Raises :class:`WorkerError` if the worker breaks off several times, and no step does when
        it is run by itself.
        """
        broken = 0
        if name not in self._pass_s:
            self._rehearse(name, passes=0)
        while True:
            steps = self.steps(name)
            if keys is not None:
                steps = grounded(narrowed(steps, keys))
            if not any(step.timed for step in steps):
                return WalkSamples({})
            started = time.perf_counter()
            try:
                limit_s = self._limit_s(name, passes)
                walked = self._run(name, steps, passes, timeout_s=limit_s)
            except WorkerError as error:
                before = self._failed_count()
                if isinstance(error, WorkerDied):
                    self._setup()
                self._rehearse(name, passes)  # as many passes: it may not be the first that fails
                broken = broken + 1 if self._failed_count() == before else 0
                if broken == MAX_ATTEMPTS:
                    text = f"the worker broke off {broken} times, and no brick is to blame: {error}"
                    raise WorkerError(text) from error
                continue
            if keys is None:
                self._pass_s[name] = (time.perf_counter() - started) / (passes + 1)
            self.eviction_short |= walked.eviction_short
            self.apart.update(steps[number].key for number in walked.apart)
            return WalkSamples(
                by_key(steps, walked.samples),
                walked.reference_s,
                walked.waited_share,
                walked.reference_end_s,
            )

    def served(
        self, name: str, path: str, ready: Callable[[int], None]
    ) -> tuple[WalkSamples, Sequence[float]]:
        """Passes of a walk that are asked for at the socket ``path``, and idle seconds before each.

        ``ready`` is called while whoever asks is awaited. Raises :class:`WorkerError` where that
        fails; the walk has been run before, so its steps are known to run.
        """
        steps = self.steps(name)
        walked = self._run(
            name, steps, 0, timeout_s=_SERVED_S, on_step=ready, announce=False, served_at=path
        )
        return WalkSamples(by_key(steps, walked.samples)), walked.idle_s

    def _runs(self, key: str) -> bool:
        return key not in self.failures and key not in self.out_of_memory

    def _failed_count(self) -> int:
        return len(self.failures) + len(self.out_of_memory)

    def _limit_s(self, name: str, passes: int) -> float:
        """Seconds that a walk may take: 30 times the expected, or what its steps may take alone."""
        runs = len(self.steps(name)) * (passes + 1)
        return min(max(60.0, 30 * self._pass_s[name] * (passes + 1)), runs * self._timeout_s)

    def _blame(self, key: str, error: WorkerError) -> None:
        """Note why ``key`` does not run.

        A lack of memory is a failure only where nothing else was loaded. The first kills by others
        are ignored: they need not have to do with the brick that the worker was busy with.
        """
        if isinstance(error, WorkerKilled):
            self._kills[key] = self._kills.get(key, 0) + 1
            if self._kills[key] < MAX_ATTEMPTS:
                return
        reason = str(error)
        shared = len(self._keys) > 1 or self._inherited
        found = self.out_of_memory if shared and is_out_of_memory(reason) else self.failures
        found[key] = reason

    def _charge(self, name: str) -> None:
        """Add the time since the last call to that of a walk."""
        now = time.perf_counter()
        self.prepare_s[name] += now - self._lap
        self._lap = now

    def _setup(self) -> None:
        """Load and place everything that has not failed, in a worker that lives through it."""
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
        """Whether the worker lived; if not, the key that ended it is a failure, and left out."""
        self._make_room()
        if self._at_once and not self._load_at_once():
            return False
        for name, walk in self._walks.items():
            alive = self._at_once or all(self._load(x) for x in walk.loads if self._runs(x.key))
            alive = alive and self._place_all(name)
            self._charge(name)
            if not alive:
                return False
        return True

    def _make_room(self) -> None:
        """Unload everything, and make the shared region; if it is too large, do without.

        A model whose activations exceed memory cannot run; most of its bricks still can.
        """
        self._placed.clear()
        with suppress(WorkerDied):  # the next has nothing loaded
            self._supervisor.ask(UnloadAll(), timeout_s=self._timeout_s)
        try:
            self._make_region()
        except WorkerError:
            if not self._region_bytes:
                raise
            self._region_bytes = 0
            self._walks = {name: without_region(walk) for name, walk in self._walks.items()}
            self._make_region()
        self._starts = self._supervisor.starts

    def _make_region(self) -> None:
        eviction_bytes = max((walk.eviction_bytes(()) for walk in self._walks.values()), default=0)
        self._supervisor.ask_afresh(
            MakeRegion(self._region_bytes, eviction_bytes), timeout_s=self._timeout_s
        )

    def _load_at_once(self) -> bool:
        """Load everything at once, which is much faster; whether it succeeded.

        If it did not, the key that caused that is unknown: from then on, one is loaded after the
        other.
        """
        found = {
            load.name: (name, load)
            for name, walk in reversed([*self._walks.items()])
            for load in walk.loads
            if self._runs(load.key)
        }
        try:
            loads_s = self._ask(
                LoadPieces(tuple(_load_piece(load) for _, load in found.values())),
                timeout_s=self._timeout_s,
                on_step=lambda number: self._on_load((number + 1) / len(found)),
            )
        except WorkerError:
            self._at_once = False
            self._supervisor.reset()  # a runtime may keep memory that it needs no more
            return False
        now = time.perf_counter()
        factor = (now - self._lap) / max(sum(loads_s), 1e-9)  # they ran in parallel
        self._lap = now
        for (name, load), seconds in zip(found.values(), loads_s, strict=True):
            self.prepare_s[name] += factor * seconds
            self._note_load(load, factor * seconds)
        return True

    def _load(self, load: Load) -> bool:
        """Whether the worker still lives; a failure is noted."""
        started = time.perf_counter()
        alive = self._try(load.key, _load_piece(load))
        self._note_load(load, time.perf_counter() - started)
        self._on_load(len(self._loaded) / self._to_load)
        return alive

    def _note_load(self, load: Load, seconds: float) -> None:
        """Note how long loading took, the first time."""
        if load.name not in self._loaded:
            self._loaded.add(load.name)
            self.load_s[load.key] = self.load_s.get(load.key, 0.0) + seconds

    def _place_all(self, name: str) -> bool:
        """Place the steps that are not where they should be; whether the worker still lives."""
        # Where a step fails, those that would have overwritten its result get other places.
        while missing := [s for s in self.steps(name) if self._placed.get(s.place) != s]:
            for step in missing:
                if self._runs(step.key) and not self._place(step):
                    return False
                self._placed[step.place] = step
        return True

    def _place(self, step: Step) -> bool:
        bind = BindPiece(step.place, step.load, step.inputs, step.outputs, step.repeated)
        return self._try(step.key, bind)

    def _try(self, key: str, request: Request[None]) -> bool:
        try:
            self._ask(request, timeout_s=self._timeout_s)
        except WorkerLost:
            raise
        except WorkerDied as death:
            self._blame(key, death)
            return False
        except WorkerError as error:
            self._blame(key, error)
        return True

    def _rehearse(self, name: str, passes: int) -> None:
        """Run the steps once and ``passes`` times more, announced, until none of them fails."""
        at = -1

        def on_step(number: int) -> None:
            nonlocal at
            at = number
            self._on_step()

        broken = 0
        while True:
            at = -1
            try:
                if not self._place_all(name):
                    self._setup()
                steps = self.steps(name)
                started = time.perf_counter()
                self._run(
                    name, steps, passes, timeout_s=self._timeout_s, on_step=on_step, announce=True
                )
            except WorkerError as error:
                if at >= 0:
                    self._blame(steps[at].key, error)
                else:
                    broken += 1
                    if broken == MAX_ATTEMPTS:
                        raise
                if isinstance(error, WorkerDied):
                    self._setup()
            else:
                self._pass_s[name] = (time.perf_counter() - started) / (passes + 1)
                self._charge(name)
                return

    def _run(
        self,
        name: str,
        steps: list[Step],
        passes: int,
        *,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
        announce: bool = False,
        served_at: str | None = None,
    ) -> Walked:
        walk = self._walks[name]
        request = RunWalk(
            tuple((step.place, step.timed) for step in steps),
            passes,
            announce,
            eviction_bytes=walk.eviction_bytes(steps),
            region_bytes=walk.region_bytes,
            memory=tuple(map(tuple, walk.memory_events(steps))),
            served_at=served_at,
        )
        return self._ask(request, timeout_s=timeout_s, on_step=on_step)

    def _ask(
        self,
        request: Request[Answer],
        *,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
    ) -> Answer:
        """As :meth:`Supervisor.ask`, but only of the worker that has loaded the walks."""
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
