"""Trains a program from several seeds until it is accurate enough, and predicts how long it takes.

The step is recomposed from bricks; loading a batch and evaluating are measured as a whole. Then
each seed is trained. Must not know how results are shown.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import cached_property
from pathlib import Path

from bricks.backends.programs import LoadingTimes, SeededProgram
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import WorkerError
from bricks.graph.model import Model
from bricks.session.peak_memory import predict_memory
from bricks.session.predicting import predict
from bricks.session.workspace import Workspace
from bricks.sources import find_workload
from bricks.sources.programs import Function
from bricks.studies.study import Needs, Study, ask
from bricks.studies.training.kept_runs import folder_of
from bricks.studies.training.options import TrainingOptions
from bricks.studies.training.result import (
    TrainingFailure,
    TrainingPrediction,
    TrainingResult,
    TrainingRun,
)
from bricks.studies.training.sampled_time import predicted_mean
from bricks.studies.training.train import (
    SeedProgress,
    TrainingGoal,
    TrainingTask,
    loading_times,
    trained,
)
from bricks.studies.training.validation import TrainingValidation, validate_training
from bricks.units.interval import Interval

# Memory is read between batches that are timed, as much as a step holds, but no more than this: it
# takes time.
_MAX_READ_BYTES = 1 << 28

Trainings = tuple[TrainingRun | TrainingFailure, ...]


def train(workspace: Workspace, options: TrainingOptions) -> TrainingResult:
    """Train as ``options`` say, and predict how long that takes.

    Raises :class:`~bricks.errors.WorkerError` for a program that cannot be trained. A training that
    fails later is part of the result.
    """
    return ask(TrainingStudy(options, workspace))


class TrainingStudy(Study[TrainingOptions, TrainingPrediction, Trainings, TrainingResult]):
    """The trainings of one program from several seeds."""

    _task: TrainingTask
    _identity: str
    _validation: TrainingValidation | None = None

    @property
    def observes(self) -> bool:
        """Always, since only a training shows its number of steps."""
        return True

    def needs(self) -> Needs:
        """The bricks of a step, and times of loading and evaluating."""
        return Needs(models=[self._model], others=[lambda: self._loading])

    def predict(self) -> TrainingPrediction:
        """The time of a step, and of all that is not one."""
        loading, evaluation_s = self._loading
        step, reason = _step(predict(self.workspace, self._model, measure=False))
        return TrainingPrediction(
            step,
            predicted_mean(loading.batch_s),
            predicted_mean(loading.begin_s),
            predicted_mean(evaluation_s),
            loading.processes,
            reason,
        )

    def observe(self) -> Generator[None, TrainingPrediction, Trainings]:
        """Train from each seed.

        Begun first of all: a program that cannot be trained is refused before bricks are timed.
        """
        options, workspace = self.options, self.workspace
        if options.validate:
            self._validation = validate_training(workspace, options.workload, batch=options.batch)
        kept = folder_of(
            Path(options.folder), self._model.digest, workspace.target.key, str(options.batch)
        )
        program = SeededProgram(**self._function.request(options.batch), seed=options.seeds[0])
        with workspace.worker() as worker:
            self._task = TrainingTask(
                worker, options.workload, program, kept,
                TrainingGoal(options.until, options.max_epochs), options.again,
            )  # fmt: skip
            self._identity = self._task.begin(options.seeds[0])
            prediction = yield
            return tuple(
                self._training(number, seed, prediction)
                for number, seed in enumerate(options.seeds)
            )

    def result(
        self, prediction: TrainingPrediction, observation: Trainings | None
    ) -> TrainingResult:
        """Each seed, with the time that was predicted for as many steps and epochs."""
        options = self.options
        return TrainingResult(
            options.workload, self.target, options.batch, options.until, options.max_epochs,
            prediction, observation or (), self._validation,
        )  # fmt: skip

    @cached_property
    def _function(self) -> Function:
        return find_workload(self.options.workload)

    @cached_property
    def _model(self) -> Model:
        """A step of the program."""
        workspace, options = self.workspace, self.options
        return self._function.record(
            workspace.read_options(batch=options.batch, name=options.workload)
        )

    @cached_property
    def _loading(self) -> tuple[LoadingTimes, Sequence[float]]:
        """Times of loading, and seconds of evaluating."""
        self.workspace.progress(f"{self.options.workload}: timing loading and evaluation", 0.0)
        seed, read_bytes = self.options.seeds[0], self._step_bytes()
        with self.workspace.timing():
            return loading_times(self._task, seed, self._identity, read_bytes)

    def _step_bytes(self) -> int:
        """The peak memory of a step in bytes, at most the bytes to read between batches."""
        memory = predict_memory(self.workspace, self._model)
        peak_bytes = memory.peak_bytes if isinstance(memory, PeakMemory) else _MAX_READ_BYTES
        return min(peak_bytes, _MAX_READ_BYTES)

    def _training(
        self, number: int, seed: int, prediction: TrainingPrediction
    ) -> TrainingRun | TrainingFailure:
        """A training from one seed; another one may still succeed where it fails."""
        what, count = f"{self.options.workload}: seed {seed}", len(self.options.seeds)
        progress = SeedProgress(self.workspace.progress, what, number, count)
        try:
            epochs, new = trained(self._task, seed, progress)
        except WorkerError as error:
            return TrainingFailure(seed, f"{what}: {error}")
        reached = epochs[-1].accuracy >= self.options.until
        predicted = prediction.of(sum(len(epoch.losses) for epoch in epochs), len(epochs))
        return TrainingRun(seed, tuple(epochs), reached, predicted, new)


def _step(estimate: Estimate | IncompleteEstimate) -> tuple[Interval | None, str | None]:
    """The seconds of a step, or why there is no prediction."""
    if isinstance(estimate, Estimate):
        return estimate.latency_s, None
    gap, more = estimate.gaps[0], len(estimate.gaps) - 1
    others = f", and {more} more" if more else ""
    return None, f"brick {gap.brick} is not measured: {gap.reason}{others}"
