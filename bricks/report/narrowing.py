"""What makes intervals wide, by share of the width, and the commands that narrow them.

Must not know how commands are made: shown estimates bring them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.uncertainty import ErrorSource
from bricks.compose.wide_interval import Remedy, WideInterval, narrowing, remedies
from bricks.errors import printable
from bricks.report.figures import count_text
from bricks.report.tables import share_text

if TYPE_CHECKING:
    from bricks.report.wide_intervals import ShownEstimate

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
    subject, where = _subject(items), _where(items[0])
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


def _subject(items: Sequence[ShownEstimate]) -> str:
    if len(items) == 1:
        return f"The interval of {printable(items[0].title)} becomes"
    return f"{count_text(len(items), 'interval')} become"


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
