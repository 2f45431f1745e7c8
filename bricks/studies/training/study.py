"""Predicts how long a program takes to train, and trains it until it is accurate if asked to.

The step is recomposed from bricks; loading a batch and evaluating are measured as a whole. Of
measured times it is the mean that counts and not the median, because trainings add them up: an
occasional slow loading is part of the sum. Must not know how results are shown.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.backends.programs import LoadingTimes, SeededProgram
from bricks.compose.estimate import Estimate
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import UsageError, WorkerError
from bricks.measure.supervisor import WorkerDied
from bricks.session.predicting import predict
from bricks.session.whole_models import predict_memory
from bricks.sources import (
    RecordedProgram,
    find_training_step,
    find_workload,
    read,
    recorded_program,
)
from bricks.sources.programs import Function
from bricks.studies.study import Needs, Study, ask
from bricks.studies.training.options import TrainingOptions
from bricks.studies.training.result import (
    TrainingFailure,
    TrainingPrediction,
    TrainingResult,
    TrainingRun,
)
from bricks.studies.training.train import (
    TrainingGoal,
    TrainingTask,
    folder_of,
    loading_times,
    trained,
)
from bricks.studies.training.validation import TrainingValidation, validate_training
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace

# Memory is read between batches that are timed, as much as a step holds, but no more than this: it
# takes time.
_MAX_READ_BYTES = 1 << 28

Trainings = tuple[TrainingRun | TrainingFailure, ...]

# The variance of a mean is taken from the means of this number of parts: neighbouring times depend
# on each other, so the variance of single times would be too small.
_PARTS = 5


def train(workspace: Workspace, options: TrainingOptions) -> TrainingResult:
    """Predict how long a training takes, and train if ``options`` say so.

    Raises :class:`~bricks.errors.WorkerError` for a program that cannot be trained. A training that
    fails later is part of the result.
    """
    return ask(TrainingStudy(options, workspace))


class TrainingStudy(Study[TrainingOptions, TrainingPrediction, Trainings, TrainingResult]):
    """The trainings of one program from several seeds."""

    _task: TrainingTask | None = None
    _validation: TrainingValidation | None = None

    @property
    def observes(self) -> bool:
        """Whether it is trained or validated: only a training shows its number of steps."""
        return self.options.run or self.options.validate

    def needs(self) -> Needs:
        """The bricks of a step, and times of loading and evaluating."""
        return Needs(models=[self._model], others=[lambda: self._loading])

    def predict(self) -> TrainingPrediction:
        """The time of a step, and of all that is not one."""
        estimate = predict(self.workspace, self._model, measure=False)
        step: Interval | None = None
        reason: str | None = None
        if isinstance(estimate, Estimate):
            step = estimate.latency_s
        else:
            reason = f"no estimate without {estimate.lacks}"
        if self._loading is None:
            nothing = Interval.exact(0.0)
            return TrainingPrediction(
                step, nothing, nothing, nothing, reason=reason, has_data=False,
                epoch_steps=self._stated_steps, step_samples=self._step_samples,
            )  # fmt: skip
        loading, evaluation_s = self._loading
        own_steps = round(len(loading.batch_s) / len(loading.begin_s))
        return TrainingPrediction(
            step,
            predicted_mean(loading.batch_s),
            predicted_mean(loading.begin_s),
            predicted_mean(evaluation_s),
            loading.processes,
            reason,
            own_steps if self._stated_steps is None else self._stated_steps,
            self._step_samples,
        )

    @property
    def _step_samples(self) -> int:
        batch = self.options.batch
        return (
            self.workspace.plans.decompose(self._model).plan.inferences if batch is None else batch
        )

    @property
    def _stated_steps(self) -> int | None:
        """Steps of an epoch by the options, the last of which may be short."""
        samples = self.options.samples_per_epoch
        return None if samples is None else -(-samples // self._step_samples)

    def observe(self) -> Generator[None, TrainingPrediction, Trainings]:
        """Train from each seed, after validating.

        Begun first of all: a program that cannot be trained is refused before bricks are timed.
        """
        options = self.options
        if options.validate:
            self._validation = validate_training(
                self.workspace, options.workload, batch=options.batch
            )
        if not options.run:
            yield
            return ()
        with self._begun() as (task, _):
            self._task = task
            prediction = yield
            return tuple(
                self._training(task, number, seed, prediction)
                for number, seed in enumerate(options.seeds)
            )

    @contextmanager
    def _begun(self) -> Iterator[tuple[TrainingTask, str]]:
        """A worker that has begun to train from the first seed, and the training's identity."""
        options, workspace = self.options, self.workspace
        function = self._function
        if not isinstance(function, Function):
            raise UsageError(
                f"{options.workload} is one step without data, which cannot be trained: leave out"
                " --run and --validate"
            )
        kept = folder_of(
            Path(options.folder), self._model.digest, workspace.target.key, str(options.batch)
        )
        program = SeededProgram(**function.request(options.batch), seed=options.seeds[0])
        goal = TrainingGoal(options.until, options.max_epochs)
        with workspace.worker() as worker:
            task = TrainingTask(worker, options.workload, program, kept, goal, options.again)
            yield task, task.begin(options.seeds[0])

    def result(
        self, prediction: TrainingPrediction, observation: Trainings | None
    ) -> TrainingResult:
        """Each seed, with the time that was predicted for as many steps and epochs."""
        options = self.options
        return TrainingResult(
            options.workload, self.target, options.batch, options.until, options.max_epochs,
            prediction, observation or (), self._validation, options.epochs, options.run,
        )  # fmt: skip

    @cached_property
    def _function(self) -> Function | RecordedProgram:
        """The program; a training step that was recorded for the zoo has no data."""
        name = self.options.workload
        recorded = recorded_program(name) is not None
        return find_training_step(name) if recorded else find_workload(name)

    @cached_property
    def _model(self) -> Model:
        workspace, options = self.workspace, self.options
        read_options = workspace.read_options(batch=options.batch, name=options.workload)
        if isinstance(self._function, Function):
            return self._function.record(read_options)
        return read(options.workload, read_options)

    @cached_property
    def _loading(self) -> tuple[LoadingTimes, Sequence[float]] | None:
        """Times of loading, and seconds of evaluating; None for a program without data."""
        if self._task is not None:
            return self._timed(self._task, self._task.begin(self.options.seeds[0]))
        if not isinstance(self._function, Function):
            return None
        with ExitStack() as opened:
            try:
                task, identity = opened.enter_context(self._begun())
            except WorkerDied:
                raise
            except WorkerError as error:  # it says which parts a training needs
                self.notice(f"{self.options.workload} is taken as one step: {error}")
                return None
            return self._timed(task, identity)

    def _timed(self, task: TrainingTask, identity: str) -> tuple[LoadingTimes, Sequence[float]]:
        self.workspace.progress(f"{self.options.workload}: timing loading and evaluation", 0.0)
        # Between batches, as many bytes are read as a step has at its peak.
        memory = predict_memory(self.workspace, self._model)
        peak_bytes = memory.peak_bytes if isinstance(memory, PeakMemory) else _MAX_READ_BYTES
        seed, read_bytes = self.options.seeds[0], min(peak_bytes, _MAX_READ_BYTES)
        with self.workspace.timing():
            return loading_times(task, seed, identity, read_bytes)

    def _training(
        self, task: TrainingTask, number: int, seed: int, prediction: TrainingPrediction
    ) -> TrainingRun | TrainingFailure:
        """A training from one seed; another one may still succeed where it fails."""
        what, count = f"{self.options.workload}: seed {seed}", len(self.options.seeds)

        def begins(done: int) -> None:
            share = (number + done / task.goal.max_epochs) / count
            self.workspace.progress(f"{what}, epoch {done + 1}", share)

        try:
            epochs, new = trained(task, seed, begins)
        except WorkerError as error:
            return TrainingFailure(seed, f"{what}: {error}")
        reached = epochs[-1].accuracy >= self.options.until
        predicted = prediction.of(sum(len(epoch.losses) for epoch in epochs), len(epochs))
        return TrainingRun(seed, tuple(epochs), reached, predicted, new)


def predicted_mean(times_s: Sequence[float]) -> Interval:
    """The mean of ``times_s`` (at least one), with a 95 % interval from the means of its parts.

    The interval of a single time has no width, since its variance is unknown.
    """
    from scipy.stats import t

    count = min(_PARTS, len(times_s))
    size = len(times_s) / count
    parts = [times_s[round(k * size) : round((k + 1) * size)] for k in range(count)]
    means = [sum(part) / len(part) for part in parts]
    mean_s = sum(times_s) / len(times_s)
    if count < 2:
        return Interval.exact(mean_s)
    variance = sum((part_mean - mean_s) ** 2 for part_mean in means) / (count - 1)
    half_s = float(t.ppf(0.975, count - 1)) * math.sqrt(variance / count)
    return Interval(mean_s, max(0.0, mean_s - half_s), mean_s + half_s)
