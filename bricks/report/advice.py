"""Advice on candidates: in one sentence, and as tables for terminals. Must not compute results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.analysis.advice import AdvisedSetting, NoSetting, SloAdvice
from bricks.compose.slo import MeetsSlo
from bricks.errors import printable
from bricks.report.agreement import agreement_remarks, differing
from bricks.report.tables import Column, part_column, seconds, table_of
from bricks.report.words import (
    count_text,
    listed,
    names_text,
    slo_text,
    source_text,
    uncertainty_text,
    verb,
)
from bricks.session.agreement import NOT_COMPARED
from bricks.session.defaults import RUNTIME
from bricks.session.targets import short_names

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.analysis.advice import Candidate, Deciding
    from bricks.studies.serving.hosts import HostRange

# Names in a remark.
_NAMED = 3


def advice_parts(advice: SloAdvice, *, every: bool = False) -> list[RenderableType]:
    """A table of the candidates with their best settings; of ``every`` setting, a second one."""
    best = [of.best for of in advice.candidates if of.best is not None]
    parts: list[RenderableType] = [table_of(best, _columns(advice))]
    if every:
        rows = [of for of in advice.settings if isinstance(of, AdvisedSetting)]
        details: list[Column[AdvisedSetting]] = [
            Column("runtime", lambda row: row.target.runtime.version, left=True),
            Column("latencies of bricks", lambda row: source_text(row.provenance), left=True),
        ]
        parts += ["", table_of(rows, [*_columns(advice), *details])]
    return parts


def _columns(advice: SloAdvice) -> Sequence[Column[AdvisedSetting]]:
    settings = [of for of in advice.settings if isinstance(of, AdvisedSetting)]
    names = short_names({of.target.system.name for of in settings})
    latency = "latency" if advice.percentile is None else f"p{advice.percentile:g}"
    return [
        Column("model", lambda row: row.model, left=True),
        Column("system", lambda row: names[row.target.system.name], left=True),
        Column("threads", _threads),
        part_column("batch", lambda row: row.batch, str),
        Column(
            latency, lambda row: f"{seconds(row.latency_s.value)} {uncertainty_text(row.latency_s)}"
        ),
        part_column("hosts", lambda row: row.hosts, hosts_text),
        Column("meets SLO", lambda row: row.meets_slo.value),
        part_column("cost/million", lambda row: row.cost_per_million, "{:.3g}".format),
    ]


def _threads(row: AdvisedSetting) -> str:
    """The threads of an instance, and the instances if there are several: ``1 × 2``."""
    threads = str(row.target.runtime.threads)
    return threads if row.instances == 1 else f"{threads} × {row.instances}"


def hosts_text(hosts: HostRange) -> str | None:
    """The number of hosts, or the range that intervals leave open; None if no number is sure."""
    if hosts.fewest is None or hosts.enough is None:
        return None
    return str(hosts.hosts) if hosts.hosts is not None else f"{hosts.fewest} to {hosts.enough}"


def advice_remarks(advice: SloAdvice) -> list[str]:
    """Remarks in the order of their weight."""
    remarks = list(agreement_remarks(advice.agreements, runtime=advice.runtime))
    unknown = [
        of.model for of in advice.agreements
        if RUNTIME in (of.one, of.other) and of.verdict == NOT_COMPARED
    ]  # fmt: skip
    if advice.runtime != RUNTIME and unknown:
        names = names_text(list(dict.fromkeys(unknown)), _NAMED)
        remarks.append(
            f"Whether {advice.runtime} computes what {RUNTIME} does is not known of {names}:"
            f" 'bricks predict MODEL --runtime {RUNTIME},{advice.runtime}' compares their outputs."
        )
    spreads = [
        of.model for of in advice.candidates if of.best is not None and not of.best.spread_known
    ]
    if spreads and advice.qps is not None:
        remarks.append(
            f"No measured brick tells how single runs of {names_text(spreads, _NAMED)} differ:"
            " their percentiles are of waiting alone."
        )
    failures = [of for of in advice.settings if isinstance(of, NoSetting)]
    if failures and len(failures) < len(advice.settings):
        settings = count_text(len(failures), "setting")
        first = printable(failures[0].error)
        remarks.append(f"{settings} without an estimate, such as: {first}")
    if advice.qps is not None:
        remarks.append("Processors are taken to be awake; instances not to slow each other down.")
    return remarks


# So many candidates are named; of more, they are counted.
NAMED = 5

_NUMBERS = (
    "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
)  # fmt: skip


def advice_text(advice: SloAdvice) -> str:
    """The sentence that answers: who meets the SLO, who is undecided, and what decides it."""
    known = [candidate for candidate in advice.candidates if candidate.best is not None]
    if not known:
        return f"No candidate has an estimate that {bound_text(advice)} could be compared with."
    clauses = _named(advice, known) if len(known) <= NAMED else _counted(advice, known)
    but = differing(advice.agreements, advice.runtime, models=len(known))
    return f"{'; '.join(clauses)}{but}."


def bound_text(advice: SloAdvice) -> str:
    """The SLO: ``20 ms at 50/s (p99)``."""
    rate = "" if advice.qps is None else f" at {advice.qps:g}/s"
    percentile = "" if advice.percentile is None else f" (p{advice.percentile:g})"
    return f"{slo_text(advice.slo_s)}{rate}{percentile}"


def _named(advice: SloAdvice, candidates: Sequence[Candidate]) -> Iterator[str]:
    meeting = [of for of in candidates if of.meets_slo is MeetsSlo.YES]
    bound = bound_text(advice)
    said = ""
    groups: dict[int, list[Candidate]] = defaultdict(list)
    for candidate in meeting:
        groups[0 if candidate.range is None else candidate.range.hosts or 0].append(candidate)
    for hosts, group in sorted(groups.items()):
        place = _place(group, candidates)
        yield _meeting(group, hosts, bound) + (place if place != said else "")
        bound, said = "", place
    undecided = [of for of in candidates if of.undecided]
    yield from _undecided(advice, undecided, bound)
    if missing := [of for of in candidates if of.meets_slo is MeetsSlo.NO]:
        place, systems = "", _systems(candidates)
        if len(missing) == len(candidates):
            place = f" on {printable(*systems)}" if len(systems) == 1 else " on any known system"
        yield _missing(missing, bound if not undecided else "") + place


def _meeting(group: Sequence[Candidate], hosts: int, bound: str) -> str:
    """``c1 and c2 meet 20 ms at 50/s on one host``; ``c3 needs two`` where the bound is said."""
    names, count = _names(group), len(group)
    if not bound:
        return f"{names} {verb(count, 'needs', 'need')} {number_text(hosts)}"
    on = f" on {number_text(hosts)} host{'' if hosts == 1 else 's'}" if hosts else ""
    return f"{names} {verb(count, 'meets', 'meet')} {bound}{on}"


def _place(group: Sequence[Candidate], candidates: Sequence[Candidate]) -> str:
    """Where a group is best: the only system of all, or the one that is best for the group."""
    names = {of.best.target.system.name for of in group if of.best is not None}
    if len(names) > 1:
        return ""
    (name,) = map(printable, names)
    if len(_systems(candidates)) == 1:
        return f" on {name}"
    priced = all(of.best is not None and of.best.cost_per_million is not None for of in group)
    return f", {'cheapest' if priced else 'fastest'} on {name}"


def _systems(candidates: Sequence[Candidate]) -> set[str]:
    return {setting.target.system.name for of in candidates for setting in of.settings}


def _undecided(advice: SloAdvice, candidates: Sequence[Candidate], bound: str) -> Iterator[str]:
    rest = {of.model: of for of in candidates}
    about = f" about {bound}" if bound else ""
    for deciding in advice.deciding:
        group = [rest.pop(name) for name in deciding.models if name in rest]
        if group:
            yield f"{_open(group)}{about}: {deciding_text(deciding)} decides"
            about = ""
    if rest:
        yield f"{_open([*rest.values()])}{about}"


def _open(group: Sequence[Candidate]) -> str:
    """``c4 is uncertain``, or ``c4 needs one or two hosts`` where one of these does."""
    ranges = {of.range for of in group}
    known = next(iter(ranges))
    if len(ranges) == 1 and known is not None and known.enough is not None:
        assert known.fewest is not None
        between = "or" if known.enough == known.fewest + 1 else "to"
        hosts = f"{number_text(known.fewest)} {between} {number_text(known.enough)} hosts"
        return f"{_names(group)} {verb(len(group), 'needs', 'need')} {hosts}"
    return f"{_names(group)} {verb(len(group), 'is', 'are')} uncertain"


def deciding_text(deciding: Deciding) -> str:
    """``bricks measure c4`` in quotes, where it runs, and how long it takes."""
    where = "" if deciding.system is None else f" on {printable(deciding.system)}"
    wall_s, cost = deciding.wall_s, ""
    if wall_s is not None:
        cost = f" ({max(1, round(wall_s))} s)" if wall_s < 90 else f" ({round(wall_s / 60)} min)"
    return f"`{printable(deciding.command)}`{where}{cost}"


def _missing(group: Sequence[Candidate], bound: str) -> str:
    does = f"{_names(group)} {verb(len(group), 'does', 'do')} not"
    return f"{does} meet {bound}" if bound else does


def _counted(advice: SloAdvice, candidates: Sequence[Candidate]) -> Iterator[str]:
    meeting = [of for of in candidates if of.meets_slo is MeetsSlo.YES]
    best = "" if not meeting else f", best {_best(meeting[0])}"
    yield (
        f"{len(meeting) or 'None'} of {len(candidates)} candidates"
        f" {verb(len(meeting) or 1, 'meets', 'meet')} {bound_text(advice)}{best}"
    )
    undecided = sum(of.undecided for of in candidates)
    if undecided:
        yield f"{undecided} {verb(undecided, 'is', 'are')} uncertain"


def _best(candidate: Candidate) -> str:
    best = candidate.best
    assert best is not None
    latency_s, count = best.latency_s, None if best.hosts is None else best.hosts.hosts
    parts = [seconds(latency_s.value), uncertainty_text(latency_s)]
    if count is not None:
        parts.append(f"{number_text(count)} host{'' if count == 1 else 's'}")
    place = printable(best.target.system.name)
    return f"{printable(candidate.model)} on {place} ({', '.join(parts)})"


def _names(group: Sequence[Candidate]) -> str:
    return listed([printable(of.model) for of in group])


def number_text(count: int) -> str:
    """A count as a word up to ten: ``two``; else in digits."""
    return _NUMBERS[count] if count < len(_NUMBERS) else f"{count:,}"
