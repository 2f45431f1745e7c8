"""Answers of ``measure`` and ``probe``: how many bricks are measured, and what is known then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.report.answers.words import listed
from bricks.report.figures import count_text
from bricks.report.tables import share_text
from bricks.samples.statistics import NORMAL_95

if TYPE_CHECKING:
    from bricks.session.measuring import Measured, Probed


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
