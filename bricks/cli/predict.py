"""``bricks predict``: the latency of models, recomposed from their bricks, in any settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from bricks.cli.command import command
from bricks.cli.options import (
    DetailOptions,
    EstimateOptions,
    TargetOptions,
    no_measure_option,
)
from bricks.cli.output import finish, note, print_json, show_answer
from bricks.cli.reading import ReadModels, read_all, warn_of_crowding, warn_of_denormals
from bricks.cli.remedies import Remedies
from bricks.cli.sweep_options import ALL, HERE, SweepOptions, in_setting
from bricks.cli.workspaces import open_workspace, runtime_of
from bricks.errors import BackendError, BricksError, UsageError
from bricks.session.defaults import refuse_crowding
from bricks.session.targets import systems_called, target_called
from bricks.sources import Unread
from bricks.studies.options import option
from bricks.zoo import is_entry

if TYPE_CHECKING:
    from concurrent.futures import Future

    from bricks.graph.model import Model
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
    from bricks.studies.inference.settings import Setting
    from bricks.system import Target

Predicted = TypeVar("Predicted", bound="PredictedModel")


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictOptions(SweepOptions):
    """The settings of models, and whether missing bricks are measured."""

    no_measure: bool = no_measure_option()
    now: bool = option(
        "Answer for the present speed of this host too: takes some seconds.", default=False
    )


@command
def predict(options: EstimateOptions, asked: PredictOptions, detail: DetailOptions) -> None:
    """Predict how fast models run, from measurements of their bricks.

    Bricks without a measurement are measured first; or predicted, where there are enough to learn
    from and --no-measure, --effort or --budget say so. Lists, as in --threads 1,2 --batch 1,8,
    compare all their combinations. With --sizes, the distribution over a mix of sizes, and what a
    change of size costs. --on asks about known systems, and measures nothing there. With --all,
    also how much memory the models need. Example: bricks predict resnet50 --threads 2
    """
    from bricks.analysis.ranking import predicted_orders
    from bricks.report.latency_answers import prediction_answer
    from bricks.units.facts import json_of

    if asked.now and asked.elsewhere:
        raise UsageError("--now is for this host: leave out --on")
    asked.check_sizes()
    options = replace(options, runtime=replace(options.runtime, name=runtime_of(options)))
    reader = _Reader(options)
    if asked.elsewhere and any(map(is_entry, options.models.words)):
        reader.begin(asked.axes(options).settings[0])
    with _first_workspace(options, asked) as workspace:
        memory = options.general.json or detail.every
        result = _predictions(workspace, reader, options, asked, memory=memory)
        here = workspace.target
    shown = [
        _shown(of, asked.typed(options, of.setting), here, reader, result.dimensions)
        for of in result.models
    ]
    answer = prediction_answer(result)
    if options.general.json:
        advised = tuple(map(with_advice, result.models, shown))
        facts = json_of(replace(result, models=advised))
        print_json({"answer": answer, **facts, "orders": json_of(predicted_orders(result))})
    elif result.estimated or (detail.every and any(of.memory for of in result.models)):
        estimates = [estimate for estimate in shown if estimate is not None]
        _show(answer, result, estimates, reader.words, every=detail.every)
    finish(result.errors)


@dataclass(slots=True)
class _Reader:
    """Reads the models of a command line, once for each runtime and batch.

    ``words`` are those that name the models, by the models' names.
    """

    options: EstimateOptions
    words: dict[str, str] = field(default_factory=dict)
    _models: dict[Setting, Sequence[Model | Unread]] = field(default_factory=dict)
    _begun: dict[Setting, Future[ReadModels]] = field(default_factory=dict)
    _assumed: dict[str, str] = field(default_factory=dict)
    _inspected: set[str] = field(default_factory=set)

    def begin(self, setting: Setting) -> None:
        """Read the models for ``setting`` in the background.

        For programs of the user: a worker records them for seconds, while this process loads.
        """
        from concurrent.futures import Future

        begun: Future[ReadModels] = Future()
        self._begun[_key(setting)] = begun
        options = in_setting(self.options, setting)
        # A daemon: a command that fails meanwhile must not wait for it.
        Thread(target=_fulfil, args=(begun, self._read(options)), daemon=True).start()

    def __call__(self, setting: Setting) -> Sequence[Model | Unread]:
        key = _key(setting)
        if key not in self._models:
            begun = self._begun.pop(key, None)
            options = in_setting(self.options, setting)
            read = self._read(options)() if begun is None else begun.result()
            self._models[key] = read.models
            for model in read.models:
                if not isinstance(model, Unread) and model.name not in self._inspected:
                    self._inspected.add(model.name)
                    warn_of_denormals(model)
            self.words |= {model.name: word for model in read.models if (word := read.word(model))}
        return self._models[key]

    def _read(self, options: EstimateOptions) -> Callable[[], ReadModels]:
        return partial(read_all, options, assumed=self._assumed)


def _key(setting: Setting) -> Setting:
    """What decides how models are read."""
    return replace(setting, system=None, threads=None)


def _fulfil(future: Future[ReadModels], read: Callable[[], ReadModels]) -> None:
    try:
        future.set_result(read())
    except BaseException as error:  # raised where the result is asked for
        future.set_exception(error)


@contextmanager
def _first_workspace(options: EstimateOptions, asked: PredictOptions) -> Iterator[Workspace]:
    """The workspace of the first setting whose runtime is installed."""
    *others, last = asked.axes(options).settings
    opening = partial(open_workspace, elsewhere=asked.elsewhere)
    with ExitStack() as opened:
        for setting in others:
            with suppress(BackendError, UsageError):  # the sweep says why it has no estimate
                workspace = opened.enter_context(opening(in_setting(options, setting)))
                break
        else:
            workspace = opened.enter_context(opening(in_setting(options, last)))
        yield workspace


def _predictions(
    workspace: Workspace,
    reader: _Reader,
    options: EstimateOptions,
    asked: PredictOptions,
    *,
    memory: bool,
) -> ModelPredictions:
    from bricks.studies.inference.sweep import Sweep

    warn_of_crowding(workspace.target, options.parallel.workers)
    axes = asked.axes(options, _systems(workspace, asked.systems))
    first, *more = axes.settings
    at_once = not (asked.no_measure or options.general.json or more or first.system)
    if not (more or first.system):
        refuse_crowding(workspace.target)
    if at_once and options.measuring.budget_s is None:
        _answer_at_once(workspace, reader(first))
    sweep = Sweep(axes=axes, read=reader, measure=not asked.no_measure, notice=note, memory=memory,
                  now=asked.now, mix=asked.sizes or ())  # fmt: skip
    result = sweep.predicted(workspace)
    return result if asked.systems != (ALL,) else result.on_known()


def _systems(workspace: Workspace, asked: Sequence[str] | None) -> Sequence[str | None]:
    """The systems that are asked about, None for this host.

    Raises :class:`NameUnknown` for a system that is not known.
    """
    if asked is None:
        return [None]
    known = [target.system for target in workspace.known.systems.targets()]
    if tuple(asked) == (ALL,):
        if not known:
            raise UsageError("no system is known yet: 'bricks cache import' results of others")
        return list(dict.fromkeys(system.key for system in known))
    for name in asked:
        if name != HERE:
            systems_called(known, name)
    return [None if name == HERE else name for name in asked]


def asked_target(workspace: Workspace, options: EstimateOptions, asked: TargetOptions) -> Target:
    """The target of ``asked``; refuses more threads than this host has processors."""
    if asked.system is not None:
        target = target_called(workspace, asked.system)
    else:
        target = workspace.target
    warn_of_crowding(target, options.parallel.workers)
    if asked.system is None:
        refuse_crowding(target)
    return target


def shown_with(
    remedies: Remedies, of: PredictedModel, word: str | None, setting: str = ""
) -> ShownEstimate | None:
    """An estimate with the command that would narrow its interval; None without an estimate.

    ``setting`` are words that follow the model's name where others of its estimates are shown too.
    """
    from bricks.compose.estimate import Estimate

    if not isinstance(of.estimate, Estimate):
        return None
    return remedies.shown(f"{of.model} {setting}".rstrip(), of.estimate, word)


def with_advice(of: Predicted, shown: ShownEstimate | None) -> Predicted:
    """The same model, with advice in words if its interval is wide."""
    from bricks.report.wide_intervals import advice

    return of if shown is None else replace(of, advice=advice(shown))


def _shown(
    of: PredictedModel,
    options: EstimateOptions,
    here: Target,
    reader: _Reader,
    dimensions: Sequence[str],
) -> ShownEstimate | None:
    """An estimate with the command that would narrow its interval, with these ``options``.

    ``dimensions`` are those in which the settings of a sweep differ.
    """
    from bricks.report.words import setting_text

    target = of.setting.target
    if target is None:
        return None
    remedies = replace(Remedies.on(target, here, "predict", options), now=of.usual_s is not None)
    where = setting_text(of.setting, dimensions)
    return shown_with(remedies, of, reader.words.get(of.model), where)


def _show(
    answer: str,
    result: ModelPredictions,
    shown: Sequence[ShownEstimate],
    words: Mapping[str, str],
    *,
    every: bool,
) -> None:
    from bricks.report.agreement import agreement_remarks, unknown_agreements
    from bricks.report.prediction import (
        branch_remarks,
        changing_remarks,
        host_remarks,
        memory_remarks,
        now_remarks,
        phase_lines,
        quota_remarks,
        run_remarks,
    )
    from bricks.report.sweep import mix_remarks, prediction_parts
    from bricks.report.wide_intervals import estimate_lines

    remarks = agreement_remarks(result.agreements, words) + estimate_lines(
        shown, sources=result.swept
    )
    if not result.swept:
        for of in result.estimated:
            remarks += quota_remarks(of.model, of.latency_s, of.setting.target)
    by_inputs = ((*branch_remarks(of), *now_remarks(of)) for of in result.models)
    remarks[:0] = [line for lines in by_inputs for line in lines]
    remarks += changing_remarks(result.models)
    if every:
        remarks += unknown_agreements(result.agreements)
        remarks += [line for of in result.models for line in phase_lines(of.model, of.phases)]
        remarks += [line for of in result.models for line in run_remarks(of)]
        remarks += [line for of in result.models for line in memory_remarks(of)]
    remarks = [*mix_remarks(result.mixes), *remarks]
    parts = prediction_parts(result, every=every)
    remarks += host_remarks(result.models, every=every)
    show_answer(answer, *parts, remarks=remarks, every=every)


# Answers before anything is measured: more than these would be slower than some measurements.
_AT_ONCE = 3


def _answer_at_once(workspace: Workspace, models: Sequence[Model | Unread]) -> None:
    """Print estimates by measurements of other hosts, before this new host is measured.

    A second of its reference kernels says how fast it is compared with them.
    Nothing is printed once this host has measurements: learning from them takes longer than
    measuring a few more bricks. Nothing is printed without measurements of others.
    """
    from bricks.compose.estimate import Estimate
    from bricks.report.words import value_text
    from bricks.session import predicting
    from bricks.session.predicting import present_conditions
    from bricks.studies.inference.predicting import decomposable

    if workspace.store.measurements.costs(workspace.target.key):
        return
    workspace.plans.save_target()  # others with its runtime are preferred
    if workspace.estimators.latencies().borrows_unscaled:
        present_conditions(workspace)
    for model in decomposable(workspace, models[:_AT_ONCE]):
        with suppress(BricksError):  # said where it is measured
            estimate = predicting.predict(workspace, model, measure=False)
            if isinstance(estimate, Estimate):
                note(
                    f"{model.name}: {value_text(estimate.latency_s)} by measurements of others;"
                    " measuring it here"
                )


# Where an estimate comes from: shares of it that add up to 1.
PROVENANCE = ("measured_share", "published_share", "predicted_share")
