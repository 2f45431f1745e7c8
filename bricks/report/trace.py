"""A recomposed timeline beside a runtime's profile, as trace events: opens in ui.perfetto.dev.

The JSON format of Chrome and Perfetto ("Trace Event Format"): one process for each timeline, one
thread for each lane, a slice for each occurrence or node, named after its operators so that equal
ones have one colour. Both slices of an occurrence carry the same facts, and a flow joins them.
Timestamps are microseconds, with nanoseconds behind the point. Must not know how either timeline
came about.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from bricks.analysis.traced import Traced
from bricks.compose.estimate import Estimate
from bricks.compose.occurrences import DEVICE
from bricks.compose.timeline import (
    CALL,
    Entry,
    MissingLatency,
    ModelTimeline,
    OccurrenceRun,
    Subtraction,
)
from bricks.errors import printable
from bricks.samples.profile import NodeRun, NoProfile, Profile

RECOMPOSED, MEASURED = "recomposed from bricks", "measured by the runtime's own profiler"

# Replaces a backslash: it looks like one.
BACKSLASH = "\N{REVERSE SOLIDUS OPERATOR}"

_PROCESSES = {RECOMPOSED: 1, MEASURED: 2}
# The threads of a process are numbered from a thousand times its own number: thread numbers must be
# unique, since some viewers would merge equal ones.
_WHOLE, _FIRST_LANE, _MISSING, _SUBTRACTED, _FIRST_REMARK = 0, 1, 700, 800, 900
# Limits on operators per slice, on reasons, and on the length of a name: node names in models are
# arbitrary, at any length.
_MAX_OPERATORS, _MAX_REASONS, _MAX_CHARACTERS = 3, 3, 120

Event = dict[str, Any]
Placed = tuple[int, tuple[int, int]]


def trace_text(of: Traced) -> str:
    """The whole file, one event per line."""
    head = {"displayTimeUnit": "ns", "otherData": _about(of)}
    flows = _flows(of)
    lines = ",\n".join(map(_json, [*_recomposed(of, flows), *_measured(of, flows)]))
    return f'{_json(head)[:-1]},"traceEvents":[\n{lines}\n]}}\n'


def remarks(of: Traced) -> dict[str, list[str]]:
    """Remarks that a reader of a timeline needs, by the name of its process."""
    found = {RECOMPOSED: _of_recomposed(of), MEASURED: _of_measured(of)}
    return {process: [printable(text) for text in lines] for process, lines in found.items()}


def _of_recomposed(of: Traced) -> Iterator[str]:
    entries, missing = of.recomposed.entries, of.recomposed.missing
    unknown = [entry for entry in entries if isinstance(entry, MissingLatency)]
    if unknown:
        reasons = dict.fromkeys(f"{_key(of, each)}: {each.reason}" for each in unknown)
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


def _about(of: Traced) -> dict[str, Any]:
    plan, runtime = of.plan, of.target.runtime
    facts: dict[str, Any] = {
        "model": printable(plan.model),
        "digest": plan.digest,
        "granularity": plan.granularity,
        "system": printable(of.target.system.name),
        "runtime": printable(f"{runtime.backend} {runtime.version}"),
        "threads": runtime.threads,
        "occurrences": len(plan.occurrences),
        "complete": isinstance(of.estimate, Estimate),
        **_estimated(of),
    }
    if isinstance(of.profile, Profile):
        facts |= _profiled(of, of.profile)
    facts["remarks"] = [text for lines in remarks(of).values() for text in lines]
    return facts


def _estimated(of: Traced) -> dict[str, Any]:
    """The estimate, if there is one."""
    found = of.estimate
    facts: dict[str, Any] = {}
    if isinstance(found, Estimate):
        facts |= {name: round(share, 6) for name, share in asdict(found.provenance).items()}
        facts |= {
            "estimate_us": _us(found.estimate_s),
            "estimate_low_us": _us(found.low_s),
            "estimate_high_us": _us(found.high_s),
            "workers": found.workers,
        }
    return facts


def _profiled(of: Traced, profile: Profile) -> dict[str, Any]:
    facts = {
        "profiled_us": _us(profile.latency_s),
        "profiled_runs": len(profile.runs_s),
        "profiled_fastest_us": _us(min(profile.runs_s)),
        "profiled_slowest_us": _us(max(profile.runs_s)),
    }
    if of.whole_s is not None:
        facts["without_profiler_us"] = _us(of.whole_s.value)
    return facts


def _recomposed(of: Traced, flows: Mapping[int, str]) -> Iterator[Event]:
    found, notes = of.recomposed, remarks(of)
    incomplete = not isinstance(of.estimate, Estimate)
    # A missing profile is reported here.
    said = notes[RECOMPOSED] + (notes[MEASURED] if isinstance(of.profile, NoProfile) else [])
    lanes = found.lanes if len(found.lanes) > 1 else ["bricks, one after the other"]
    threads = {_FIRST_LANE + lane: name for lane, name in enumerate(lanes)}
    kinds = {type(entry) for entry in found.entries}
    threads |= {_MISSING: "no measurement"} if MissingLatency in kinds else {}
    threads |= {_SUBTRACTED: "taken away"} if Subtraction in kinds else {}
    yield from _labels(RECOMPOSED, threads, said, "incomplete" if incomplete else "")
    name = f"{of.plan.model} (incomplete)" if incomplete else of.plan.model
    whole = {**_estimated(of), **{f"remark_{i + 1}": text for i, text in enumerate(said)}}
    yield _slice(RECOMPOSED, _WHOLE, name, (0, _ns(found.run.end_s)), whole)
    if found.call_s:
        yield _slice(RECOMPOSED, _FIRST_LANE, CALL, (0, _ns(found.call_s)), {})
    nodes = of.profile.of_occurrences if isinstance(of.profile, Profile) else {}
    for entry, (thread, span) in zip(found.entries, _laid(found), strict=True):
        node = nodes.get(entry.position)
        facts, name = _facts(of, entry, node), _name(of, entry)
        match entry:
            case OccurrenceRun():
                event = _slice(RECOMPOSED, thread, name, span, facts)
                yield _joined(event, entry.position, flows, RECOMPOSED)
            case MissingLatency():
                why = f"no measurement: {entry.reason}"
                yield _instant(RECOMPOSED, thread, why, span[0], facts)
            case Subtraction():
                yield _instant(RECOMPOSED, thread, f"taken away: {name}", span[0], facts)
    yield from _kernels(found)


def _kernels(found: ModelTimeline) -> Iterator[Event]:
    """What a device ran."""
    rows = _Rows()
    for span in found.run.of(DEVICE):
        thread = _FIRST_LANE + found.lanes.index(DEVICE)
        placed = rows.place(thread, span.begin_s, span.end_s)
        (position,) = span.work.after
        yield _slice(RECOMPOSED, thread, span.kind, placed, {"launched_by_occurrence": position})


def _measured(of: Traced, flows: Mapping[int, str]) -> Iterator[Event]:
    profile = of.profile
    if isinstance(profile, NoProfile):
        return
    notes = remarks(of)[MEASURED]
    lanes = ["nodes"]
    if profile.lanes > 1:
        lanes = [f"nodes of thread {lane + 1}" for lane in range(profile.lanes)]
    threads = {_FIRST_LANE + lane: name for lane, name in enumerate(lanes)}
    yield from _labels(MEASURED, threads, notes, "not joined" if profile.unmatched else "")
    whole = {
        **_profiled(of, profile),
        "nodes_us": _us(profile.nodes_s),
        **{f"remark_{i + 1}": text for i, text in enumerate(notes)},
    }
    yield _slice(MEASURED, _WHOLE, of.plan.model, (0, _ns(profile.latency_s)), whole)
    for node, (thread, span) in zip(profile.nodes, _ran(profile), strict=True):
        facts: dict[str, Any] = {"node": _short(node.name) or "no name"}
        if node.inner:
            facts["inside_of_another"] = True
        if node.position is None:
            yield _slice(MEASURED, thread, node.operator, span, facts)
            continue
        entry = of.recomposed.entries[node.position]
        event = _slice(MEASURED, thread, _name(of, entry), span, _facts(of, entry, node))
        yield _joined(event, node.position, flows, MEASURED)


def _laid(found: ModelTimeline) -> Iterator[Placed]:
    """Thread and span of each entry; entries without a duration have a thread of their own."""
    rows, numbers = _Rows(), {lane: i for i, lane in enumerate(found.lanes)}
    for entry in found.entries:
        thread = _FIRST_LANE + numbers[entry.span.lane]
        match entry:
            case MissingLatency():
                thread = _MISSING
            case Subtraction():
                thread = _SUBTRACTED
        yield thread, rows.place(thread, entry.span.begin_s, entry.span.end_s)


def _ran(profile: Profile) -> Iterator[Placed]:
    """Thread and span of each node."""
    rows = _Rows()
    for node in profile.nodes:
        place = rows.inside if node.inner else rows.place
        thread = _FIRST_LANE + node.lane
        yield thread, place(thread, node.begin_s, node.end_s)


def _flows(of: Traced) -> dict[int, str]:
    """By position, the process in which the flow between an occurrence and its node begins.

    That is the process with the earlier slice; of equals, the first one in the file.
    """
    profile = of.profile
    if isinstance(profile, NoProfile):
        return {}
    begins = {
        node.position: span[0] for node, (_, span) in zip(profile.nodes, _ran(profile), strict=True)
    }
    return {
        entry.position: RECOMPOSED if span[0] <= begins[entry.position] else MEASURED
        for entry, (_, span) in zip(of.recomposed.entries, _laid(of.recomposed), strict=True)
        if isinstance(entry, OccurrenceRun) and entry.position in begins
    }


class _Rows:
    """Places slices in their threads, in nanoseconds, without overlaps.

    A slice without a duration would be drawn inside the next one with the same start: so each has
    at least a nanosecond, taken from the next.
    """

    def __init__(self) -> None:
        self._spans: dict[int, tuple[int, int]] = {}  # the last span of each thread

    def place(self, thread: int, begin_s: float, end_s: float) -> tuple[int, int]:
        """The span of the next slice in a thread."""
        begin = max(_ns(begin_s), self._spans.get(thread, (0, 0))[1])
        self._spans[thread] = begin, max(_ns(end_s), begin + 1)
        return self._spans[thread]

    def inside(self, thread: int, begin_s: float, end_s: float) -> tuple[int, int]:
        """The span of a node that ran inside the last one of a thread."""
        least, most = self._spans.get(thread, (0, _ns(end_s)))
        begin = min(max(_ns(begin_s), least), most)
        return begin, min(max(_ns(end_s), begin), most)


def _facts(of: Traced, entry: Entry, node: NodeRun | None) -> dict[str, Any]:
    """The facts of an occurrence that both timelines show."""
    brick = of.bricks[_key(of, entry)]
    facts: dict[str, Any] = {
        "occurrence": entry.position,
        "brick": brick.key,
        "operators": _short(", ".join(brick.operators)),
        "flops": "not known" if brick.flops is None else brick.flops,
        "bytes": brick.bytes_moved,
    }
    if isinstance(entry, MissingLatency):
        facts |= {"basis": "none", "reason": _short(entry.reason)}
    else:
        facts |= {
            "basis": "predicted" if entry.predicted else "measured",
            "recomposed_us": _us(entry.latency_s.value),
            "low_us": _us(entry.latency_s.low),
            "high_us": _us(entry.latency_s.high),
        }
    if node is not None:
        facts |= {
            "node": _short(node.name) or "no name",
            "profiled_us": _us(node.end_s - node.begin_s),
        }
    return facts


def _joined(event: Event, position: int, flows: Mapping[int, str], here: str) -> Event:
    """``event`` with its end of the flow, if it has one."""
    if position not in flows:
        return event
    end = "flow_out" if flows[position] == here else "flow_in"
    return {**event, "bind_id": f"0x{position + 1:x}", end: True}


def _key(of: Traced, entry: Entry) -> str:
    return of.plan.occurrences[entry.position].brick


def _name(of: Traced, entry: Entry) -> str:
    """The operators of an occurrence, up to the limit."""
    names = [name.rpartition(".")[2] for name in of.bricks[_key(of, entry)].operators]
    more = len(names) - _MAX_OPERATORS
    return "+".join(names[:_MAX_OPERATORS]) + (f" and {more} more" if more > 0 else "")


def _labels(
    process: str, threads: Mapping[int, str], notes: Sequence[str], label: str
) -> Iterator[Event]:
    """Names and order of a process and its threads; each of the ``notes`` has a line of its own."""
    pid = _PROCESSES[process]

    def told(what: str, thread: int, **args: Any) -> Event:
        return {"ph": "M", "name": what, **_track(process, thread), "args": args}

    yield told("process_name", _WHOLE, name=f"{process} ({label})" if label else process)
    yield told("process_sort_index", _WHOLE, sort_index=pid)
    if label:
        yield told("process_labels", _WHOLE, labels=label)
    lines = {_FIRST_REMARK + i: "remark" for i in range(len(notes))}
    for thread, name in {_WHOLE: "whole model", **threads, **lines}.items():
        yield told("thread_name", thread, name=name)
        yield told("thread_sort_index", thread, sort_index=thread)
    for i, text in enumerate(notes):
        yield _instant(process, _FIRST_REMARK + i, text, 0, {})


def _slice(
    process: str, thread: int, name: str, span: tuple[int, int], args: Mapping[str, Any]
) -> Event:
    begin, end = span
    track = _track(process, thread)
    times = {"ts": begin / 1000, "dur": (end - begin) / 1000}
    return {"ph": "X", "name": printable(name), **track, **times, "args": args}


def _instant(process: str, thread: int, name: str, at: int, args: Mapping[str, Any]) -> Event:
    track = _track(process, thread)
    return {"ph": "i", "s": "t", "name": printable(name), **track, "ts": at / 1000, "args": args}


def _track(process: str, thread: int) -> Event:
    pid = _PROCESSES[process]
    return {"pid": pid, "tid": 1000 * pid + thread}


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)


def _us(seconds: float) -> float:
    """Microseconds, to a nanosecond."""
    return _ns(seconds) / 1000


def _length(seconds: float) -> str:
    return f"{seconds * 1e3:.3f} ms"


def _json(value: Any) -> str:
    """``value`` in the form that Perfetto reads: its only escape is that of a quotation mark.

    Perfetto shows other escapes literally, and reads a backslash at the end of a text as an escape
    of the quotation mark after it: then the whole file fails to load. All texts are printable, so
    nothing else needs an escape.
    """
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("\\\\", BACKSLASH)
