"""Runs further copies of a model on other cores while bricks of one copy are timed.

What the other cores do is a condition of a target with several copies: each further copy is a
worker of its own, which runs the whole model again and again until it is stopped. So bricks, whole
models, call overhead and reference kernels all see what they see where copies run at once. Must not
know what is timed meanwhile.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.closing import Closing
from bricks.errors import WorkerError
from bricks.measure.loaded_walks import LoadedWalks
from bricks.measure.protocol.walking import RunRepeatedly
from bricks.measure.sampling_task import whole_walk
from bricks.measure.walk import Walk, WalkStep, single_step

if TYPE_CHECKING:
    from bricks.measure.jobs import ModelJob
    from bricks.measure.supervisor import Supervisor

_NAME = "further copy"


def _walk_of_copy(job: ModelJob) -> Walk:
    """The walk of a further copy of a job's model; of a brick outside any model, the brick."""
    if job.model.skeleton:
        return whole_walk(job)
    plan = job.decomposition.plan
    ((key, brick),) = job.decomposition.bricks.items()
    return single_step(key, brick.model, inputs=len(plan.inputs), outputs=len(plan.outputs))


class FurtherCopies(Closing):
    """Further copies of a model, one in each of ``workers``; none without workers."""

    def __init__(self, workers: Sequence[Supervisor] = ()) -> None:
        self._workers = workers
        self._loaded: list[LoadedWalks] = []
        self._walk: Walk | None = None  # the walk that is loaded
        self._running: list[Future[int]] = []

    def __bool__(self) -> bool:
        """Whether there are further copies."""
        return bool(self._workers)

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.close()

    def processor_s(self) -> float:
        """Processor time in seconds of all workers."""
        return sum(worker.processor_s() for worker in self._workers)

    def check(self) -> None:
        """Raise :class:`WorkerError` if a further copy that should run has ended."""
        for number, future in enumerate(self._running):
            if future.done():
                error = future.exception()
                kind = type(error) if isinstance(error, WorkerError) else WorkerError
                text = error or "without an error"
                raise kind(f"further copy {number + 1} of the model has ended: {text}")

    @contextmanager
    def running(self, job: ModelJob | None, *, timeout_s: float) -> Iterator[None]:
        """Run the model of ``job`` in each worker during a block; None: nothing.

        Each has run once before the block begins. Raises :class:`WorkerError` where one cannot run,
        or ends meanwhile.
        """
        if job is None or not self._workers:
            yield
            return
        walk = _walk_of_copy(job)
        self._load(walk, timeout_s)
        with ExitStack() as opened:
            folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="bricks-copies-"))
            exists = Path(folder) / "running"
            exists.touch()
            pool = opened.enter_context(ThreadPoolExecutor(len(self._workers)))
            opened.callback(self._running.clear)
            opened.callback(exists.unlink)
            begun = [threading.Event() for _ in self._workers]
            self._running += [
                pool.submit(_run, loaded, walk.steps[0], str(exists), event, timeout_s)
                for loaded, event in zip(self._loaded, begun, strict=True)
            ]
            for event in begun:
                event.wait()
            self.check()
            yield
            self.check()

    def _load(self, walk: Walk, timeout_s: float) -> None:
        """Load ``walk`` in each worker, unless it is loaded."""
        if walk == self._walk and all(worker.alive for worker in self._workers):
            return
        self._walk = None
        self._loaded = [
            LoadedWalks(worker, {_NAME: walk}, timeout_s, on_load=lambda share: None)
            for worker in self._workers
        ]
        for loaded in self._loaded:
            loaded.set_up()
            failed = {**loaded.failed_keys.failures, **loaded.failed_keys.suspects}
            for reason in failed.values():
                raise WorkerError(f"a further copy of the model cannot run: {reason}")
        self._walk = walk


def _run(
    loaded: LoadedWalks, step: WalkStep, while_exists: str, begun: threading.Event, timeout_s: float
) -> int:
    """Run a step until the file ``while_exists`` is removed; its number of runs."""
    try:
        request = RunRepeatedly(step.name, while_exists)
        return loaded.ask(request, timeout_s=timeout_s, on_step=lambda number: begun.set())
    finally:
        begun.set()  # nobody waits for a copy that has failed
