"""Latencies over mixes of sizes for terminals: tables of mixes and of their sizes, and remarks.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.report.answers.settings import place_of, shapes_text
from bricks.report.answers.words import uncertainty_text
from bricks.report.columns import Column, table_of
from bricks.report.tables import number, seconds, share_text
from bricks.samples.whole_models import SizeTimes
from bricks.studies.inference.prediction import Mix, SizeInMix

if TYPE_CHECKING:
    from rich.console import RenderableType

# Sessions with open dimensions are remarked on if they are slower or faster by more than this.
_NOTABLE = 0.1


def mix_parts(mixes: Sequence[Mix], *, every: bool) -> list[RenderableType]:
    """The sizes of a single mix; of several, a row for each, and with ``every`` their sizes too."""
    whole = [of for of in mixes if of.sizes]
    if len(whole) == 1 and not every:
        return [_sizes_table(whole[0])]
    parts: list[RenderableType] = [table_of(whole, _MIXES)]
    for of in whole if every else ():
        parts += [f"{of.model} {place_of(of.setting)}:", _sizes_table(of)]
    return parts


def mix_remarks(mixes: Sequence[Mix]) -> list[str]:
    """What a mix does not tell, and where one session with open dimensions takes other times."""
    lines = [line for of in mixes if of.sizes for line in _remarks(of)]
    return list(dict.fromkeys(lines))


def _remarks(of: Mix) -> Iterator[str]:
    if of.unknown is not None:
        why = of.unknown.removeprefix(f"{of.model}: ")
        yield f"{of.model}: what a change of size costs is unknown: {why}."
    if of.open_ratio is not None and abs(of.open_ratio - 1) > _NOTABLE:
        yield (
            f"{of.model}: one session with open dimensions takes {number(of.open_ratio)} times as"
            " long as the sessions for one size each that the estimates are of."
        )


def longer_text(extra_s: float | None) -> str | None:
    """How much longer a run takes: ``+1.2 ms``; None if it is not known."""
    if extra_s is None:
        return None
    return f"{'-' if extra_s < 0 else '+'}{seconds(abs(extra_s))}"


def _mean(of: Mix) -> str | None:
    return None if of.mean_s is None else seconds(of.mean_s.value)


def _mean_interval(of: Mix) -> str | None:
    return None if of.mean_s is None else uncertainty_text(of.mean_s)


def _shuffled(of: Mix) -> str | None:
    return None if of.shuffled_s is None else seconds(of.shuffled_s.value)


def _quantile(latency_s: float | None) -> str | None:
    return None if latency_s is None else seconds(latency_s)


_MIXES: Sequence[Column[Mix]] = (
    Column("model", lambda of: of.model, left=True),
    Column("where", lambda of: place_of(of.setting), left=True),
    Column("mean", _mean),
    Column("interval", _mean_interval),
    Column("p50", lambda of: _quantile(of.p50_s)),
    Column("p99", lambda of: _quantile(of.p99_s)),
    Column("in random order", _shuffled),
)


def _times(of: SizeInMix) -> SizeTimes | None:
    return of.times if isinstance(of.times, SizeTimes) else None


def _change(of: SizeInMix) -> str | None:
    times = _times(of)
    return None if times is None else longer_text(times.change_s.value)


def _new(of: SizeInMix) -> str | None:
    times = _times(of)
    return None if times is None else longer_text(times.new_s)


_SIZES: Sequence[Column[SizeInMix]] = (
    Column("shape", lambda of: shapes_text(of.shapes) if of.shapes else None, left=True),
    Column("batch", lambda of: None if of.batch is None else str(of.batch)),
    Column("share", lambda of: share_text(of.share)),
    Column("latency", lambda of: seconds(of.latency_s.value)),
    Column("interval", lambda of: uncertainty_text(of.latency_s)),
    Column("p99", lambda of: _quantile(None if of.runs is None else of.runs.p99_s)),
    Column("after a change", _change),
    Column("first run", _new),
)


def _sizes_table(of: Mix) -> RenderableType:
    return table_of(of.sizes, _SIZES)
