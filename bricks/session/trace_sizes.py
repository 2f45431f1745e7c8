"""Calls of which a trace states too little, proven by the calls that read their results.

A profiler writes no shapes of lists of indices, so a gather of many rows looks like one of few; nor
long lists. The call that reads the rows states their shape. Must not know how traces are written.
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
    """The matches of a trace's calls, with those that only their readers prove.

    A call is proven to be one of its candidates if a brick that reads its results in the program
    ``ran`` is matched, all shapes stated, after it in its step and before the next equal call. Of
    several candidates, one alone must be proven, and so for all equal calls of the step: else the
    results of one may be read after the next call.
    """
    readers = {} if ran is None else _readers(ran)
    kept = list(matches)
    # What is matched after a call, by its step, until an equal call; by None to the step's end.
    after: dict[int | None, dict[object, set[str]]] = defaultdict(lambda: {None: set()})
    equals: dict[object, list[int]] = defaultdict(list)
    for number in reversed(range(len(kept))):
        call, match = trace.calls[number], matches[number]
        seen = after[call.step]
        if not match.candidates:
            for matched in seen.values():
                matched.update(match.keys)
            continue
        equal = (call.operator, call.arguments)
        later = seen.get(equal, seen[None])
        kept[number] = _proven_one(match, later, readers)
        if len(match.candidates) > 1:
            equals[call.step, *equal].append(number)
        seen[equal] = set()
    for numbers in equals.values():
        if not all(kept[number].keys for number in numbers):
            for number in numbers:
                kept[number] = CallMatch(unmatched=matches[number].unmatched)
    return kept


def _proven_one(match: CallMatch, later: set[str], readers: Mapping[str, set[str]]) -> CallMatch:
    """The one group of candidates whose results are read by a brick among ``later`` ones."""
    groups = (
        tuple(key for key in group if not later.isdisjoint(readers.get(key, ())))
        for group in match.candidates
    )
    found = [group for group in groups if group]
    return CallMatch(found[0]) if len(found) == 1 else CallMatch(unmatched=match.unmatched)


def _readers(ran: Decomposition) -> dict[str, set[str]]:
    """The keys of the bricks that read results of each brick."""
    readers: dict[str, set[str]] = defaultdict(set)
    for producer, consumer in ran.plan.edges():
        readers[ran.plan.occurrences[producer].brick].add(ran.plan.occurrences[consumer].brick)
    return readers
