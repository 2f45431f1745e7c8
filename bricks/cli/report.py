"""``bricks report``: what the cache knows of models, as one page to look at, send and print."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.caches import refuse_missing_cache
from bricks.cli.command import command
from bricks.cli.options import CommonOptions, GeneralOptions, RuntimeOptions, SurveyedModels
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.predict import PROVENANCE
from bricks.cli.reading import read_all
from bricks.cli.remedies import Remedies, width_of, zoo_name
from bricks.cli.report_choice import ReportOptions, surveyed_by
from bricks.cli.workspaces import open_workspace
from bricks.errors import UsageError
from bricks.session.defaults import RUNTIME
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.analysis.latency_survey import LatencySurvey, SurveyedModel, SurveyedTarget
    from bricks.cli.reading import ReadModels
    from bricks.decompose.plan import Plan
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.system import Target


@command
def report(general: GeneralOptions, models: SurveyedModels, asked: ReportOptions) -> None:
    """Write one HTML page: which models are slow, which are uncertain, where time goes.

    Of models that are named, or of all that were measured; nothing is measured. Published
    measurements count too for models or systems that are named, or where there are no others.
    Example: bricks report --out report.html
    """
    from bricks.report.answers.latencies import report_answer

    check_page(asked.out)
    refuse_missing_cache(general.cache)
    options = _options(general, models, asked)
    elsewhere = asked.systems is not None  # whose runtime need not be installed here
    with open_workspace(options, elsewhere=elsewhere) as workspace, _all_objects_kept():
        read = _read(options)
        if read is not None and not read.words:
            finish(_errors(read))
        surveyed = surveyed_by(workspace, asked, models, read)
        workspace.progress(f"drawing {asked.out}", 1.0)
        words = {} if read is None else _words(read)
        shown = {
            view.target.key: _shown(view, workspace.target, options, words)
            for view in surveyed.targets
        }
        size_bytes = _write(asked.out, surveyed, shown)
    answer = report_answer(surveyed)
    if general.json:
        print_json(_facts(answer, surveyed, shown, asked.out, size_bytes))
    else:
        _show(answer, surveyed, asked.out, size_bytes)
    _note_unmeasured(surveyed)
    finish(() if read is None else _errors(read))


def _words(read: ReadModels) -> dict[str, str]:
    """The words that name models, by digest; by name for their calls on an accelerator."""
    named = {model.name: word for model in read.models if (word := read.word(model)) is not None}
    return named | dict(read.words)


def _errors(read: ReadModels) -> list[str]:
    """A line for each model that cannot be read."""
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


def _options(
    general: GeneralOptions, models: SurveyedModels, asked: ReportOptions
) -> CommonOptions:
    """The options that models are read with, and that a workspace is opened with."""
    runtime = RuntimeOptions(
        name=asked.runtimes[0] if asked.runtimes else RUNTIME,
        granularity=asked.granularity,
        threads=asked.threads[0] if asked.threads else None,
    )
    return CommonOptions(general=general, models=models, runtime=runtime)


def _read(options: CommonOptions) -> ReadModels | None:
    """The models that are named; None without any."""
    if options.models.words:
        return read_all(options)
    models = options.models
    if models.shape or models.value or models.inputs is not None:
        raise UsageError("--shape, --value and --inputs change models that are named: name one")
    return None


def _write(
    out: Path, survey: LatencySurvey, shown: Mapping[str, Mapping[str, ShownEstimate]]
) -> int:
    """Write the page; its size in bytes."""
    from bricks._version import __version__
    from bricks.report.latency_page import latency_page

    page = latency_page(survey, version=__version__, made=today(), shown=shown)
    write_page(out, page)
    return len(page.encode())


def _note_unmeasured(survey: LatencySurvey) -> None:
    for target in survey.unmeasured:
        note(
            f"nothing is measured on {target.system.name} with {target.runtime.backend}"
            f" {target.runtime.version}, threads: {target.runtime.threads}; it is left out"
        )


def _show(answer: str, survey: LatencySurvey, out: Path, size_bytes: int) -> None:
    from bricks.report.latency_page import extent_text

    show(f"{out}: {extent_text(survey)}, {size_bytes / 1e3:.0f} KB", answer)


def _shown(
    view: SurveyedTarget, here: Target, options: CommonOptions, words: Mapping[str, str]
) -> dict[str, ShownEstimate]:
    """The estimates of a target by model digest; ``words`` name models of the command line."""
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
