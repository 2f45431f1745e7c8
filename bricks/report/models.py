"""Models and their bricks: the zoo's, decomposed, covered, similar, and measured.

Rows of tables are the JSON objects that ``--json`` prints. Answers say how many bricks stand for
how many occurrences, and how many are measured. Must not compute results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.report.tables import Column, billions, percent, seconds, share_text, size, table_of
from bricks.report.words import count_text, listed, verb
from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.session.measuring import Measured, Probed

Row = Mapping[str, Any]

# A decoder has an input for the keys and the values of each layer: only the first few are shown.
_MAX_INPUTS = 4


def _text(title: str, key: str, *, left: bool = False) -> Column[Row]:
    return Column(title, lambda row: str(row[key]), left)


_ZOO: Sequence[Column[Row]] = (
    _text("model", "name", left=True),
    *(_text(name, name, left=True) for name in ("task", "family", "framework", "kind")),
    Column("input", lambda row: _inputs(row["inputs"]), left=True),
    Column("parameters", lambda row: f"{row['parameters'] / 1e6:.1f} M"),
    Column("GFLOP", lambda row: _billions(row["flops"])),
)
_DECOMPOSITIONS: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    *(_text(name, name) for name in ("nodes", "bricks", "occurrences")),
    Column("unique", lambda row: percent(row["unique_share"])),
    Column("GFLOP", lambda row: _billions(row["flops"])),
    Column("weights", lambda row: size(row["weight_bytes"])),
)
_COVERAGES: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    _text("bricks", "bricks"),
    _text("measured", "measured"),
    Column("places", lambda row: percent(row["coverage"])),
    Column("FLOPs", lambda row: percent(row["flops_share"])),
    Column("estimate", lambda row: _state(row)),
    Column("cost", lambda row: _cost(row["cost_s"])),
    Column("added", lambda row: _cost(row["marginal_s"])),
)
_NEAREST: Sequence[Column[Row]] = (
    _text("model", "model", left=True),
    _text("bricks", "bricks"),
    Column("shared", lambda row: percent(row["shared"] / row["bricks"], 0)),
    Column("most similar", lambda row: _most_similar(row), left=True),
)


def zoo_table(rows: Sequence[Row]) -> Table:
    """Models of the zoo, with their inputs and sizes."""
    return table_of(rows, _ZOO)


def _inputs(inputs: Mapping[str, tuple[str, Sequence[int | str]]]) -> str:
    shapes = ["×".join(map(str, shape)) for _, shape in inputs.values()]
    more = len(shapes) - _MAX_INPUTS
    return ", ".join(shapes[:_MAX_INPUTS] + [f"{more} more"] * (more > 0))


def _billions(value: float | None) -> str:
    return "unknown" if value is None else billions(value, ".2f")


def decomposition_table(rows: Sequence[Row], union: Row) -> Table:
    """The decomposition of each model that has one, and of all models together."""
    known = [row for row in rows if row["nodes"] is not None]
    return table_of([*known, {**union, "model": "all"}], _DECOMPOSITIONS)


def coverage_table(models: Sequence[Row], together: Row) -> Table:
    """The measured share of each model, and the cost of measuring the rest."""
    known = [row for row in models if row["error"] is None]
    whole = {**together, "model": "all", "marginal_s": together["cost_s"]}
    return table_of([*known, whole], _COVERAGES)


def _state(row: Row) -> str:
    return "possible" if row["complete"] else "fails" if row["failed"] else "incomplete"


def _cost(value: float | None) -> str:
    return "unknown" if value is None else seconds(value) if value else "none"


def similarity_table(models: Sequence[Row], grid: Sequence[Sequence[float]]) -> Table:
    """The similarity of every two of a few models; columns are numbered as rows are."""
    positions = range(len(models))
    columns: list[Column[int]] = [
        Column("model", lambda row: f"{row + 1} {models[row]['model']}", left=True),
        Column("bricks", lambda row: str(models[row]["bricks"])),
        *(_similarity_column(column, grid) for column in positions),
    ]
    return table_of(positions, columns)


def _similarity_column(column: int, grid: Sequence[Sequence[float]]) -> Column[int]:
    return Column(
        str(column + 1), lambda row: "·" if row == column else _similarity(grid[row][column])
    )


def nearest_table(models: Sequence[Row]) -> Table:
    """The most similar models to each, for more models than a grid has room for."""
    return table_of(models, _NEAREST)


def _most_similar(row: Row) -> str:
    nearest = (f"{n['model']} {_similarity(n['similarity'])}" for n in row["nearest"][:3])
    return ", ".join(nearest) or "none"


def _similarity(value: float) -> str:
    """A similarity with two digits; a nonzero one never looks like zero."""
    return "–" if value == 0 else "<0.01" if value < 0.005 else f"{value:.2f}"


def decomposition_answer(rows: Sequence[Row], union: Row) -> str:
    """The number of unique bricks.

    ``2 models have 48 unique bricks for 65 occurrences (74 % unique).``
    """
    known = [row for row in rows if row["nodes"] is not None]
    if not known:
        return "No model was split into bricks."
    whose = known[0]["model"] if len(known) == 1 else f"{len(known)} models"
    share = percent(union["unique_share"], 0)
    return (
        f"{whose} {verb(len(known), 'has', 'have')} {count_text(union['bricks'], 'unique brick')}"
        f" for {count_text(union['occurrences'], 'occurrence')} ({share} unique)."
    )


def suite_answer(facts: Row) -> str:
    """The content of a suite.

    ``suite.zip has 2 models without weights: 48 bricks for 65 occurrences, 120 KiB.``
    """
    if facts["suite"] is None:
        return "No suite was written."
    models = sum(row["error"] is None for row in facts["models"])
    what = f"{count_text(models, 'model')} without weights"
    if facts["private"]:
        what = f"the bricks of {count_text(models, 'model')}, without names"
    among = f" among {facts['decoys']} others" if facts["decoys"] else ""
    return (
        f"{facts['suite']} has {what}: {count_text(facts['bricks'], 'brick')}{among} for"
        f" {count_text(facts['occurrences'], 'occurrence')}, {size(facts['size_bytes'])}."
    )


def measuring_answer(of: Measured, *, unfinished: int) -> str:
    """The number of measured bricks; ``All 48 bricks of 2 models are measured: 12 now, 36 before``.

    ``unfinished`` bricks were left out for lack of time.
    """
    failed, predicted = len(of.failures), of.predicted_bricks
    done = of.bricks - failed - unfinished - predicted
    whose = f" of {count_text(of.models, 'model')}" if of.models else ""
    which = f"All {of.bricks} bricks" if done == of.bricks else f"{done} of {of.bricks} bricks"
    counts = {"now": of.new_bricks, "before": done - of.new_bricks}
    when = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
    took = f" ({of.wall_s:.1f} s)" if of.new_bricks else ""
    text = f"{which}{whose} are measured{f': {when}' if when else ''}{took}"
    others = {"failed": failed, "unfinished": unfinished, "to be predicted": predicted}
    rest = [f"{count} {word}" for word, count in others.items() if count]
    return f"{text}; {listed(rest)}." if rest else f"{text}."


def probing_answer(of: Probed) -> str:
    """How well models are known after so many measurements.

    ``Half of 12 models are known to ±7 % or better, after measuring 96 of 800 bricks (58 s).``
    """
    measured = f"{of.measured} of {count_text(of.bricks, 'brick')}"
    if of.deviation is None:
        return f"Too few bricks are measured to predict others from: {measured}."
    known = f"±{share_text(NORMAL_95 * of.deviation)}"
    which = f"Half of {of.models} models are" if of.models > 1 else "The model is"
    return (
        f"{which} known to {known}{' or better' if of.models > 1 else ''}, after measuring"
        f" {measured}{f' ({of.wall_s:.1f} s)' if of.probes else ''}."
    )
