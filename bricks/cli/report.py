"""``bricks report``: the contents of the cache, as one page to look at, send and print."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.caches import refuse_missing_cache
from bricks.cli.command import command
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, note, print_json, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.predict import PROVENANCE
from bricks.cli.reading import read_all
from bricks.cli.remedies import Remedies, width_of, zoo_name
from bricks.cli.workspaces import open_workspace
from bricks.session.targets import systems_called
from bricks.sources import Unread
from bricks.studies.options import option, system_option

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bricks.analysis.cache_summary import CacheSummary, ModelView, TargetView
    from bricks.report.wide_intervals import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The page of a report, the system that it is about, and whether peaks are measured."""

    out: Path = option(
        "The page to write; one file.", default=Path("report.html"), metavar="REPORT.html"
    )
    system: str | None = system_option()
    no_measure: bool = option("Do not even measure the peaks of this machine.", default=False)


@command
def report(options: SurveyOptions, asked: ReportOptions) -> None:
    """Write what the cache knows of models and systems into one HTML file.

    Of the models that are named, or of all that were measured. Nothing is measured but the
    peaks of this machine, if they lack. Example: bricks report --out report.html
    """
    from bricks.analysis.cache_summary import summarise_cache

    check_page(asked.out)
    refuse_missing_cache(options.general.cache)
    with open_workspace(options) as workspace:
        read = read_all(options) if options.models.words else None
        digests = None if read is None else set(read.words)
        targets = _targets(workspace, asked.system, named=read is not None)
        summary = summarise_cache(
            workspace, targets=targets, digests=digests, peaks=not asked.no_measure
        )
        workspace.progress(f"drawing {asked.out}", 1.0)
        words = {} if read is None else read.words
        shown = {
            view.target.key: _shown(view, workspace.target, options, words)
            for view in summary.targets
        }
        size_bytes = _write(asked.out, summary, shown)
    _note_unmeasured(summary)
    if options.general.json:
        print_json(_facts(summary, shown, asked.out))
    else:
        _show(summary, asked.out, size_bytes)
    models = () if read is None else read.models
    finish(model.error for model in models if isinstance(model, Unread))


def _write(
    out: Path, summary: CacheSummary, shown: Mapping[str, Mapping[str, ShownEstimate]]
) -> int:
    """Write the page; its size in bytes."""
    from bricks._version import __version__
    from bricks.report.page import render

    page = render(summary, version=__version__, made=today(), shown=shown)
    write_page(out, page)
    return len(page.encode())


def _note_unmeasured(summary: CacheSummary) -> None:
    for target in summary.unmeasured:
        note(
            f"nothing is measured on {target.system.name} with {target.runtime.backend}"
            f" {target.runtime.version}, threads: {target.runtime.threads}; it is left out"
        )


def _show(summary: CacheSummary, out: Path, size_bytes: int) -> None:
    from bricks.report.figures import count_text

    models = {model.plan.digest for view in summary.targets for model in view.models}
    show(
        f"{out}: {len(models)} models on {count_text(len(summary.targets), 'target')},"
        f" {size_bytes / 1e6:.1f} MB; open it in any browser."
    )


def _targets(workspace: Workspace, system: str | None, *, named: bool) -> Sequence[Target]:
    """The targets of a system, or all of them if ``system`` is None.

    All are those of the cache, without published ones; but published ones are among them if
    models are ``named``, or if the cache has no target.
    """
    own, all_targets = workspace.store.systems.targets(), workspace.known.systems.targets()
    if system is None:
        return all_targets if named or not own else own
    known = (target.system for target in all_targets)
    keys = {called.key for called in systems_called(known, system)}
    return [target for target in all_targets if target.system.key in keys]


def _shown(
    view: TargetView, here: Target, options: SurveyOptions, words: Mapping[str, str]
) -> dict[str, ShownEstimate]:
    """The estimates of a target by model digest; ``words`` name models of the command line."""
    remedies = Remedies.on(view.target, here, "report", options)
    return {
        model.plan.digest: remedies.shown(
            model.title, model.estimate, words.get(model.plan.digest) or zoo_name(model.plan)
        )
        for model in view.models
        if model.estimate is not None
    }


def _facts(
    summary: CacheSummary, shown: Mapping[str, Mapping[str, ShownEstimate]], out: Path
) -> dict[str, Any]:
    return {
        "report": str(out),
        "granularity": summary.granularity,
        "targets": [_target(view, shown[view.target.key]) for view in summary.targets],
        "unmeasured": [target.key for target in summary.unmeasured],
    }


def _target(view: TargetView, shown: Mapping[str, ShownEstimate]) -> dict[str, Any]:
    return {
        "system": view.target.system.to_json(),
        "runtime": view.target.runtime.to_json(),
        "bricks": view.bricks,
        "measured": view.measured,
        "failed": view.failed,
        "peaks": asdict(view.peaks),
        "summary": asdict(view.summary),
        "models": [_model(model, shown.get(model.plan.digest)) for model in view.models],
        "costly": [asdict(brick) for brick in view.costly],
    }


def _model(model: ModelView, shown: ShownEstimate | None) -> dict[str, Any]:
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
        "fastest_s": model.explanation.fastest_s,
        "measured_latency_s": None if measured is None else measured.value,
        "ratio": model.ratio,
        **{name: None if estimate is None else getattr(estimate, name) for name in PROVENANCE},
        **width_of(shown),
    }
