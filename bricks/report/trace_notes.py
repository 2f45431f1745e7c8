"""Notes on a trace: missing, predicted and unmatched occurrences.

Must not know how a trace is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.compose.timeline import MissingLatency
from bricks.errors import printable
from bricks.samples.whole_models import NoProfile

if TYPE_CHECKING:
    from bricks.analysis.trace import Traced

RECOMPOSED, MEASURED = "recomposed from bricks", "measured by the runtime's own profiler"

_MAX_REASONS = 3


def trace_notes(of: Traced) -> dict[str, list[str]]:
    """Notes on each timeline, by the name of its process."""
    by_process = {RECOMPOSED: _of_recomposed(of), MEASURED: _of_measured(of)}
    return {process: [printable(text) for text in lines] for process, lines in by_process.items()}


def _of_recomposed(of: Traced) -> Iterator[str]:
    entries, missing = of.recomposed.entries, of.recomposed.missing
    unknown = [entry for entry in entries if isinstance(entry, MissingLatency)]
    if unknown:
        reasons = dict.fromkeys(
            f"{of.plan.occurrences[entry.position].brick}: {entry.reason}" for entry in unknown
        )
        named = "; ".join([*reasons][:_MAX_REASONS])
        more = f"; and {len(reasons) - _MAX_REASONS} more" if len(reasons) > _MAX_REASONS else ""
        yield (
            f"incomplete: {len(unknown)} of {len(entries)} occurrences have no measurement,"
            f" and no duration here ({named}{more})"
        )
    if missing.keys() - of.bricks.keys():
        yield "incomplete: what a call costs was not measured; it is in each occurrence"
    if of.recomposed.excess_s:
        yield (
            f"{_length(of.recomposed.excess_s)} longer than the estimate: overlapping bricks take"
            " away more than there is where they stand"
        )
    if isinstance(of.estimate, Estimate) and of.estimate.predicted_share:
        share = 100 * of.estimate.predicted_share
        yield f"{share:.1f} % of the time is of bricks that were predicted, not measured"
    if isinstance(of.estimate, Estimate) and of.estimate.published_share:
        share = 100 * of.estimate.published_share
        yield f"{share:.1f} % of the time is of bricks that others measured and published"


def _of_measured(of: Traced) -> Iterator[str]:
    profile = of.profile
    if isinstance(profile, NoProfile):
        yield f"no profile beside it: {profile.reason}"
        return
    took = f"writing a profile takes time itself: this run took {_length(profile.latency_s)},"
    if of.whole_s is None:
        yield f"{took} what the model takes without one is not known: bricks compare measures it"
    else:
        without_s = of.whole_s.value
        ratio = profile.latency_s / without_s
        yield (
            f"{took} {ratio:.3f} times what the model took without one, at another time"
            f" ({_length(without_s)})"
        )
    if profile.unmatched is not None:
        yield f"not joined with the bricks: {profile.unmatched}"
    if profile.unsure:
        yield (
            f"{profile.unsure} of the nodes may be another occurrence of their operator, of which"
            " nothing tells them apart"
        )
    if profile.reordered:
        yield "the runtime ran the nodes in another order than the bricks stand in"
    if profile.omitted:
        yield f"{profile.omitted} nodes inside of others are left out"


def _length(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"
