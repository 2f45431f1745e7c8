"""``bricks report``: what the cache knows of models, as one page to look at, send and print."""

from __future__ import annotations

import gc
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import (
    RUNNING,
    CommonOptions,
    GeneralOptions,
    RuntimeOptions,
    SurveyedModels,
    granularity_option,
)
from bricks.cli.output import check_page, finish, note, print_json, show, today, write_page
from bricks.cli.predict import PROVENANCE
from bricks.cli.reading import read_all
from bricks.cli.remedies import Remedies, width_of, zoo_name
from bricks.cli.workspaces import open_workspace, refuse_missing_cache
from bricks.errors import BricksError, StoreError, UsageError
from bricks.session.defaults import GRANULARITY, MAX_THREADS, RUNTIME
from bricks.session.targets import short_names, systems_called
from bricks.sources import Unread
from bricks.studies.options import option, systems_option

if TYPE_CHECKING:
    from bricks.analysis.latency_survey import LatencySurvey, SurveyedModel, SurveyedTarget
    from bricks.cli.reading import ReadModels
    from bricks.decompose.plan import Plan
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# An error names so many systems, and so many batches.
_MOST = 3


def _listed(flag: str, text: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    if not all(words):
        raise UsageError(f"{flag} {text}: a name is empty")
    return words


def _counts(flag: str, text: str) -> tuple[int, ...]:
    words = _listed(flag, text)
    for word in words:
        if not (word.isdecimal() and 1 <= int(word) <= MAX_THREADS):
            raise UsageError(f"{flag} {text}: {word} is no number from 1 to {MAX_THREADS}")
    return tuple(map(int, words))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The page of a report, and the systems, runtimes and threads that it is about; None: all."""

    out: Path = option(
        "The page to write; one file.", default=Path("report.html"), metavar="REPORT.html"
    )
    systems: Sequence[str] | None = systems_option("Only these systems.", "SYSTEM,…|all")
    runtimes: Sequence[str] | None = option(
        "Only these runtimes.",
        default=None, flag="--runtime", metavar="NAME,…", values="runtimes", read=_listed,
        group=RUNNING,
    )  # fmt: skip
    threads: Sequence[int] | None = option(
        "Only with these numbers of threads.",
        default=None, metavar="N,…", read=_counts, group=RUNNING,
    )  # fmt: skip
    granularity: str = granularity_option()


def surveyed_by(
    workspace: Workspace, asked: ReportOptions, models: SurveyedModels, read: ReadModels | None
) -> LatencySurvey:
    """The models and targets that the options choose.

    Raises :class:`StoreError`, which says what there is to choose from, if they choose nothing.
    """
    from bricks.analysis.latency_survey import survey

    wanted = _wanted(models, read)
    candidates = _candidates(workspace, asked, named=read is not None)
    chosen = [each for each in candidates if _chosen(each, asked)]
    translated = {} if read is None else _translated(workspace, chosen, read)
    try:
        return survey(workspace, chosen, wanted, translated)
    except StoreError as error:
        raise StoreError(_nothing(workspace, models, read)) from error


def _translated(
    workspace: Workspace, targets: Sequence[Target], read: ReadModels
) -> dict[str, list[Plan]]:
    """The plans of named programs on targets with an accelerator, by key of the target.

    Programs without a plan there are left out, and those whose recording there was named.
    """
    found: dict[str, list[Plan]] = defaultdict(list)
    models = [model for model in read.models if not isinstance(model, Unread)]
    for target in targets:
        for model in models if target.system.accelerator is not None else ():
            with suppress(BricksError):  # an ONNX model, or calls that no rule translates
                plan = workspace.plans.plan(model, target=target)
                if plan.digest not in read.words:
                    found[target.key].append(plan)
    return found


def _wanted(models: SurveyedModels, read: ReadModels | None) -> Callable[[Plan], bool]:
    """Whether a plan is one of the models that are named, or has the batch that is."""
    if read is not None:
        digests = set(read.words)
        return lambda plan: plan.digest in digests
    batch = models.batch
    return lambda plan: batch is None or _batch_of(plan) == batch


def _batch_of(plan: Plan) -> int | None:
    """The first dimension of the first input that has one."""
    shapes = (getattr(plan.types[value], "shape", ()) for value in plan.inputs)
    return next((int(shape[0]) for shape in shapes if shape), None)


def _candidates(workspace: Workspace, asked: ReportOptions, *, named: bool) -> list[Target]:
    """The targets on the systems of the options.

    Without systems these are targets of the cache; published ones are among them if models are
    ``named``, or if the cache has no target.
    """
    own, every = workspace.store.systems.targets(), workspace.known.systems.targets()
    if asked.systems is None:
        return every if named or not own else own
    if "all" in asked.systems:
        return every
    systems = [target.system for target in every]
    keys = {system.key for name in asked.systems for system in systems_called(systems, name)}
    return [target for target in every if target.system.key in keys]


def _chosen(target: Target, asked: ReportOptions) -> bool:
    runtime = target.runtime
    return (asked.runtimes is None or runtime.backend in asked.runtimes) and (
        asked.threads is None or runtime.threads in asked.threads
    )


def _nothing(workspace: Workspace, models: SurveyedModels, read: ReadModels | None) -> str:
    """The error of options that choose nothing: what there is to choose from, or what measures."""
    names = None if read is None else {m.name for m in read.models if not isinstance(m, Unread)}
    words = shlex.join(models.words)
    subject = "no such model is" if read is None else f"{words} is not"
    for cut in dict.fromkeys([str(workspace.granularity), GRANULARITY]):
        if there := _settings(workspace, names, cut):
            return f"{subject} measured with these options: there is {_text(there, cut)}"
    if read is None:
        return "nothing is measured yet: 'bricks measure' does"
    return f"{subject} measured: 'bricks measure {words}' does"


def _text(there: _Settings, cut: str) -> str:
    names = short_names({system for system, _ in there.threads})
    settings = [
        f"{backend} with {_either(sorted(threads))} {'thread' if threads == {1} else 'threads'}"
        f" on {names[system]}"
        for (system, backend), threads in there.threads.items()
    ]
    return f"{_either(settings)}, batch {_either(sorted(there.batches))}, granularity {cut}"


@dataclass(frozen=True, slots=True)
class _Settings:
    """Numbers of threads by name of a system and runtime, and batches."""

    threads: Mapping[tuple[str, str], set[int]]
    batches: set[int]

    def __bool__(self) -> bool:
        return bool(self.threads)


def _settings(workspace: Workspace, names: set[str] | None, cut: str) -> _Settings:
    """The settings in which models with these ``names``, or any, are measured."""
    threads: dict[tuple[str, str], set[int]] = defaultdict(set)
    batches: set[int] = set()
    own = workspace.store.systems.targets() if names is None else []
    for target in own or workspace.known.systems.targets():
        plans = [plan for plan, _ in workspace.known.plans.all(target.key, cut)]
        plans = [plan for plan in plans if names is None or plan.model in names]
        if plans and workspace.known.measurements.costs(target.key):
            threads[target.system.name, target.runtime.backend].add(target.runtime.threads)
            batches |= {batch for plan in plans if (batch := _batch_of(plan)) is not None}
    return _Settings(threads, batches)


def _either(values: Iterable[int | str]) -> str:
    from bricks.report.words import listed

    names = [str(value) for value in values]
    more = ["others"] if len(names) > _MOST else []
    return listed([*names[:_MOST], *more], "or")


@command
def report(general: GeneralOptions, models: SurveyedModels, asked: ReportOptions) -> None:
    """Write one HTML page: which models are slow, which are uncertain, where time goes.

    Of models that are named, or of all that were measured; nothing is measured. Published
    measurements count too for models or systems that are named, or where there are no others.
    Example: bricks report --out report.html
    """
    from bricks._version import __version__
    from bricks.report.latency_answers import report_answer
    from bricks.report.latency_page import extent_text, latency_page

    check_page(asked.out)
    refuse_missing_cache(general.cache)
    runtime = RuntimeOptions(
        name=asked.runtimes[0] if asked.runtimes else RUNTIME,
        granularity=asked.granularity,
        threads=asked.threads[0] if asked.threads else None,
    )
    options = CommonOptions(general=general, models=models, runtime=runtime)
    elsewhere = asked.systems is not None  # whose runtime need not be installed here
    with open_workspace(options, elsewhere=elsewhere) as workspace, _all_objects_kept():
        read = _read(options)
        if read is not None and not read.words:
            finish(_errors(read))
        surveyed = surveyed_by(workspace, asked, models, read)
        workspace.progress(f"drawing {asked.out}", 1.0)
        words: dict[str, str] = {}
        if read is not None:
            named = ((model.name, read.word(model)) for model in read.models)
            words = {name: word for name, word in named if word is not None}
            words |= read.words
        shown = {
            view.target.key: _shown(view, workspace.target, options, words)
            for view in surveyed.targets
        }
        page = latency_page(surveyed, version=__version__, made=today(), shown=shown)
        write_page(asked.out, page)
        size_bytes = len(page.encode())
    answer = report_answer(surveyed)
    if general.json:
        print_json(_facts(answer, surveyed, shown, asked.out, size_bytes))
    else:
        show(f"{asked.out}: {extent_text(surveyed)}, {size_bytes / 1e3:.0f} KB", answer)
    for target in surveyed.unmeasured:
        note(
            f"nothing is measured on {target.system.name} with {target.runtime.backend}"
            f" {target.runtime.version}, threads: {target.runtime.threads}; it is left out"
        )
    finish(() if read is None else _errors(read))


def _errors(read: ReadModels) -> list[str]:
    return [model.error for model in read.models if isinstance(model, Unread)]


@contextmanager
def _all_objects_kept() -> Iterator[None]:
    """Search for no garbage: a million objects live until the page is written.

    The search would take a fifth of the time.
    """
    collected = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collected:
            gc.enable()


def _read(options: CommonOptions) -> ReadModels | None:
    if options.models.words:
        return read_all(options)
    models = options.models
    if models.shape or models.value or models.inputs is not None:
        raise UsageError("--shape, --value and --inputs change models that are named: name one")
    return None


def _shown(
    view: SurveyedTarget, here: Target, options: CommonOptions, words: Mapping[str, str]
) -> dict[str, ShownEstimate]:
    remedies = Remedies.on(view.target, here, "report", options)

    def word(plan: Plan) -> str | None:
        return words.get(plan.digest) or words.get(plan.model) or zoo_name(plan)

    return {
        model.plan.digest: remedies.shown(model.title, model.estimate, word(model.plan))
        for model in view.models
        if model.estimate is not None
    }


def _facts(
    answer: str,
    survey: LatencySurvey,
    shown: Mapping[str, Mapping[str, ShownEstimate]],
    out: Path,
    size_bytes: int,
) -> dict[str, Any]:
    from bricks.units.facts import facts

    return {
        "answer": answer,
        "report": str(out),
        "size_bytes": size_bytes,
        "granularity": survey.granularity,
        "targets": [_target(view, shown[view.target.key]) for view in survey.targets],
        "unmeasured": [target.key for target in survey.unmeasured],
        "agreements": [facts(of) for of in survey.agreements],
    }


def _target(view: SurveyedTarget, shown: Mapping[str, ShownEstimate]) -> dict[str, Any]:
    return {
        "system": view.target.system.to_json(),
        "runtime": view.target.runtime.to_json(),
        "bricks": view.bricks,
        "measured": view.measured,
        "failed": view.failed,
        "summary": asdict(view.summary),
        "models": [_model(model, shown.get(model.plan.digest)) for model in view.models],
        "costly": [{**asdict(brick), "latency_s": brick.latency_s} for brick in view.costly],
    }


def _model(model: SurveyedModel, shown: ShownEstimate | None) -> dict[str, Any]:
    estimate, measured = model.estimate, model.measured_s
    return {
        "model": model.plan.model,
        "title": model.title,
        "digest": model.plan.digest,
        "occurrences": len(model.plan.occurrences),
        "bricks": len(model.plan.keys),
        "flops": model.flops,
        "weight_bytes": model.weight_bytes,
        "peak_bytes": model.peak_bytes,
        "estimate_s": None if estimate is None else estimate.estimate_s,
        "low_s": None if estimate is None else estimate.low_s,
        "high_s": None if estimate is None else estimate.high_s,
        "measured_latency_s": None if measured is None else measured.value,
        "ratio": model.ratio,
        "operators": [asdict(part) for part in model.operators],
        **{name: None if estimate is None else getattr(estimate, name) for name in PROVENANCE},
        **width_of(shown),
    }
