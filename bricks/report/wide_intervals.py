"""Sentences about wide intervals: their causes, and the command that narrows them.

For people, from the reasons that :mod:`bricks.compose.interval_width` gives; in a report by share
of the width. Must not know how commands are made: the caller brings them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import ErrorSource
from bricks.compose.interval_width import Remedy, WideInterval, narrowing, remedies, wide_interval
from bricks.errors import printable
from bricks.report.tables import (
    SOURCE_SHARE,
    assumed_launching,
    percent,
    predicted,
    share_text,
    throttled,
)
from bricks.report.words import count_text, uncertainty_text

if TYPE_CHECKING:
    from bricks.compose.estimate import Estimate

# Up to this many wide intervals have a line each; of more, those with the same reason share one.
FEW = 3

# Lines about wide intervals below one table.
MAX_LINES = 5

# Models that a line names.
_MAX_NAMED = 3

# From a remedy, and the words that name models on a command line, to a command that can be pasted
# whole; None where nothing is left to run.
Command = Callable[[Remedy, Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class ShownEstimate:
    """An estimate under a title, with the command that narrows its interval.

    ``word`` names the model on a command line, None where no word does. The ``command`` runs on the
    system called ``system_name``; None: on this host.
    """

    title: str
    estimate: Estimate
    word: str | None
    command: Command
    system_name: str | None = None

    @property
    def interval(self) -> WideInterval | None:
        """Why its interval is wide; None if it is not."""
        return wide_interval(self.estimate)


@dataclass(frozen=True, slots=True)
class _WideEstimate:
    shown: ShownEstimate
    interval: WideInterval

    @property
    def main(self) -> ErrorSource:
        return self.interval.reasons[0].source


def advice(shown: ShownEstimate) -> str | None:
    """The sentence about one model; None if its interval is not wide."""
    interval = shown.interval
    return None if interval is None else _single_line(_WideEstimate(shown, interval))


def estimate_lines(shown: Sequence[ShownEstimate], *, sources: bool = True) -> list[str]:
    """Lines below a table of estimates: their provenance, and causes of wide intervals.

    A share that makes an interval wide is not repeated. Without ``sources``, the table tells how
    much is predicted.
    """
    lines = [line for item in shown for line in _assumed(item)]
    for item in shown:
        reasons = () if item.interval is None else item.interval.reasons
        explained = {reason.source for reason in reasons}
        lines += throttled(item.title, item.estimate.device)
        if sources and ErrorSource.PREDICTED not in explained:
            lines += predicted(item.title, item.estimate.predicted_share)
        lines += _published(item)
        if item.estimate.device is not None:
            lines += assumed_launching(item.title, item.estimate.device)
    return [*lines, *wide_lines(shown)]


def _assumed(shown: ShownEstimate) -> list[str]:
    first, *others = shown.estimate.assumed or ("",)
    if not first:
        return []
    more = f" (and {len(others)} more: bricks decompose shows them)" if others else ""
    return [f"{printable(shown.title)}: {printable(first)}{more}."]


def _published(shown: ShownEstimate) -> list[str]:
    share = shown.estimate.published_share
    if share < SOURCE_SHARE or shown.system_name is not None:
        return []
    words = [] if shown.word is None else [shown.word]
    lacking = any(brick_share.published for brick_share in shown.estimate.shares)
    command = shown.command(Remedy.MEASURE if lacking else Remedy.MEASURE_AGAIN, words)
    why = "" if lacking else ", since own samples are too few"
    return [
        f"{printable(shown.title)}: {share_text(share)} is published by others{why}. To measure it"
        f" here: {command}"
    ]


def wide_lines(shown: Sequence[ShownEstimate]) -> list[str]:
    """A line for each wide interval, or for all with the same reason, with the command to run."""
    wide = [
        _WideEstimate(item, interval) for item in shown if (interval := item.interval) is not None
    ]
    if len(wide) <= FEW:
        return [_single_line(item) for item in wide]
    groups: dict[tuple[object, ...], list[_WideEstimate]] = defaultdict(list)
    for item in wide:
        remedy = item.interval.remedy
        # Only models that one command remedies can share a line.
        command = item.shown.command(remedy, [])
        groups[item.main, remedy, command, item.shown.system_name, item.shown.word is None].append(
            item
        )
    ordered = sorted(groups.values(), key=lambda group: -len(group))
    lines = [_group_line(group) if len(group) > 1 else _single_line(group[0]) for group in ordered]
    rest = sum(map(len, ordered[MAX_LINES:]))
    more = [f"{rest} more intervals are wide: --json says why."] if rest else []
    return lines[:MAX_LINES] + more


def _single_line(wide: _WideEstimate) -> str:
    estimates = [wide.shown.estimate]
    causes = [_cause(reason.source, estimates) for reason in wide.interval.reasons]
    why = f"{'mostly ' if len(causes) == 1 else ''}because {', and because '.join(causes)}"
    title = printable(wide.shown.title)
    return f"{title}: the interval is {_width(estimates)}, {why}. {_remedy([wide])}"


def _group_line(group: Sequence[_WideEstimate]) -> str:
    names = ", ".join(printable(item.shown.title) for item in group[:_MAX_NAMED])
    more = ", …" if len(group) > _MAX_NAMED else ""
    estimates = [item.shown.estimate for item in group]
    return (
        f"{len(group)} estimates ({names}{more}): the intervals are {_width(estimates)}, mostly"
        f" because {_cause(group[0].main, estimates)}. {_remedy(group)}"
    )


def _cause(source: ErrorSource, estimates: Sequence[Estimate]) -> str:
    of_it = "of the estimate" if len(estimates) == 1 else "of each estimate"
    match source:
        case ErrorSource.PREDICTED if any(estimate.device for estimate in estimates):
            share = _range([e.predicted_share for e in estimates], digits=1)
            return f"{share} {of_it} is predicted from other calls or from another card"
        case ErrorSource.PREDICTED:
            share = _range([e.predicted_share for e in estimates], digits=1)
            return f"{share} {of_it} is predicted from bricks of other models"
        case ErrorSource.CONDITIONS:
            return "the speed of this host changes from minute to minute"
        case ErrorSource.OTHER_HOST:
            share = _range([e.published_share for e in estimates])
            return f"{share} {of_it} was measured by others, on hosts of this kind"
        case ErrorSource.SAMPLES:
            return "samples of bricks are few, or differ much"
        case ErrorSource.CALLS if any(estimate.device for estimate in estimates):
            return "the host limits it, and hosts differ"
        case ErrorSource.CALLS:
            return "bricks take little longer than a call of the runtime, which is subtracted"
        case ErrorSource.LAUNCHING:
            return "what it costs to launch kernels is not known well"
        case ErrorSource.RECOMPOSITION if any(estimate.device for estimate in estimates):
            return "kernels may find other data in the device's cache than in the model"
        case ErrorSource.RECOMPOSITION:
            return "bricks may find other data in the caches than in the model"
        case ErrorSource.WORKERS:
            return "interference between bricks that run at the same time is not modelled"


def _width(estimates: Sequence[Estimate]) -> str:
    """The width of intervals; that of a single one in the words of its answer."""
    if len(estimates) == 1:
        return uncertainty_text(estimates[0].latency_s)
    widths = [estimate.relative_uncertainty for estimate in estimates]
    if max(widths) <= 1:
        return f"±{_range(widths)}"
    known = [estimate for estimate in estimates if estimate.estimate_s > 0]
    if len(known) < len(estimates):
        return "wider than the estimate itself"
    low = min(estimate.low_s / estimate.estimate_s for estimate in known)
    high = max(estimate.high_s / estimate.estimate_s for estimate in known)
    return f"{low:.2f} to {high:.{1 if high < 10 else 0}f} times the estimate"


def _range(shares: Sequence[float], digits: int = 0) -> str:
    least, most = percent(min(shares), digits), percent(max(shares), digits)
    return least if least == most else f"{least.removesuffix(' %')} to {most}"


def _remedy(group: Sequence[_WideEstimate]) -> str:
    first = group[0]
    remedy = first.interval.remedy
    words = [item.shown.word for item in group if item.shown.word is not None]
    command = first.shown.command(remedy, list(dict.fromkeys(words)))
    where = "" if first.shown.system_name is None else f" on {printable(first.shown.system_name)}"
    run = f"{where}: {command}" if words else f"{where}."
    match remedy:
        case Remedy.MEASURE:
            return f"To narrow it, measure these bricks{run}"
        case Remedy.MEASURE_AGAIN:
            quiet = " while nothing else runs" if first.main is ErrorSource.SAMPLES else ""
            return f"To narrow it, measure further rounds{quiet}{run}"
        case Remedy.NOW if command is not None and first.shown.system_name is None:
            return f"At another time no answer is closer; for the next seconds{run}"
        case _:
            nothing = "No measurement of bricks narrows it"
            return f"{nothing}." if command is None else f"{nothing}; run the whole model{run}"


# Smaller parts of an interval's width are not named.
_NAMED = 0.02

_CAUSES = {
    ErrorSource.PREDICTED: "bricks that are not measured",
    ErrorSource.CONDITIONS: "the speed of the host, which differs at other times",
    ErrorSource.OTHER_HOST: "bricks measured on other hosts of this kind",
    ErrorSource.SAMPLES: "few or noisy samples",
    ErrorSource.CALLS: "the cost of calling the runtime",
    ErrorSource.LAUNCHING: "the cost of launching kernels",
    ErrorSource.RECOMPOSITION: "caches: a model finds other data there than a brick",
    ErrorSource.WORKERS: "nodes that run at the same time",
}


# Causes that are others where a host drives a device.
_DEVICE_CAUSES = _CAUSES | {
    ErrorSource.CALLS: "the host, since hosts differ",
    ErrorSource.RECOMPOSITION: "the device's cache: a model finds other data there than a brick",
}


@dataclass(frozen=True, slots=True)
class UncertaintyPart:
    """A cause, and its share of the width of an interval."""

    cause: str
    share: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence on how intervals become narrower, and the ``command`` that makes them so.

    The command is None where no word names the models.
    """

    sentence: str
    command: str | None


def uncertainty_parts(shown: ShownEstimate) -> list[UncertaintyPart]:
    """The causes of the width of an estimate's interval, the largest first."""
    parts_s = shown.estimate.uncertainty.by_source
    total_s = sum(parts_s.values())
    causes = _causes(shown)
    parts = [UncertaintyPart(causes[s], part_s / total_s) for s, part_s in parts_s.items()
             if total_s and part_s / total_s >= _NAMED]  # fmt: skip
    return sorted(parts, key=lambda part: -part.share)


def main_cause(shown: ShownEstimate) -> str:
    """The largest cause of the width of an estimate's interval; empty without any width."""
    found = narrowing(shown.estimate)
    return "" if found is None else _causes(shown)[found.reasons[0].source]


def _causes(shown: ShownEstimate) -> Mapping[ErrorSource, str]:
    return _CAUSES if shown.estimate.device is None else _DEVICE_CAUSES


def advice_for(shown: ShownEstimate) -> Advice | None:
    """How the interval of one model becomes narrower; None for an interval without any width."""
    found = narrowing(shown.estimate)
    if found is None:
        return None
    share = share_text(_narrowed(shown, found))
    match found.remedy:
        case Remedy.MEASURE:
            missing = sum(part.predicted or part.published for part in shown.estimate.shares)
            bricks = "this brick" if missing == 1 else f"these {missing} bricks"
            sentence = f"Measuring {bricks}{_where(shown)} removes up to {share} of the width."
        case Remedy.MEASURE_AGAIN:
            sentence = f"Further samples{_where(shown)} narrow {share} of the width."
        case Remedy.NOW if shown.system_name is None:
            sentence = "An answer for the next seconds is narrower than one for any time."
        case _:
            sentence = (
                "No measurement of bricks narrows the interval. Running the whole model"
                f"{_where(shown)} shows its latency."
            )
    return Advice(sentence, _command([shown], found.remedy))


def common_advice(shown: Sequence[ShownEstimate]) -> list[Advice]:
    """How the intervals of several models become narrower, one advice for each command."""
    groups: dict[tuple[object, ...], list[ShownEstimate]] = defaultdict(list)
    for item in shown:
        if (found := narrowing(item.estimate)) is not None:
            groups[found.remedy, item.system_name, item.word is None].append(item)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    return [_common(items, remedy) for (remedy, *_), items in ordered if isinstance(remedy, Remedy)]


def _common(items: Sequence[ShownEstimate], remedy: Remedy) -> Advice:
    where, subject = _where(items[0]), f"The interval of {printable(items[0].title)} becomes"
    if len(items) > 1:
        subject = f"{count_text(len(items), 'interval')} become"
    match remedy:
        case Remedy.MEASURE:
            sentence = f"{subject} narrower when missing bricks are measured{where}."
        case Remedy.MEASURE_AGAIN:
            sentence = f"{subject} narrower with further samples{where}."
        case Remedy.NOW if items[0].system_name is None:
            sentence = f"{subject} narrower for the next seconds than for any time."
        case _:
            sentence = f"{subject} narrower only when whole models are run{where}."
    return Advice(sentence, _command(items, remedy))


def _command(items: Sequence[ShownEstimate], remedy: Remedy) -> str | None:
    words = list(dict.fromkeys(item.word for item in items if item.word is not None))
    return items[0].command(remedy, words) if words else None


def _narrowed(shown: ShownEstimate, found: WideInterval) -> float:
    """The share of the width whose sources have the remedy of ``found``."""
    parts_s, known = shown.estimate.uncertainty.by_source, remedies(shown.estimate)
    return sum(s for source, s in parts_s.items() if known.get(source) is found.remedy) / sum(
        parts_s.values()
    )


def _where(shown: ShownEstimate) -> str:
    return "" if shown.system_name is None else f" on {printable(shown.system_name)}"
