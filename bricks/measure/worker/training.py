"""Requests about a training: begin it, train an epoch, time what is around the steps, check it.

One program is trained at a time; beginning another one drops it. A request trains one epoch, so
that a run that is interrupted loses no more. Must not know until when a program is trained.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bricks.backends.base import Backend
from bricks.backends.programs import Trainer, Training
from bricks.errors import BackendError, WorkerError

# Seconds between announcements: each takes some time from the steps.
_ANNOUNCE_S = 1.0

_CHECKS = ("gradients", "trajectories", "item_orders")

Facts = dict[str, Any]


class TrainingRequests:
    """Answers requests with what ``backend`` returns; ``say`` sends messages meanwhile."""

    def __init__(self, backend: Callable[[], Backend], say: Callable[[Facts], None]) -> None:
        self._backend, self._say = backend, say
        self._begun: Training | None = None

    @property
    def _trainer(self) -> Trainer:
        backend: Any = self._backend()
        if not hasattr(backend, "training"):
            raise BackendError("this runtime trains no programs: choose --runtime torch")
        trainer: Trainer = backend
        return trainer

    @property
    def _training(self) -> Training:
        if self._begun is None:
            raise WorkerError("no training was begun")
        return self._begun

    def do_begin_training(
        self, entry: str, folder: str, options: dict[str, Any], seed: int
    ) -> Facts:
        """Make the program, from this seed."""
        self._begun = None
        gc.collect()
        self._begun = self._trainer.training(entry, folder, options, seed)
        return {"identity": self._begun.identity}

    def do_load_training(self, path: str) -> Facts:
        """Go on where a checkpoint was saved; all epochs until then."""
        self._training.load(Path(path))
        return {"epochs": [asdict(epoch) for epoch in self._training.history]}

    def do_train(self, path: str) -> Facts:
        """Train for one epoch, save a checkpoint, and return what was measured."""
        announced_s = time.monotonic()

        def on_step(number: int) -> None:
            nonlocal announced_s
            now_s = time.monotonic()
            if now_s - announced_s >= _ANNOUNCE_S:
                announced_s = now_s
                self._say({"at": number})

        epoch = self._training.epoch(on_step)
        self._training.save(Path(path))
        return asdict(epoch)

    def do_time_loading(self, batches: int, read_bytes: int) -> Facts:
        """Seconds of so many batches at least."""
        return asdict(self._training.time_loading(batches, read_bytes))

    def do_time_evaluation(self, repeats: int, read_bytes: int) -> Facts:
        """Seconds of so many evaluations."""
        return {"evaluation_s": list(self._training.time_evaluation(repeats, read_bytes))}

    def do_check_training(self, what: str, **fields: Any) -> Facts:
        """One of the checks of :class:`Trainer`, by its name."""
        if what not in _CHECKS:
            raise WorkerError(f"the worker does not know the check {what!r}")
        return dict(getattr(self._trainer, what)(**fields))
