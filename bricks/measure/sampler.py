"""Runs walks in the worker, and survives what their bricks do to it.

A brick that fails, crashes the worker, hangs or exhausts memory is found by running the steps one
by one, announced; it becomes a failure with its reason, and the walk goes on without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from bricks.errors import WorkerError
from bricks.measure.protocol import pack
from bricks.measure.supervisor import Supervisor, WorkerDied
from bricks.measure.walk import Load, Step, Walk, without_region

DEFAULT_TIMEOUT_S = 60.0


class Sampler:
    """What is loaded in the worker for one model, and the failures met so far.

    ``failures`` maps keys to reasons; ``prepare_s`` to the seconds that loading took.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        walks: Mapping[str, Walk],
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        on_load: Callable[[float], None] = lambda share: None,
    ) -> None:
        self._supervisor = supervisor
        self._timeout_s = timeout_s
        self._walks = walks
        self._on_load = on_load
        self._region_bytes = max((w.region_bytes for w in walks.values()), default=0)
        self._loads = len({load.key for walk in walks.values() for load in walk.loads})
        self.failures: dict[str, str] = {}
        self.prepare_s: dict[str, float] = {}

    def prepare(self) -> None:
        """Load and place everything, run it once; afterwards ``failures`` is known."""
        self._setup()
        for walk in self._walks.values():
            self._rehearse(walk)

    @property
    def names(self) -> list[str]:
        """Names of the walks."""
        return list(self._walks)

    def steps(self, name: str) -> list[Step]:
        """The steps of a walk that have not failed."""
        return [s for s in self._walks[name].steps if s.key not in self.failures]

    def walk(self, name: str, passes: int, timeout_s: float) -> dict[str, tuple[float, ...]]:
        """One warm-up pass and ``passes`` timed ones: seconds by key, of the timed steps."""
        for _ in range(3):
            steps = self.steps(name)
            if not any(step.timed for step in steps):
                return {}
            try:
                samples = self._run(steps, passes, announce=False, timeout_s=timeout_s)
            except WorkerError:
                self.prepare()  # finds the culprit, or puts everything back
                continue
            return {
                step.key: tuple(column)
                for step, column in zip(steps, samples, strict=True)
                if step.timed
            }
        reason = "the worker died repeatedly while this and other bricks were sampled in turn"
        self.failures.update({s.key: reason for s in self.steps(name) if s.timed})
        return {}

    def _setup(self) -> None:
        while not self._set_up_everything():
            pass  # what ended the worker is among the failures now, and is left out

    def _set_up_everything(self) -> bool:
        """Whether the worker lived through it."""
        self._make_room()
        for walk in self._walks.values():
            for load in walk.loads:
                if load.key not in self.failures and not self._load(load):
                    return False
            for step in walk.steps:
                if step.key not in self.failures and not self._place(step):
                    return False
        return True

    def _make_room(self) -> None:
        """Nothing is loaded, and the shared region is there; or, if it is too big, is done without.

        A model whose activations exceed memory cannot run; most of its bricks still can.
        """
        with suppress(WorkerDied):  # one that ended while idle: the next has nothing loaded
            self._supervisor.ask("unload", timeout_s=self._timeout_s)
        try:
            self._make_region()
        except WorkerError:
            if not self._region_bytes:
                raise
            self._region_bytes = 0
            self._walks = {name: without_region(walk) for name, walk in self._walks.items()}
            self._make_region()

    def _make_region(self) -> None:
        size_bytes = self._region_bytes
        self._supervisor.ask("region", size_bytes=size_bytes, timeout_s=self._timeout_s)

    def _load(self, load: Load) -> bool:
        """Whether the worker still lives; a failure is noted."""
        started = time.perf_counter()
        fields = {
            "id": load.key,
            "key": load.key,
            "model": pack(load.model),
            "optimize": load.optimize,
            "examples": {name: list(values) for name, values in load.examples.items()},
        }
        alive = self._try(load.key, "load", fields)
        self.prepare_s.setdefault(load.key, time.perf_counter() - started)
        self._on_load(len(self.prepare_s) / self._loads)
        return alive

    def _place(self, step: Step) -> bool:
        fields = {
            "place": step.place,
            "id": step.key,
            "inputs": list(step.inputs),
            "outputs": list(step.outputs),
        }
        return self._try(step.key, "place", fields)

    def _try(self, key: str, op: str, fields: Mapping[str, Any]) -> bool:
        try:
            self._supervisor.ask(op, timeout_s=self._timeout_s, **fields)
        except WorkerDied as death:
            self.failures[key] = str(death)
            return False
        except WorkerError as error:
            self.failures[key] = str(error)
        return True

    def _rehearse(self, walk: Walk) -> None:
        """Run every step once, announced, until all that remain get through."""
        while True:
            steps = [s for s in walk.steps if s.key not in self.failures]
            at = 0

            def on_step(number: int) -> None:
                nonlocal at
                at = number

            try:
                self._run(steps, 0, announce=True, timeout_s=self._timeout_s, on_step=on_step)
            except WorkerDied as death:
                self.failures[steps[at].key] = str(death)
                self._setup()
            except WorkerError as error:
                self.failures[steps[at].key] = str(error)
            else:
                return

    def _run(
        self,
        steps: list[Step],
        passes: int,
        *,
        announce: bool,
        timeout_s: float,
        on_step: Callable[[int], None] | None = None,
    ) -> list[list[float]]:
        answer = self._supervisor.ask(
            "walk",
            timeout_s=timeout_s,
            on_step=on_step,
            steps=[[step.place, step.timed] for step in steps],
            passes=passes,
            announce=announce,
        )
        samples: list[list[float]] = answer["samples"]
        return samples
