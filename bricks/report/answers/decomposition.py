"""Answers of ``decompose`` and ``generate``: how many bricks stand for how many occurrences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bricks.report.answers.words import verb
from bricks.report.figures import count_text
from bricks.report.tables import percent, size

Row = Mapping[str, Any]


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
