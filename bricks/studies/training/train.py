"""Trains a program in a worker, one epoch a request, resuming from the last checkpoint.

A folder keeps the checkpoint of each training, which holds the epochs until then; the JSON file
next to it has the same epochs for programs and people. Files are written whole or not at all. Must
not know what is predicted of trainings.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.backends.programs import LoadingTimes, SeededProgram, TrainedEpoch
from bricks.errors import StoreError, WorkerError
from bricks.measure.protocol.training import (
    BeginTraining,
    LoadTraining,
    TimeEvaluation,
    TimeLoading,
    TrainEpoch,
)
from bricks.measure.supervisor import Supervisor, WorkerDied

if TYPE_CHECKING:
    from bricks.measure.protocol.request import Answer, Request

# Batches and evaluations that are timed without training.
LOADED_BATCHES, EVALUATIONS = 100, 5

# The longest silence of a worker, which announces steps but neither loading nor evaluating.
_TIMEOUT_S = 1800.0

_FORMAT = 1
_DIGITS = 16


@dataclass(frozen=True, slots=True)
class TrainingGoal:
    """Until when each seed is trained."""

    accuracy: float
    max_epochs: int

    def end(self, epochs: Sequence[TrainedEpoch]) -> int | None:
        """The number of epochs after which a training ends; None if it goes on."""
        for number, epoch in enumerate(epochs[: self.max_epochs], 1):
            if epoch.accuracy >= self.accuracy:
                return number
        return self.max_epochs if len(epochs) >= self.max_epochs else None


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """A program to train: the worker that does, where it is kept, and until when."""

    worker: Supervisor
    workload: str
    program: SeededProgram
    kept: Path
    goal: TrainingGoal
    again: bool

    def ask(self, request: Request[Answer]) -> Answer:
        """The worker's answer; if the worker dies, the error names the workload."""
        try:
            return self.worker.ask(request, timeout_s=_TIMEOUT_S)
        except WorkerDied as error:
            raise WorkerError(f"{self.workload}: {error}") from error

    def begin(self, seed: int) -> str:
        """Let the worker begin a training from this seed; its identity."""
        return self.ask(BeginTraining(replace(self.program, seed=seed)))


def loading_times(
    task: TrainingTask, seed: int, identity: str, read_bytes: int
) -> tuple[LoadingTimes, Sequence[float]]:
    """Times of loading and of evaluating: as they are kept, or measured now."""
    path = task.kept / f"around-{identity[:16]}.json"
    facts = None if task.again else read_facts(path)
    if facts is None:
        task.begin(seed)
        loading = task.ask(TimeLoading(LOADED_BATCHES, read_bytes))
        evaluation_s = task.ask(TimeEvaluation(EVALUATIONS, read_bytes))
        facts = {"loading": asdict(loading), "evaluation_s": list(evaluation_s)}
        write_facts(path, facts)
    kept_loading = facts["loading"]
    begin_s, batch_s = tuple(kept_loading["begin_s"]), tuple(kept_loading["batch_s"])
    return LoadingTimes(begin_s, batch_s, kept_loading["processes"]), facts["evaluation_s"]


def trained(
    task: TrainingTask, seed: int, begins: Callable[[int], None]
) -> tuple[list[TrainedEpoch], int]:
    """The epochs of a training until it ends, and how many of them are new.

    ``begins`` is called with the number of epochs that are done, before the next one.
    """
    run = KeptRun(task.kept, seed, task.begin(seed))
    if task.again:
        run.forget()
    epochs = run.epochs()
    if (end := task.goal.end(epochs)) is not None:
        return epochs[:end], 0
    epochs = []
    if run.checkpoint.exists():
        epochs = [*task.ask(LoadTraining(str(run.checkpoint)))]
        run.write(epochs)
    known = len(epochs)
    while (end := task.goal.end(epochs)) is None:
        begins(len(epochs))
        epochs.append(task.ask(TrainEpoch(str(run.checkpoint))))
        run.write(epochs)
    return epochs[:end], len(epochs) - known


def folder_of(parent: Path, *parts: str) -> Path:
    """Make the folder of a program in ``parent``, whose name is the digest of ``parts``."""
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    folder = (parent / digest[:_DIGITS]).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise _unwritable(folder, exc) from exc
    return folder


class KeptRun:
    """The files of one training with a seed and an identity, which the worker computes."""

    def __init__(self, folder: Path, seed: int, identity: str) -> None:
        stem = folder / f"seed-{seed}-{identity[:_DIGITS]}"
        self.checkpoint = stem.with_suffix(".pt")
        self._facts = stem.with_suffix(".json")

    def epochs(self) -> list[TrainedEpoch]:
        """The measured epochs; empty unless the training is stored."""
        facts = read_facts(self._facts)
        return [] if facts is None else list(map(TrainedEpoch.from_json, facts["epochs"]))

    def write(self, epochs: Sequence[TrainedEpoch]) -> None:
        """Store these epochs."""
        write_facts(self._facts, {"epochs": [asdict(epoch) for epoch in epochs]})

    def forget(self) -> None:
        """Remove the files."""
        for path in (self._facts, self.checkpoint):
            path.unlink(missing_ok=True)


def read_facts(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None without the file. :class:`StoreError` for a damaged one."""
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if facts["format"] != _FORMAT:
            raise ValueError("another format")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise StoreError(f"{path} cannot be read ({exc}): remove it, or train --again") from exc
    return facts


def write_facts(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a file, whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(json.dumps({"format": _FORMAT, **facts}) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as exc:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path, exc) from exc


def _unwritable(path: Path, exc: OSError) -> StoreError:
    return StoreError(f"{path} cannot be written ({exc.strerror}): give another --folder")
