"""Advice on candidates for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.analysis.advice import AdvisedSetting, NoSetting, SloAdvice
from bricks.errors import printable
from bricks.report.agreement import agreement_remarks
from bricks.report.answers.words import source_text, uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.figures import count_text, names_text
from bricks.report.tables import seconds
from bricks.session.agreement import NOT_COMPARED
from bricks.session.defaults import RUNTIME
from bricks.session.targets import short_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.studies.serving.hosts import HostRange

# Names in a remark.
_NAMED = 3


def advice_parts(advice: SloAdvice, *, every: bool = False) -> list[RenderableType]:
    """A table of the candidates with their best settings; of ``every`` setting, a second one."""
    best = [of.best for of in advice.candidates if of.best is not None]
    parts: list[RenderableType] = [table_of(best, _columns(advice))]
    if every:
        rows = [of for of in advice.settings if isinstance(of, AdvisedSetting)]
        parts += ["", table_of(rows, [*_columns(advice), *_details()])]
    return parts


def _columns(advice: SloAdvice) -> Sequence[Column[AdvisedSetting]]:
    settings = [of for of in advice.settings if isinstance(of, AdvisedSetting)]
    names = short_names({of.target.system.name for of in settings})
    latency = "latency" if advice.percentile is None else f"p{advice.percentile:g}"
    return [
        Column("model", lambda row: row.model, left=True),
        Column("system", lambda row: names[row.target.system.name], left=True),
        Column("threads", _threads),
        Column("batch", lambda row: None if row.batch is None else str(row.batch)),
        Column(latency, lambda row: f"{seconds(row.latency_s.value)} {_uncertainty(row)}"),
        Column("hosts", lambda row: None if row.hosts is None else hosts_text(row.hosts)),
        Column("meets SLO", lambda row: row.meets_slo.value),
        Column("cost/million", lambda row: _cost(row.cost_per_million)),
    ]


def _details() -> Sequence[Column[AdvisedSetting]]:
    """Further columns of all settings."""
    return [
        Column("runtime", lambda row: row.target.runtime.version, left=True),
        Column("latencies of bricks", lambda row: source_text(row.provenance), left=True),
    ]


def _uncertainty(row: AdvisedSetting) -> str:
    return uncertainty_text(row.latency_s)


def _threads(row: AdvisedSetting) -> str:
    """The threads of an instance, and the instances if there are several: ``1 × 2``."""
    threads = str(row.target.runtime.threads)
    return threads if row.instances == 1 else f"{threads} × {row.instances}"


def hosts_text(hosts: HostRange) -> str | None:
    """The number of hosts, or the range that intervals leave open; None if no number is sure."""
    if hosts.fewest is None or hosts.enough is None:
        return None
    return str(hosts.hosts) if hosts.hosts is not None else f"{hosts.fewest} to {hosts.enough}"


def _cost(cost: float | None) -> str | None:
    return None if cost is None else f"{cost:.3g}"


def advice_remarks(advice: SloAdvice) -> list[str]:
    """Remarks in the order of their weight."""
    differing = agreement_remarks(advice.agreements, runtime=advice.runtime)
    return [
        *differing,
        *_of_unknown(advice),
        *_of_spread(advice),
        *_of_failures(advice),
        *_of_assumptions(advice),
    ]


def _of_unknown(advice: SloAdvice) -> Iterator[str]:
    """A line on models whose outputs with another runtime than the usual nobody has compared."""
    unknown = [
        of for of in advice.agreements
        if RUNTIME in (of.one, of.other) and of.verdict == NOT_COMPARED
    ]  # fmt: skip
    if advice.runtime != RUNTIME and unknown:
        names = names_text(list(dict.fromkeys(of.model for of in unknown)), _NAMED)
        yield (
            f"Whether {advice.runtime} computes what {RUNTIME} does is not known of {names}:"
            f" 'bricks predict MODEL --runtime {RUNTIME},{advice.runtime}' compares their outputs."
        )


def _of_spread(advice: SloAdvice) -> Iterator[str]:
    unknown = [
        of.model for of in advice.candidates if of.best is not None and not of.best.spread_known
    ]
    if unknown and advice.qps is not None:
        yield (
            f"No measured brick tells how single runs of {names_text(unknown, _NAMED)} differ:"
            " their percentiles are of waiting alone."
        )


def _of_failures(advice: SloAdvice) -> Iterator[str]:
    failures = [of for of in advice.settings if isinstance(of, NoSetting)]
    if failures and len(failures) < len(advice.settings):
        settings = count_text(len(failures), "setting")
        yield f"{settings} without an estimate, such as: {printable(failures[0].error)}"


def _of_assumptions(advice: SloAdvice) -> Iterator[str]:
    if advice.qps is not None:
        yield "Processors are taken to be awake; instances not to slow each other down."
