"""Sizes that a trace does not state, proven by the calls that read the results.

A profiler writes no shapes of lists of indices, so a gather of many rows looks like one of few.
The call that reads the rows states their shape. Must not know how traces are written.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.backends.profiler_trace import CallMatch

if TYPE_CHECKING:
    from bricks.backends.profiler_trace import ProfilerTrace
    from bricks.decompose.plan import Decomposition


def proven(
    trace: ProfilerTrace, matches: Sequence[CallMatch], ran: Decomposition | None
) -> list[CallMatch]:
    """The matches of a trace's calls, without those whose size nothing proves.

    A call without its size is proven if a brick that reads its results in the program ``ran`` is
    matched, all shapes stated, after it in its step and before the next such call.
    """
    readers = {} if ran is None else _readers(ran)
    kept: list[CallMatch] = []
    # What is matched after a call, by its step, until an equal call; by None to the step's end.
    after: dict[int | None, dict[object, set[str]]] = defaultdict(lambda: {None: set()})
    for call, match in zip(reversed(trace.calls), reversed(matches), strict=True):
        seen = after[call.step]
        if not match.unsized:
            for matched in seen.values():
                matched.update(match.keys)
            kept.append(match)
            continue
        equal = (call.operator, call.arguments)
        later = seen.get(equal, seen[None])
        keys = tuple(key for key in match.keys if _is_proven(key, later, readers))
        kept.append(CallMatch(keys, unseen=not keys))
        seen[equal] = set()
    return kept[::-1]


def _is_proven(key: str, later: set[str], readers: Mapping[str, set[str]]) -> bool:
    return not later.isdisjoint(readers.get(key, ()))


def _readers(ran: Decomposition) -> dict[str, set[str]]:
    """The keys of the bricks that read results of each brick."""
    readers: dict[str, set[str]] = defaultdict(set)
    for producer, consumer in ran.plan.edges():
        readers[ran.plan.occurrences[producer].brick].add(ran.plan.occurrences[consumer].brick)
    return readers
