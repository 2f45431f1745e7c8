"""A training on several ranks for terminals. Must not compute results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.errors import printable
from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import DASH, Column, table_of
from bricks.report.figures import count_text, runtime_text
from bricks.report.tables import duration, number, percent, seconds, size

if TYPE_CHECKING:
    from rich.console import RenderableType

    from bricks.studies.scaling.result import CheckedStep, Origins, ScalePoint, ScalingResult
    from bricks.units.interval import Interval

STRATEGY: Column[ScalePoint] = Column("strategy", lambda point: point.strategy, left=True)
_RANKS: Column[ScalePoint] = Column("ranks", lambda point: str(point.ranks))

_TIMES: Sequence[Column[ScalePoint]] = (
    Column("step", lambda point: seconds(point.step_s.value)),
    Column("±", lambda point: uncertainty_text(point.step_s)),
    Column("epoch", lambda point: _long(point.epoch_s)),
    Column("run", lambda point: _long(point.run_s)),
    Column("samples/s", lambda point: f"{point.samples_per_s.value:.4g}"),
    Column("efficiency", lambda point: percent(point.efficiency.value, 0)),
    Column("measured", lambda point: _checked(point, lambda checked: seconds(checked.step_s))),
    Column("ratio", lambda point: _checked(point, lambda _: number(point.ratio, 3))),
)

_DETAILS: Sequence[Column[ScalePoint]] = (
    Column("speed-up", lambda point: number(point.speedup.value)),
    Column(
        "exposed",
        lambda point: _sent(point, seconds(point.exposed_communication_s.value)),
    ),
    Column("sent", lambda point: _sent(point, size(point.bytes_sent))),
    Column("cost/epoch", lambda point: _cost(point.cost_per_epoch)),
)

# All columns, for pages.
COLUMNS: Sequence[Column[ScalePoint]] = (_RANKS, *_TIMES, *_DETAILS)


def _sent(point: ScalePoint, text: str) -> str:
    """``text`` for several ranks; a dash for a single rank, which sends nothing."""
    return text if point.ranks > 1 else DASH


def _cost(cost: Interval | None) -> str | None:
    return None if cost is None else number(cost.value, 4)


def _checked(point: ScalePoint, text: Callable[[CheckedStep], str]) -> str | None:
    return None if point.checked is None else text(point.checked)


def scaling_parts(result: ScalingResult) -> list[RenderableType]:
    """The table of times, below the conditions other than those of a plain step."""
    if not result.predicted:
        return []
    return [*_conditions(result), table_of(result.predicted, [*_named(result), *_TIMES])]


def scaling_details(result: ScalingResult) -> list[RenderableType]:
    """Also a table of communication, and where figures come from."""
    points, system = result.predicted, printable(result.target.system.name)
    if not points:
        return []
    return [
        *scaling_parts(result), "", table_of(points, [*_named(result), *_DETAILS]), "",
        f"Ranks are of {system}, {runtime_text(result.target)}.",
        *_origins(points), *_pays(result), *_shared_host(result),
    ]  # fmt: skip


def _long(of: Interval | None) -> str | None:
    return None if of is None else duration(of.value)


def _named(result: ScalingResult) -> list[Column[ScalePoint]]:
    return [*([STRATEGY] if len(result.strategies) > 1 else []), _RANKS]


def _conditions(result: ScalingResult) -> Iterator[str]:
    """The conditions that differ from a plain step."""
    whole = max(point.batch for point in result.predicted)
    conditions = [f"ranks divide a batch of {whole}"] if result.step.strong else []
    if result.step.accumulate > 1:
        conditions.append(f"{result.step.accumulate} batches a step")
    if result.step.straggler > 1:
        conditions.append(f"one rank {result.step.straggler:g} times slower")
    if conditions:
        yield f"{'; '.join(conditions).capitalize()}."


def _origins(points: Sequence[ScalePoint]) -> Iterator[str]:
    """The provenance of the figures, one line for all numbers of ranks that agree."""
    by_origin: dict[str, list[int]] = {}
    for point in points:
        by_origin.setdefault(_origin(point.origins), []).append(point.ranks)
    for origin, ranks in by_origin.items():
        numbers = ", ".join(map(str, dict.fromkeys(ranks)))
        yield f"{numbers} {'rank' if numbers == '1' else 'ranks'}: {origin}."


def _origin(of: Origins) -> str:
    parts = [f"computing {of.compute}"]
    if of.network is not None:
        parts += [
            f"copies {of.copies}", f"network {of.network}",
            f"slowdown of computing {of.slowdown}",
        ]  # fmt: skip
    return ", ".join(parts)


def _shared_host(result: ScalingResult) -> Iterator[str]:
    """The step of ranks that ran on one host, without communication.

    A prediction includes that they slow each other down only where its ranks share a host too.
    """
    single_rank_s = {point.strategy: point.step_s for point in result.predicted if point.ranks == 1}
    for point in result.predicted:
        if point.checked is None or result.step.strong:
            continue
        own = single_rank_s.get(point.strategy)
        own_s = None if own is None else own.value
        predicted_s = point.solo_s if result.network.one_host else own_s
        predicted = "" if predicted_s is None else f" ({seconds(predicted_s)} predicted)"
        line = (
            f"Without communication, a step of {point.ranks} ranks at once took"
            f" {seconds(point.checked.solo_s)}{predicted}"
        )
        if not result.network.one_host:
            line += ": ranks that share a host slow each other, which those on hosts of their own"
            line += " do not"
        yield f"{line}."


def _pays(result: ScalingResult) -> Iterator[str]:
    for scaling in result.strategies:
        name = f"{scaling.strategy}: " if len(result.strategies) > 1 else ""
        if scaling.pays_up_to is None:
            line = f"further ranks pay up to {scaling.looked_up_to} at least"
            line += " (each adds half of an isolated rank's samples/s or more)"
        else:
            count = count_text(scaling.pays_up_to, "rank")
            line = f"from {count} on, further ones no longer pay"
            line += " (each adds less than half of an isolated rank's samples/s)"
        yield f"{name}{line}." if name else f"{line[0].upper()}{line[1:]}."
