"""Trains a program from several seeds until it is accurate enough, and predicts how long it takes.

The step is recomposed from bricks, and missing ones are measured first; loading a batch and
evaluating are measured as a whole. Then each seed is trained, an epoch a request, going on from the
last checkpoint. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bricks.api.bench import Bench
from bricks.backends.programs import Loading, TrainedEpoch
from bricks.compose.estimate import Estimate
from bricks.compose.memory import PeakMemory
from bricks.errors import UsageError, WorkerError
from bricks.graph.model import Model
from bricks.measure.protocol.request import Answer, Request
from bricks.measure.protocol.training import (
    BeginTraining,
    LoadTraining,
    SeededProgram,
    TimeEvaluation,
    TimeLoading,
    TrainEpoch,
)
from bricks.measure.supervisor import Supervisor, WorkerDied
from bricks.sources import ReadOptions, find_workload
from bricks.studies.training.kept_runs import FOLDER, KeptRun, folder_of, read_facts, write_facts
from bricks.studies.training.result import (
    PredictedTime,
    TrainingFailure,
    TrainingPrediction,
    TrainingResult,
    TrainingRun,
)
from bricks.studies.training.sampled_time import predicted_mean

# Batches and evaluations that are timed without training.
LOADED_BATCHES, EVALUATIONS = 100, 5
# Memory is read between them, as much as a step holds, but no more than this: it takes time.
_MAX_READ_BYTES = 1 << 28

# The longest silence of a worker, which announces steps but neither loading nor evaluating.
_TIMEOUT_S = 1800.0


@dataclass(frozen=True, slots=True)
class _Goal:
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
class _Task:
    """A program to train: the worker that does, where it is kept, and until when."""

    worker: Supervisor
    workload: str
    program: SeededProgram
    kept: Path
    goal: _Goal
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


@dataclass(frozen=True, slots=True)
class _Told:
    """The progress of one of several trainings; ``what`` names it."""

    bench: Bench
    what: str
    number: int
    count: int

    def epoch(self, done: int, max_epochs: int) -> None:
        """Say that the next epoch begins."""
        share = (self.number + done / max_epochs) / self.count
        self.bench.progress(f"{self.what}, epoch {done + 1}", share)


def train(
    bench: Bench,
    workload: str,
    *,
    until: float,
    seeds: Sequence[int] = (0,),
    max_epochs: int = 50,
    batch: int | None = None,
    folder: str | Path = FOLDER,
    again: bool = False,
) -> TrainingResult:
    """Train ``workload`` from each of ``seeds`` until an accuracy of ``until``, from 0 to 1.

    ``workload`` is ``FILE.py:FUNCTION``, ``module:FUNCTION`` or the name of a workload of the zoo
    (docs/levels.md says what the function returns); ``batch`` is passed on to it. The accuracy is
    computed after each epoch, and after ``max_epochs`` a training ends. Epochs are kept in
    ``folder``, so that an interrupted training goes on and a finished one is not repeated, unless
    ``again``.

    Raises :class:`~bricks.errors.UsageError` for a goal or seeds that make no sense, and
    :class:`~bricks.errors.WorkerError` for a program that cannot be trained. A training that fails
    later is part of the result.
    """
    _refuse(until, seeds, max_epochs)
    function = find_workload(workload)
    program = SeededProgram(**function.request(batch), seed=seeds[0])
    model = function.record(
        ReadOptions(
            batch=batch, name=workload, runtime=bench.runtime.backend,
            threads=bench.runtime.threads, seed=bench.options.seed,
        )
    )  # fmt: skip
    kept = folder_of(Path(folder), model.digest, bench.target.key, str(batch))
    with bench.worker() as worker:
        task = _Task(worker, workload, program, kept, _Goal(until, max_epochs), again)
        # First of all: a program that cannot be trained should be refused before bricks are timed.
        identity = task.begin(seeds[0])
        step, reason = _step(bench.predict(model))
        read_bytes = _held_bytes(bench, model)
        with bench.timing():
            bench.progress(f"{workload}: timing loading and evaluation", 0.0)
            loading, evaluation_s = _around(task, seeds[0], identity, read_bytes)
            prediction = TrainingPrediction(
                step,
                predicted_mean(loading.batch_s),
                predicted_mean(loading.begin_s),
                predicted_mean(evaluation_s),
                loading.processes,
                reason,
            )
            trainings = []
            for number, seed in enumerate(seeds):
                told = _Told(bench, f"{workload}: seed {seed}", number, len(seeds))
                trainings.append(_training(task, seed, prediction, told))
    return TrainingResult(
        workload, bench.target, batch, until, max_epochs, prediction, tuple(trainings)
    )


def _training(
    task: _Task, seed: int, prediction: TrainingPrediction, told: _Told
) -> TrainingRun | TrainingFailure:
    """A training from one seed; another one may still succeed where it fails."""
    try:
        epochs, new = _trained(task, seed, told)
    except WorkerError as error:
        return TrainingFailure(seed, f"{told.what}: {error}")
    reached = epochs[-1].accuracy >= task.goal.accuracy
    predicted = prediction.of(sum(len(epoch.losses) for epoch in epochs), len(epochs))
    return TrainingRun(seed, tuple(epochs), reached, predicted, new)


def _refuse(until: float, seeds: Sequence[int], max_epochs: int) -> None:
    if not 0 < until <= 1:
        raise UsageError(f"an accuracy of {until:g} cannot be reached: give one from 0 to 1")
    if not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0:
        raise UsageError("seeds must be different numbers from 0 on: give at least one")
    if max_epochs < 1:
        raise UsageError(f"{max_epochs} epochs are no training: give at least 1")


def _step(estimate: Any) -> tuple[PredictedTime | None, str | None]:
    """The prediction of a step, or why there is none."""
    if isinstance(estimate, Estimate):
        found = PredictedTime(estimate.estimate_s, estimate.low_s, estimate.high_s)
        return found, None
    gap = estimate.gaps[0]
    count = len(estimate.gaps)
    more = f", and {count - 1} more" if count > 1 else ""
    return None, f"brick {gap.brick} is not measured: {gap.reason}{more}"


def _held_bytes(bench: Bench, model: Model) -> int:
    """The memory that a step holds, as far as a cache could."""
    memory = bench.predict_memory(model)
    held_bytes = memory.peak_bytes if isinstance(memory, PeakMemory) else _MAX_READ_BYTES
    return min(held_bytes, _MAX_READ_BYTES)


def _around(
    task: _Task, seed: int, identity: str, read_bytes: int
) -> tuple[Loading, Sequence[float]]:
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
    return Loading(begin_s, batch_s, kept_loading["processes"]), facts["evaluation_s"]


def _trained(task: _Task, seed: int, told: _Told) -> tuple[list[TrainedEpoch], int]:
    """The epochs of a training until it ends, and how many of them are new."""
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
        told.epoch(len(epochs), task.goal.max_epochs)
        epochs.append(task.ask(TrainEpoch(str(run.checkpoint))))
        run.write(epochs)
    return epochs[:end], len(epochs) - known
