"""Words of answers: latencies with their uncertainty, where they come from, and lists of names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from bricks.report.figures import count_text
from bricks.report.tables import notable, seconds, share_text

if TYPE_CHECKING:
    from bricks.compose.estimate import Provenance
    from bricks.system import Target
    from bricks.units.interval import Interval

# Sides of an interval that differ by no more than this share of the value are given as one.
_SAME_SHARE = 0.02

# Intervals beyond this factor are given by their ends: a percentage would say little.
_WIDE = 2.0


def value_text(of: Interval, unit: Callable[[float], str] = seconds) -> str:
    """A value with its uncertainty: ``38.2 ms (±4 %)``."""
    return f"{unit(of.value)} ({uncertainty_text(of, unit)})"


def slo_text(slo_s: float) -> str:
    """A bound of a latency as people type it: ``20 ms``, not ``20.0 ms``."""
    number, unit = seconds(slo_s).split()
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"


def uncertainty_text(of: Interval, unit: Callable[[float], str] = seconds) -> str:
    """The 95 % interval relative to its value: ``±4 %``, or ``-3 / +12 %`` where sides differ.

    An interval that reaches beyond twice the value, or below half of it, is given by its ends.
    """
    if of.value <= 0 or of.low < of.value / _WIDE or of.high > of.value * _WIDE:
        high = "no end" if math.isinf(of.high) else unit(of.high)
        return f"{unit(max(of.low, 0.0))} to {high}"
    below, above = 1 - of.low / of.value, of.high / of.value - 1
    if abs(above - below) <= _SAME_SHARE or max(below, above) <= 1.5 * min(below, above):
        return f"±{_percent(max(below, above))}"
    return f"-{_digits(below)} / +{_percent(above)}"


def _percent(share: float) -> str:
    return f"{_digits(share)} %"


def _digits(share: float) -> str:
    """A share in percent, with a digit after the point below one percent."""
    return f"{100 * share:.{1 if 0 < share < 0.00995 else 0}f}"


def sure_text(probability: float) -> str:
    """A probability in percent; never certain, since intervals resolve none beyond 99 %."""
    return share_text(min(probability, 0.999))


def source_text(of: Provenance) -> str:
    """Where an estimate comes from: ``62 % measured here, 30 % published, 8 % predicted``."""
    shares = {
        "measured": of.measured_share,
        "published": of.published_share,
        "predicted": of.predicted_share,
    }
    texts = [f"{share_text(share)} {how}" for how, share in notable(shares).items()]
    return ", ".join(texts) or "nothing measured"


def place_text(target: Target, here: Target) -> str:
    """Where a model runs: ``here with 2 threads``, or ``on amd-epyc-zen5-2c with 1 thread``."""
    where = "here" if target.system.key == here.system.key else f"on {target.system.name}"
    if target.system.accelerator is not None:
        return where
    runtime = target.runtime
    return f"{where} with {count_text(runtime.threads, 'thread')}{copies_text(runtime.copies)}"


def copies_text(copies: int) -> str:
    """The end of ``2 threads``: `` in each of 4 copies at once``; empty for one copy."""
    return f" in each of {copies} copies at once" if copies > 1 else ""


def listed(names: Sequence[str], conjunction: str = "and") -> str:
    """Names as a sentence has them: ``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def verb(count: int, singular: str, plural: str) -> str:
    """The form of a verb for ``count`` subjects."""
    return singular if count == 1 else plural


def links_text(name: str, one_way_bytes_per_s: float) -> str:
    """What is known of links between cards that their maker publishes."""
    return (
        f"{name}: {2 * one_way_bytes_per_s / 1e9:g} GB/s by its data sheet, latencies of NCCL's"
        " cost model, not checked here"
    )
