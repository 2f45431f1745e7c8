"""The comparison of two targets, for terminals: from the same data that ``--json`` prints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from bricks.errors import printable
from bricks.report.tables import NOTABLE_SHARE, percent, seconds

Row = Mapping[str, Any]

# This many are shown; ``--json`` has all.
_MAX_BRICKS, _MAX_PARTS, _MAX_MODELS = 10, 5, 3


def difference_parts(facts: Row) -> list[RenderableType]:
    """Lines and tables in the order to show them."""
    parts: list[RenderableType] = list(_head(facts))
    if facts["models"]:
        parts += ["", _models_table(facts["models"], facts["common"]), *_remarks(facts["models"])]
    beyond = [brick for brick in facts["bricks"] if brick["beyond_noise"]]
    for direction, of in (
        ("slower", [brick for brick in beyond if brick["ratio"] > 1]),
        ("faster", [brick for brick in reversed(beyond) if brick["ratio"] < 1]),
    ):
        if of:
            parts += ["", _bricks_table(of)]
        if len(of) > _MAX_BRICKS:
            parts.append(f"… and {len(of) - _MAX_BRICKS} more that are {direction}: --json tells.")
    notable = [m for m in facts["models"] if m["beyond_noise"] or m["gone_s"] or m["come_s"]]
    notable.sort(key=lambda model: -abs(math.log(model["ratio"])))
    for model in notable[:_MAX_MODELS]:
        parts += ["", f"Where the difference of {model['model']} comes from:", _parts(model)]
    if len(notable) > _MAX_MODELS:
        parts.append(f"… and of {len(notable) - _MAX_MODELS} more models: --json tells.")
    return parts


def _head(facts: Row) -> Iterator[str]:
    old, new, common, bricks = facts["old"], facts["new"], facts["common"], facts["bricks"]
    yield f"old: {old['name']} ({old['key']})"
    yield f"new: {new['name']} ({new['key']})"
    slower = sum(b["beyond_noise"] and b["ratio"] > 1 for b in bricks)
    faster = sum(b["beyond_noise"] and b["ratio"] < 1 for b in bricks)
    yield (
        f"{len(bricks)} bricks were measured on both: {slower} are slower now, {faster} faster,"
        f" and {len(bricks) - slower - faster} not told apart from noise."
    )
    if common is not None:
        yield (
            f"All together take {common['ratio']:.3f} times as long (the median;"
            f" {common['low']:.3f} … {common['high']:.3f}). That is part of every ratio below; it"
            " may be the runtime, or the machine in another session."
            + " It is more than two sessions of one machine mostly differ by."
            * common["unusual"]
        )
    once = sum(min(b["rounds"]) == 1 for b in bricks)
    if once:
        yield (
            f"{once} of the bricks were sampled in one round only on a side, which proves little:"
            " a smaller --precision for 'bricks measure' samples them more often."
        )
    disturbed = sum(b["disturbed"] for b in bricks)
    if disturbed:
        yield (
            f"{disturbed} of the bricks were sampled on a side only while others kept the"
            " processors busy, which proves little: measure again when the host is quiet, in"
            " another --cache."
        )
    elsewhere = sum(b["other_state"] for b in bricks)
    if elsewhere:
        yield (
            f"{elsewhere} of the bricks were measured in another state of the machine than most of"
            " their target, and are marked with *: their intervals allow for that."
        )
    if facts["states_apart"]:
        yield (
            "The machine was in another state, or calls of the runtime take another time: the"
            f" reference workload took {seconds(old['reference_s'])}, and now"
            f" {seconds(new['reference_s'])}. Latencies of two states cannot be compared: measure"
            " both again to be sure."
        )
    for side, names in (("old", facts["only_old"]), ("new", facts["only_new"])):
        if names:
            yield f"Only {side} knows, and nothing is compared of: {_few(names, _MAX_PARTS)}."


def _models_table(models: Sequence[Row], common: Row | None) -> Table:
    """Estimates on both targets, and the rest of their ratio beyond the common change."""
    table = _table("model", "old", "new", "ratio", "interval", "beside common", "", left=("",))
    for row in models:
        beside = "–" if common is None else f"{row['ratio'] / common['ratio']:.3f}"
        table.add_row(
            Text(printable(row["model"])),
            seconds(row["old_s"]),
            seconds(row["new_s"]),
            f"{row['ratio']:.3f}",
            _interval(row),
            beside,
            _verdict(row),
        )
    return table


def _verdict(row: Row) -> str:
    if not row["beyond_noise"]:
        return "within noise"
    return ("slower" if row["ratio"] > 1 else "faster") + ", if predictions hold" * bool(
        row["predicted_share"]
    )


def _remarks(models: Sequence[Row]) -> Iterator[str]:
    for row in models:
        if row["predicted_share"]:
            yield (
                f"{row['model']}: {percent(row['predicted_share'])} of an estimate is predicted,"
                " and not measured: the interval allows for that, but it proves nothing."
            )
        if row["disturbed_share"] >= NOTABLE_SHARE:
            yield (
                f"{row['model']}: {percent(row['disturbed_share'], 0)} of it was only measured"
                " while others kept the processors busy: measure again when the host is quiet."
            )
        if row["other_state_share"] >= NOTABLE_SHARE:
            yield (
                f"{row['model']}: {percent(row['other_state_share'], 0)} of an estimate comes from"
                " bricks that were measured in another state of the machine only: the interval"
                " allows for that."
            )
        if row["gone_s"] or row["come_s"]:
            yield (
                f"{row['model']}: the executed graphs differ: {_bricks_of(row, 'new')} that took"
                f" {seconds(row['gone_s'])} were replaced by {_bricks_of(row, 'old')} that take"
                f" {seconds(row['come_s'])}."
            )


def _bricks_of(row: Row, missing: str) -> str:
    """How many bricks are unmeasured on a target, in words."""
    count = sum(not part[f"{missing}_occurrences"] for part in row["contributions"])
    return "1 brick" if count == 1 else f"{count} bricks"


def _bricks_table(bricks: Sequence[Row]) -> Table:
    """The changes beyond noise, the slowest first."""
    table = _table("brick", "operators", "old", "new", "ratio", "interval", "rounds", "models",
                   left=("operators", "models"))  # fmt: skip
    for row in bricks[:_MAX_BRICKS]:
        table.add_row(
            Text(row["brick"] + "*" * row["other_state"]),
            Text(printable(_few(row["operators"], _MAX_PARTS))),
            seconds(row["old_s"]),
            seconds(row["new_s"]),
            f"{row['ratio']:.3f}",
            _interval(row),
            "/".join(map(str, row["rounds"])),
            Text(printable(_few(row["models"], _MAX_MODELS))),
        )
    return table


def _parts(model: Row) -> Table:
    """The bricks behind most of a model's difference."""
    table = _table("brick", "operators", "occurrences", "old", "new", "difference", "",
                   left=("operators", ""))  # fmt: skip
    for part in model["contributions"][:_MAX_PARTS]:
        remarks = ["only old"] * (not part["new_occurrences"])
        remarks += ["only new"] * (not part["old_occurrences"]) + ["predicted"] * part["predicted"]
        counts = dict.fromkeys((part["old_occurrences"], part["new_occurrences"]))
        table.add_row(
            Text(part["brick"]),
            Text(printable(_few(part["operators"], _MAX_PARTS))),
            " → ".join(map(str, counts)),
            seconds(part["old_s"]),
            seconds(part["new_s"]),
            _signed(part["difference_s"]),
            ", ".join(remarks),
        )
    rest_s = sum(part["difference_s"] for part in model["contributions"][_MAX_PARTS:])
    rest_s += model["call_overhead_difference_s"]
    table.add_row("all else", "", "", "", "", _signed(rest_s), "")
    return table


def _interval(row: Row) -> str:
    return f"{row['low']:.3f} … {row['high']:.3f}"


def _signed(value_s: float) -> str:
    return ("-" if value_s < 0 else "+") + seconds(abs(value_s))


def _few(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def _table(first: str, *others: str, left: Sequence[str] = ()) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="fold")
    for name in others:
        if name in left:
            table.add_column(name, overflow="fold")
        else:
            table.add_column(name, justify="right", no_wrap=True)
    return table
