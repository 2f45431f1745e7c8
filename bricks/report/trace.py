"""A recomposed timeline and a runtime's profile as trace events, for ui.perfetto.dev.

One process for each timeline, one thread for each lane, a slice for each occurrence or node, named
after its operators so that equal ones have one colour. Both slices of an occurrence carry the same
facts, and a flow joins them.

Notes tell of missing, predicted and unmatched occurrences. Must not know how either timeline came
about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from bricks.compose.estimate import Estimate
from bricks.compose.lanes import DEVICE
from bricks.compose.timeline import (
    CALL,
    Entry,
    MissingLatency,
    ModelTimeline,
    OccurrenceRun,
    Subtraction,
)
from bricks.errors import printable
from bricks.graph.form import operator_title
from bricks.report.trace_events import (
    Event,
    Extent,
    Rows,
    Track,
    mark_on,
    microseconds,
    named,
    nanoseconds,
    slice_on,
    trace_file,
)
from bricks.samples.whole_models import NodeRun, NoProfile, Profile

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


_PROCESSES = {RECOMPOSED: 1, MEASURED: 2}
_WHOLE, _FIRST_LANE, _MISSING, _SUBTRACTED, _FIRST_NOTE = 0, 1, 700, 800, 900
# Limits on operators per slice, and on the length of a name: node names in models are arbitrary, at
# any length.
_MAX_OPERATORS, _MAX_CHARACTERS = 3, 120

Placed = tuple[int, Extent]


def trace_text(of: Traced) -> str:
    """The whole file, one event per line."""
    flows = _flows(of)
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
    facts["remarks"] = [text for lines in trace_notes(of).values() for text in lines]
    return trace_file(facts, [*_recomposed(of, flows), *_measured(of, flows)])


def _estimated(of: Traced) -> dict[str, Any]:
    estimate = of.estimate
    facts: dict[str, Any] = {}
    if isinstance(estimate, Estimate):
        facts |= {name: round(share, 6) for name, share in asdict(estimate.provenance).items()}
        facts |= {
            "estimate_us": microseconds(estimate.estimate_s),
            "estimate_low_us": microseconds(estimate.low_s),
            "estimate_high_us": microseconds(estimate.high_s),
            "workers": estimate.workers,
        }
    return facts


def _profiled(of: Traced, profile: Profile) -> dict[str, Any]:
    facts = {
        "profiled_us": microseconds(profile.latency_s),
        "profiled_runs": len(profile.runs_s),
        "profiled_fastest_us": microseconds(min(profile.runs_s)),
        "profiled_slowest_us": microseconds(max(profile.runs_s)),
    }
    if of.whole_s is not None:
        facts["without_profiler_us"] = microseconds(of.whole_s.value)
    return facts


def _recomposed(of: Traced, flows: Mapping[int, str]) -> Iterator[Event]:
    timeline, notes = of.recomposed, trace_notes(of)
    incomplete = not isinstance(of.estimate, Estimate)
    # A missing profile is reported here.
    notes_shown = notes[RECOMPOSED] + (notes[MEASURED] if isinstance(of.profile, NoProfile) else [])
    lanes = timeline.lanes if len(timeline.lanes) > 1 else ["bricks, one after the other"]
    threads = {_FIRST_LANE + lane: name for lane, name in enumerate(lanes)}
    kinds = {type(entry) for entry in timeline.entries}
    threads |= {_MISSING: "no measurement"} if MissingLatency in kinds else {}
    threads |= {_SUBTRACTED: "taken away"} if Subtraction in kinds else {}
    yield from _labels(RECOMPOSED, threads, notes_shown, "incomplete" if incomplete else "")
    name = f"{of.plan.model} (incomplete)" if incomplete else of.plan.model
    whole = {**_estimated(of), **{f"remark_{i + 1}": text for i, text in enumerate(notes_shown)}}
    yield _slice(RECOMPOSED, _WHOLE, name, (0, nanoseconds(timeline.run.end_s)), whole)
    if timeline.call_s:
        yield _slice(RECOMPOSED, _FIRST_LANE, CALL, (0, nanoseconds(timeline.call_s)), {})
    nodes = of.profile.of_occurrences if isinstance(of.profile, Profile) else {}
    for entry, (thread, span) in zip(timeline.entries, _laid(timeline), strict=True):
        node = nodes.get(entry.position)
        facts, name = _facts(of, entry, node), _name(of, entry)
        match entry:
            case OccurrenceRun():
                event = _slice(RECOMPOSED, thread, name, span, facts)
                yield _joined(event, entry.position, flows, RECOMPOSED)
            case MissingLatency():
                why = f"no measurement: {entry.reason}"
                yield _mark(RECOMPOSED, thread, why, span[0], facts)
            case Subtraction():
                yield _mark(RECOMPOSED, thread, f"taken away: {name}", span[0], facts)
    rows = Rows()
    for kernel in timeline.run.of(DEVICE):
        thread = _FIRST_LANE + timeline.lanes.index(DEVICE)
        placed = rows.place(_track(RECOMPOSED, thread), kernel.begin_s, kernel.end_s)
        launched_by = {"launched_by_occurrence": next(iter(kernel.work.after))}
        yield _slice(RECOMPOSED, thread, kernel.kind, placed, launched_by)


def _measured(of: Traced, flows: Mapping[int, str]) -> Iterator[Event]:
    profile = of.profile
    if isinstance(profile, NoProfile):
        return
    notes = trace_notes(of)[MEASURED]
    lanes = ["nodes"]
    if profile.lanes > 1:
        lanes = [f"nodes of thread {lane + 1}" for lane in range(profile.lanes)]
    threads = {_FIRST_LANE + lane: name for lane, name in enumerate(lanes)}
    yield from _labels(MEASURED, threads, notes, "not joined" if profile.unmatched else "")
    whole = {
        **_profiled(of, profile),
        "nodes_us": microseconds(profile.nodes_s),
        **{f"remark_{i + 1}": text for i, text in enumerate(notes)},
    }
    yield _slice(MEASURED, _WHOLE, of.plan.model, (0, nanoseconds(profile.latency_s)), whole)
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


def _laid(timeline: ModelTimeline) -> Iterator[Placed]:
    """Thread and extent of each entry; entries without a duration have separate threads."""
    rows, numbers = Rows(), {lane: i for i, lane in enumerate(timeline.lanes)}
    for entry in timeline.entries:
        thread = _FIRST_LANE + numbers[entry.span.lane]
        match entry:
            case MissingLatency():
                thread = _MISSING
            case Subtraction():
                thread = _SUBTRACTED
        yield thread, rows.place(_track(RECOMPOSED, thread), entry.span.begin_s, entry.span.end_s)


def _ran(profile: Profile) -> Iterator[Placed]:
    rows = Rows()
    for node in profile.nodes:
        place = rows.inside if node.inner else rows.place
        thread = _FIRST_LANE + node.lane
        yield thread, place(_track(MEASURED, thread), node.begin_s, node.end_s)


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


def _facts(of: Traced, entry: Entry, node: NodeRun | None) -> dict[str, Any]:
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
            "recomposed_us": microseconds(entry.latency_s.value),
            "low_us": microseconds(entry.latency_s.low),
            "high_us": microseconds(entry.latency_s.high),
        }
    if node is not None:
        facts |= {
            "node": _short(node.name) or "no name",
            "profiled_us": microseconds(node.end_s - node.begin_s),
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
    names = [operator_title(name) for name in of.bricks[_key(of, entry)].operators]
    more = len(names) - _MAX_OPERATORS
    return "+".join(names[:_MAX_OPERATORS]) + (f" and {more} more" if more > 0 else "")


def _labels(
    process: str, threads: Mapping[int, str], notes: Sequence[str], label: str
) -> Iterator[Event]:
    """Names and order of a process and its threads; each of ``notes`` is a thread."""
    pid = _PROCESSES[process]

    def named_event(what: str, thread: int, **args: Any) -> Event:
        return named(_track(process, thread), what, **args)

    yield named_event("process_name", _WHOLE, name=f"{process} ({label})" if label else process)
    yield named_event("process_sort_index", _WHOLE, sort_index=pid)
    if label:
        yield named_event("process_labels", _WHOLE, labels=label)
    lines = {_FIRST_NOTE + i: "remark" for i in range(len(notes))}
    for thread, name in {_WHOLE: "whole model", **threads, **lines}.items():
        yield named_event("thread_name", thread, name=name)
        yield named_event("thread_sort_index", thread, sort_index=thread)
    for i, text in enumerate(notes):
        yield _mark(process, _FIRST_NOTE + i, text, 0, {})


def _slice(process: str, thread: int, name: str, extent: Extent, args: Mapping[str, Any]) -> Event:
    return slice_on(_track(process, thread), name, extent, args)


def _mark(process: str, thread: int, name: str, at: int, args: Mapping[str, Any]) -> Event:
    return mark_on(_track(process, thread), name, at, args)


def _track(process: str, thread: int) -> Track:
    return Track(_PROCESSES[process], thread)


def _short(name: str) -> str:
    text = printable(name)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[: _MAX_CHARACTERS - 1]}…"
