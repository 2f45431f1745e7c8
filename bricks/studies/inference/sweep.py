"""Predicts models in several settings, from one cache: a matrix of estimates.

Every runtime with each number of threads is measured in turn, all batches together; a setting that
fails does not stop the others. Must not know how models are found, nor how a matrix is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import chain, groupby
from typing import TYPE_CHECKING

from bricks.errors import BackendError, BricksError, UsageError
from bricks.graph.model import Model
from bricks.session import batch
from bricks.session.defaults import refuse_crowding
from bricks.session.targets import target_called
from bricks.sources import Unread
from bricks.studies.inference.predicting import PredictionOptions, PredictionStudy
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel, mixes_of
from bricks.studies.inference.settings import DIMENSIONS, Axes, Setting, varying
from bricks.studies.study import ask
from bricks.units.facts import Missing

if TYPE_CHECKING:
    from bricks.samples.whole_models import SizeTimes
    from bricks.session.agreement import Agreement
    from bricks.session.workspace import Workspace
    from bricks.studies.inference.settings import MixedSize
    from bricks.system import Target

Models = Sequence[Model | Unread]
Cells = dict[Setting, Sequence[PredictedModel]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Models in every setting of ``axes``.

    ``read`` reads the models for a setting: always as many, in the same order. With ``measure``,
    missing bricks are measured in settings on this host. ``notice`` is called with lines for the
    user. Peak memory is left out unless ``memory``. With ``now``, latencies on this host are for
    its present conditions too. With ``mix``, whose sizes are those of ``axes``, the result has the
    distribution over them, and with ``measure`` what a change of size costs.
    """

    axes: Axes
    read: Callable[[Setting], Models]
    measure: bool = True
    notice: Callable[[str], None] = lambda line: None
    memory: bool = True
    now: bool = False
    mix: Sequence[MixedSize] = ()

    def predicted(self, workspace: Workspace) -> ModelPredictions:
        """The predictions with the cache and the other options of ``workspace``."""
        settings = self.axes.settings

        def lane(setting: Setting) -> tuple[str, int]:
            return setting.runtime, setting.threads or 0

        parts = [list(group) for _, group in groupby(sorted(settings, key=lane), lane)]
        cells: Cells = {}
        for number, part in enumerate(parts):
            cells |= self._part(workspace, part, number, len(parts))
        agreements = tuple(self._agreements(workspace, cells))
        rows = zip(*(cells[setting] for setting in settings), strict=True)
        models = tuple(chain.from_iterable(map(_as_one, rows)))
        # Those that were asked for, and threads, if systems were measured with others.
        asked = varying(settings)
        found = varying(of.setting for of in models if of.setting.target is not None)
        threads = "threads" if asked and "threads" in found else None
        targets = [of.setting.target for of in models]
        keys = {None if target is None else target.key for target in targets}
        return ModelPredictions(
            targets[0] if len(keys) == 1 else None,
            str(workspace.granularity),
            workspace.options.workers,
            models,
            dimensions=tuple(name for name in DIMENSIONS if name in (*asked, threads)),
            mixes=tuple(mixes_of(models, self.mix)) if self.mix else (),
            agreements=agreements,
        )

    def _agreements(self, workspace: Workspace, cells: Cells) -> Iterator[Agreement]:
        """Whether runtimes of this host compute the same as the first, once for each model.

        Within a budget, which is for measuring, only verdicts that were kept.
        """
        runs = [(model, targets) for model, targets in self._runs_here(cells) if len(targets) > 1]
        if not runs:
            return
        from bricks.session.agreement import Agreements  # settings of one runtime need none

        check = self.measure and workspace.options.conditions.budget_s is None
        with Agreements(workspace, check=check) as agreements:
            for model, (first, *others) in runs:
                for other in others:
                    yield agreements.of(model, first, other)

    def _runs_here(self, cells: Cells) -> list[tuple[Model, Sequence[Target]]]:
        """The models that have estimates here, in their first batch, and a target by runtime."""
        models: dict[str, Model] = {}
        targets: dict[str, dict[str, Target]] = {}
        batches: dict[tuple[int, str | None], int | None] = {}
        for setting in self.axes.settings:
            if setting.system is not None:
                continue
            pairs = zip(self.read(setting), cells[setting], strict=True)
            for number, (model, cell) in enumerate(pairs):
                target = cell.setting.target
                if isinstance(model, Unread) or cell.interval is None or target is None:
                    continue
                first = batches.setdefault((number, setting.quantize), setting.batch)
                if setting.batch == first:
                    models.setdefault(model.digest, model)
                    targets.setdefault(model.digest, {}).setdefault(setting.runtime, target)
        return [(models[digest], [*of.values()]) for digest, of in targets.items()]

    def _part(self, base: Workspace, settings: Sequence[Setting], number: int, count: int) -> Cells:
        """The cells of settings with one runtime and as many threads, one of ``count`` parts."""
        models = {setting: self.read(setting) for setting in settings}
        try:
            opened = _opened(base, settings[0], number, count)
        except (BackendError, UsageError) as error:
            if count == 1:
                raise
            return _failed(models, error)
        with opened as workspace:
            cells: Cells = {}
            for system in dict.fromkeys(setting.system for setting in settings):
                there = {s: models[s] for s in settings if s.system == system}
                cells |= self._on(workspace, system, there, only=len(self.axes.settings) == 1)
            return cells

    def _on(
        self,
        workspace: Workspace,
        system: str | None,
        models: Mapping[Setting, Models],
        *,
        only: bool,
    ) -> Cells:
        """The cells of settings on one system; an error of the ``only`` one is raised.

        Unless no model could be read: that is what the user mends first.
        """
        measure = self.measure and system is None
        try:
            if system is None:
                refuse_crowding(workspace.target)
            target = workspace.target if system is None else target_called(workspace, system)
        except (BackendError, UsageError) as error:
            if only and not all(isinstance(m, Unread) for of in models.values() for m in of):
                raise
            return _failed(models, error)
        pairs = [(setting, model) for setting, of in models.items() for model in of]
        readable = [model for _, model in pairs if not isinstance(model, Unread)]
        if system is None and len(readable) > 1:
            batch.decompose_all(workspace, readable)
        options = PredictionOptions(
            models=[model for _, model in pairs],
            settings=[setting for setting, _ in pairs],
            target=target,
            memory=self.memory or bool(self.mix),  # for percentiles of single runs
            now=self.now and system is None,
        )
        study = PredictionStudy(options, workspace, self.notice)
        predicted = iter(ask(study, measure=measure).models)
        cells: Cells = {s: [next(predicted) for _ in of] for s, of in models.items()}
        return self._with_changes(workspace, models, cells) if self.mix and measure else cells

    def _with_changes(
        self, workspace: Workspace, models: Mapping[Setting, Models], cells: Cells
    ) -> Cells:
        """The same cells with real runs of each model, in which one size follows another."""
        settings = list(models)
        for begin in range(0, len(settings), len(self.mix)):
            sizes = settings[begin : begin + len(self.mix)]
            for number in range(len(models[sizes[0]])):
                if all(cells[size][number].interval is not None for size in sizes):
                    of = [models[size][number] for size in sizes]
                    times = _size_times(workspace, [m for m in of if isinstance(m, Model)])
                    for size, each in zip(sizes, times, strict=True):
                        row = [*cells[size]]
                        row[number] = replace(row[number], size_times=each)
                        cells[size] = row
        return cells


def _opened(
    base: Workspace, setting: Setting, number: int, count: int
) -> AbstractContextManager[Workspace]:
    """The workspace of one of ``count`` parts: ``base`` itself if it is the only one."""
    if count == 1:
        return nullcontext(base)
    conditions = base.options.conditions
    if conditions.budget_s is not None:  # the share that is over by the end of this part
        share = (number + 1) if conditions.budget_began_s is not None else 1
        conditions = replace(conditions, budget_s=conditions.budget_s * share / count)
    threads = "" if setting.threads is None else f", threads: {setting.threads}"

    def show(what: str, share: float) -> None:
        whole = (number + share) / count
        base.progress(f"{setting.runtime}{threads}: {what}", whole)

    return base.with_options(
        show,
        runtime=setting.runtime,
        threads=setting.threads,
        conditions=conditions,
    )


def _as_one(cells: Sequence[PredictedModel]) -> Iterable[PredictedModel]:
    """The cells of one model under its own name, which quantised ones extend."""
    own = next((of.model for of in cells if of.setting.quantize is None), None)
    return [of if own is None else replace(of, model=own) for of in cells]


def _size_times(workspace: Workspace, models: Sequence[Model]) -> Sequence[SizeTimes | Missing]:
    from bricks.session.whole_models import size_changes  # an answer from the cache needs none

    try:
        return size_changes(workspace, models).sizes
    except BricksError as error:
        return [Missing(str(error))] * len(models)


def _failed(models: Mapping[Setting, Models], error: Exception) -> Cells:
    """Cells without an estimate, because of ``error`` or that of a model itself."""
    return {
        setting: [
            PredictedModel(
                model=model.name,
                failure=model.error if isinstance(model, Unread) else str(error),
                setting=setting,
            )
            for model in of
        ]
        for setting, of in models.items()
    }
