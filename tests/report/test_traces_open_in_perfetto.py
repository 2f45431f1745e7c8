"""A trace as Perfetto itself loads it: both timelines, joined, and nothing that is not meant."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import Here, chain
from factories import branches, conv_net, mlp, save
from perfetto_engine import opened
from unusual import nested_control_flow

import bricks
import bricks.analysis.trace
from bricks.analysis.trace import Traced
from bricks.compose.timeline import OccurrenceRun
from bricks.errors import printable
from bricks.report.trace import MEASURED, RECOMPOSED, trace_notes, trace_text
from bricks.report.trace_events import BACKSLASH
from bricks.samples.whole_models import NoProfile, Profile

# No latency is looked at: others may measure meanwhile.
SHARED = bricks.Conditions(rule=bricks.StopRule(min_rounds=2, max_rounds=2), exclusive=False)

SLICES = """
    SELECT slice.id, slice.ts, slice.dur, slice.name, slice.depth, slice.arg_set_id,
           thread.name AS thread, process.name AS process
    FROM slice JOIN thread_track ON slice.track_id = thread_track.id
    JOIN thread USING (utid) JOIN process USING (upid) ORDER BY slice.ts, slice.id
"""
COMPLAINTS = "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'"
FLOWS = """
    SELECT a.arg_set_id = b.arg_set_id AS same, a.name = b.name AS called, a.ts <= b.ts AS forward
    FROM flow JOIN slice AS a ON slice_out = a.id JOIN slice AS b ON slice_in = b.id
"""


class Opened:
    """A trace that Perfetto has loaded."""

    def __init__(self, of: Traced, folder: Path) -> None:
        file = folder / "trace.json"
        file.write_text(trace_text(of), encoding="utf-8")
        self._processor = opened(file)
        assert self.asked(COMPLAINTS) == []
        self.slices = self.asked(SLICES)

    def asked(self, query: str) -> list[Any]:
        return list(self._processor.query(query))

    def of(self, process: str, thread: str) -> list[Any]:
        return [s for s in self.slices if s.process.startswith(process) and s.thread == thread]

    def args(self, of: Any) -> dict[str, Any]:
        rows = self.asked(
            "SELECT key, string_value, int_value, real_value FROM args"
            f" WHERE arg_set_id = {of.arg_set_id if of.arg_set_id is not None else -1}"
        )
        values = ((row.string_value, row.int_value, row.real_value) for row in rows)
        return {
            row.key.removeprefix("args."): next(v for v in each if v is not None)
            for row, each in zip(rows, values, strict=True)
        }


BRICKS, NODES, WHOLE = "bricks, one after the other", "nodes", "whole model"


def traced(
    proto: onnx.ModelProto | str,
    folder: Path,
    *,
    measured: bool = True,
    compared: bool = False,
    **options: Any,
) -> Traced:
    """Both timelines of a model, after its bricks were measured."""
    given = {"runtime": "fake", "threads": 1, "conditions": SHARED, **options}
    with bricks.Bench(folder / "cache", **given) as bench:
        model = bench.read(proto if isinstance(proto, str) else save(proto, folder, "net.onnx"))
        if compared:
            bench.compare([model])
        elif measured:
            bench.measure([model])
        return bricks.analysis.trace.traced(bench.workspace, model)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Both timelines of a chain on the fake runtime."""
    return traced(mlp(), tmp_path_factory.mktemp("dense"))


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


@pytest.mark.parametrize("name", ["squeezenet", "bert_mini"])
@pytest.mark.slow
def test_both_timelines_of_a_model_are_there_and_joined(name: str, tmp_path: Path) -> None:
    of = traced(name, tmp_path, runtime="onnxruntime", compared=True)
    assert isinstance(of.profile, Profile) and of.whole_s is not None
    trace = Opened(of, tmp_path)
    assert {s.process for s in trace.slices} == {RECOMPOSED, MEASURED}
    call, *laid = trace.of(RECOMPOSED, BRICKS)
    ran = trace.of(MEASURED, NODES)
    count = len(of.plan.occurrences)
    assert (call.name, call.ts, call.dur) == (
        "call of the runtime", 0, ns(of.recomposed.call_s)
    )  # fmt: skip
    assert len(laid) == len(ran) == count
    assert [s.name for s in laid] == [s.name for s in ran]
    assert {s.depth for s in trace.slices} == {0}
    for at, (s, entry) in enumerate(zip(laid, of.recomposed.entries, strict=True)):
        assert isinstance(entry, OccurrenceRun)
        assert (s.ts, s.dur) == pytest.approx(
            (ns(entry.span.begin_s), ns(entry.span.end_s) - ns(entry.span.begin_s)), abs=1 + at
        )
    assert sum(s.dur for s in (call, *laid)) == pytest.approx(
        ns(of.estimate.estimate_s), abs=1 + count
    )
    for s, node_run in zip(ran, of.profile.nodes, strict=True):
        assert (s.ts, s.dur) == pytest.approx(
            (ns(node_run.begin_s), ns(node_run.end_s - node_run.begin_s)), abs=1
        )
    flows = trace.asked(FLOWS)
    assert len(flows) == count
    assert all(flow.same and flow.called and flow.forward for flow in flows)
    (estimated,), (profiled,) = trace.of(RECOMPOSED, WHOLE), trace.of(MEASURED, WHOLE)
    assert estimated.dur == ns(of.estimate.estimate_s)
    assert profiled.dur == ns(of.profile.latency_s)
    facts = trace.args(profiled)
    assert facts["without_profiler_us"] == pytest.approx(of.whole_s.value * 1e6, abs=1e-3)
    assert "writing a profile takes time itself" in facts["remark_1"]


@pytest.mark.slow
def test_the_runtimes_own_overhead_stays_visible(tmp_path: Path) -> None:
    of = traced(mlp(), tmp_path, runtime="onnxruntime")
    trace = Opened(of, tmp_path)
    ran = trace.of(MEASURED, NODES)
    (whole,) = trace.of(MEASURED, WHOLE)
    assert all(0 <= s.ts and s.ts + s.dur <= whole.dur for s in ran)
    assert all(a.ts + a.dur <= b.ts for a, b in itertools.pairwise(ran))
    assert trace.args(whole)["nodes_us"] == pytest.approx(sum(s.dur for s in ran) / 1000)


@pytest.mark.slow
def test_an_occurrence_tells_the_same_in_both_timelines(dense: Traced, tmp_path: Path) -> None:
    of = dense
    trace = Opened(of, tmp_path)
    for position, s in enumerate(trace.of(RECOMPOSED, BRICKS)[1:]):
        brick = of.bricks[of.plan.occurrences[position].brick]
        entry = of.recomposed.entries[position]
        assert trace.args(s) == {
            "occurrence": position,
            "brick": brick.key,
            "operators": ", ".join(brick.operators),
            "flops": brick.flops,
            "bytes": brick.bytes_moved,
            "basis": "measured",
            "recomposed_us": pytest.approx(entry.latency_s.value * 1e6, abs=1e-3),
            "low_us": pytest.approx(entry.latency_s.low * 1e6, abs=1e-3),
            "high_us": pytest.approx(entry.latency_s.high * 1e6, abs=1e-3),
            "node": of.profile.nodes[position].name,
            "profiled_us": pytest.approx(s.dur / 1000, rel=0.01),
        }


@pytest.mark.slow
def test_bodies_of_loops_are_inside_of_their_loops(tmp_path: Path) -> None:
    of = traced(nested_control_flow(), tmp_path, runtime="onnxruntime")
    trace = Opened(of, tmp_path)
    ran = trace.of(MEASURED, NODES)
    assert [s.name for s in ran if s.depth == 0] == ["Tanh", "Loop"]
    assert max(s.depth for s in ran) > 1
    assert len(ran) == len(of.profile.nodes)
    assert len(trace.asked(FLOWS)) == 2
    inner = next(s for s in ran if s.depth == 1)
    assert trace.args(inner)["inside_of_another"]


@pytest.mark.slow
@pytest.mark.parametrize("runtime", ["fake", "onnxruntime"])
def test_workers_have_a_thread_each(runtime: str, tmp_path: Path) -> None:
    of = traced(branches(2 if runtime == "onnxruntime" else 64), tmp_path, runtime=runtime,
                workers=2)  # fmt: skip
    trace = Opened(of, tmp_path)
    lanes = {s.thread for s in trace.slices if s.process == RECOMPOSED}
    threads = set(of.recomposed.lanes)
    assert lanes - {"remark"} == {WHOLE, *(threads if len(threads) > 1 else {BRICKS})}
    for lane in lanes:
        own = trace.of(RECOMPOSED, lane)
        assert all(a.ts + a.dur <= b.ts for a, b in itertools.pairwise(own))
    assert len(trace.asked(FLOWS)) == len(of.plan.occurrences)
    assert {s.depth for s in trace.slices} == {0}


@pytest.mark.slow
def test_what_has_no_measurement_is_named_and_takes_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Sigmoid=error")
    of = traced(chain("Tanh", "Sigmoid", "Sigmoid", "Relu"), tmp_path)
    assert isinstance(of.estimate, bricks.IncompleteEstimate)
    trace = Opened(of, tmp_path)
    assert {s.process for s in trace.slices} == {f"{RECOMPOSED} (incomplete)"}
    holes = trace.of(RECOMPOSED, "no measurement")
    assert [s.dur for s in holes] == [0, 0]
    why = "no measurement: while running: failed as ordered by BRICKS_FAKE_FAULTS"
    assert {s.name for s in holes} <= {why, why.replace("while running: ", "")}
    assert [trace.args(s)["occurrence"] for s in holes] == [1, 2]
    tanh, relu = trace.of(RECOMPOSED, BRICKS)[1:]
    assert holes[0].ts == tanh.ts + tanh.dur == relu.ts
    assert {s.depth for s in trace.slices} == {0}
    (whole,) = trace.of(RECOMPOSED, WHOLE)
    assert whole.name == "net (incomplete)"
    notes = [s.name for s in trace.of(RECOMPOSED, "remark")]
    assert notes[0].startswith(
        "incomplete: 2 of 4 occurrences have no measurement, and no duration"
    )
    assert notes[1].startswith("no profile beside it: net: ")


@pytest.mark.slow
def test_what_takes_nothing_is_not_drawn_inside_of_its_neighbour(
    dense: Traced, tmp_path: Path
) -> None:
    """A view of another value: each has a nanosecond, which the format cannot do without."""
    of = dense
    first, *others = of.recomposed.entries
    at_s = first.span.end_s
    nothing = [replace(e, span=replace(e.span, begin_s=at_s, end_s=at_s)) for e in others]
    of = replace(of, recomposed=replace(of.recomposed, entries=(first, *nothing)))
    trace = Opened(of, tmp_path)
    laid = trace.of(RECOMPOSED, BRICKS)[1:]
    assert {s.depth for s in trace.slices} == {0}
    assert [s.dur for s in laid[1:]] == [1] * len(others)
    assert [trace.args(s)["occurrence"] for s in laid] == list(range(len(laid)))


@pytest.mark.slow
def test_layers_that_overlap_are_taken_away_by_name(tmp_path: Path) -> None:
    of = traced(conv_net(), tmp_path, granularity="2+1")
    trace = Opened(of, tmp_path)
    subtracted = trace.of(RECOMPOSED, "taken away")
    assert len(subtracted) == sum(o.repeats is not None for o in of.plan.occurrences) > 0
    assert all(s.name.startswith("taken away: ") and s.dur == 0 for s in subtracted)
    laid = trace.of(RECOMPOSED, BRICKS)
    expected = ns(of.estimate.estimate_s + of.recomposed.excess_s)
    assert sum(s.dur for s in laid) == pytest.approx(expected, abs=len(laid))
    assert trace.asked(FLOWS) == []
    why = "not joined with the bricks: bricks of granularity 2+1 are not the nodes"
    assert any(s.name.startswith(why) for s in trace.of(MEASURED, "remark"))


HOSTILE = [
    '"', "\\", "\\u0041", "</script><script>", "a\nb\tc", "\x1b[31m", "\u202egpj", "\ud800",
    "名前", "é", '"}],"x":[{"', "%s{0}", "\x00", "x" * 5000, "",
]  # fmt: skip


def shown(name: str) -> str:
    """A name that is printable, and has no backslash, which Perfetto would not read."""
    return printable(name).replace("\\", BACKSLASH)


def with_hostile_names(folder: Path) -> Traced:
    of = traced(chain(*["Tanh"] * len(HOSTILE)), folder)
    assert isinstance(of.profile, Profile)
    nodes = tuple(
        replace(run, name=name) for run, name in zip(of.profile.nodes, HOSTILE, strict=True)
    )
    return replace(
        of,
        plan=replace(of.plan, model='</name> "\\ \u202e\n\\'),
        profile=replace(of.profile, nodes=nodes),
    )


def test_names_are_printable_and_hold_no_backslash(tmp_path: Path) -> None:
    of = with_hostile_names(tmp_path)
    events = json.loads(trace_text(of))["traceEvents"]
    nodes = [event["args"]["node"] for event in events if "node" in event.get("args", {})]
    assert len(nodes) >= len(HOSTILE)
    for name in (*nodes, *(event["name"] for event in events)):
        assert name.isprintable() and "\\" not in name
    assert shown(of.plan.model) in {event["name"] for event in events}


@pytest.mark.slow
def test_names_from_models_arrive_as_they_are_and_printable(tmp_path: Path) -> None:
    of = with_hostile_names(tmp_path)
    trace = Opened(of, tmp_path)
    arrived = [trace.args(s)["node"] for s in trace.of(MEASURED, NODES)]
    assert arrived.pop() == "no name"
    for name, found in zip(HOSTILE[:-1], arrived, strict=True):
        assert found.isprintable()
        assert len(found) <= 120
        short = len(name) > 120 and shown(name).startswith(found.removesuffix("…"))
        assert short or found == shown(name)
    assert trace.of(MEASURED, WHOLE)[0].name == shown(of.plan.model)


def test_a_node_takes_less_than_a_kilobyte(tmp_path: Path) -> None:
    proto = chain(*["Tanh", "Sigmoid"] * 100, width=4096)
    for i, each in enumerate(proto.graph.node):
        each.name = f"/encoder/layer.{i % 12}/attention/self/query/{each.op_type}_{i}"
    text = trace_text(traced(proto, tmp_path))
    assert len(json.loads(text)["traceEvents"]) > 400
    assert len(text.encode()) < 200e3


@pytest.mark.slow
def test_where_there_is_no_profile_the_recomposed_timeline_says_so(
    dense: Traced, tmp_path: Path
) -> None:
    of = replace(dense, profile=NoProfile("mxnet has no profile of its own"))
    trace = Opened(of, tmp_path)
    assert {s.process for s in trace.slices} == {RECOMPOSED}
    assert [s.name for s in trace.of(RECOMPOSED, "remark")] == [
        "no profile beside it: mxnet has no profile of its own"
    ]
    assert "node" not in trace.args(trace.of(RECOMPOSED, BRICKS)[1])


def test_predicted_and_left_out_are_told(dense: Traced) -> None:
    assert isinstance(dense.profile, Profile)
    of = replace(
        dense,
        estimate=replace(dense.estimate, predicted_share=0.25),
        profile=replace(dense.profile, omitted=7),
    )
    notes = trace_notes(of)
    assert "25.0 % of the time is of bricks that were predicted, not measured" in notes[RECOMPOSED]
    assert "7 nodes inside of others are left out" in notes[MEASURED]
    assert json.loads(trace_text(of))["otherData"]["remarks"] == [
        *notes[RECOMPOSED], *notes[MEASURED]
    ]  # fmt: skip


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return save(chain("Tanh", "Relu"), tmp_path, "net.onnx")


def test_explain_writes_a_trace_or_says_why_it_cannot(
    here: Here, net: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    done = here("explain", net, "--json", "--trace", file)
    assert done.status == 0, done.err
    facts, written = done.json["trace"], json.loads(file.read_text(encoding="utf-8"))
    assert (facts["file"], facts["error"]) == (str(file), None)
    assert facts["remarks"] == written["otherData"]["remarks"]
    events = written["traceEvents"]
    assert [e["name"] for e in events if e["ph"] == "X" and e["pid"] == 2] == [
        "net",
        "Tanh",
        "Relu",
    ]
    done = here("explain", net, "--trace", file)
    assert f"{file}: open it in ui.perfetto.dev" in done.out
    assert here("explain", net, "--json").json["trace"] is None
    missing = tmp_path / "none" / "trace.json"
    done = here("explain", net, "--trace", missing)
    assert done.status == 1
    assert str(missing) in done.complaint and "No such file or directory" in done.complaint
    done = here("explain", net, "squeezenet", "--trace", file)
    assert done.status == 2
    assert "not 2" in done.complaint


def test_nothing_is_run_where_nothing_is_to_be_measured(
    here: Here, net: Path, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    done = here("explain", net, "--no-measure", "--trace", file)
    assert done.status == 1
    assert "incomplete: 2 of 2 occurrences have no measurement" in done.out
    assert "no profile beside it: the model was not to be run" in done.out
    assert json.loads(file.read_text(encoding="utf-8"))["otherData"]["complete"] is False


def test_a_model_that_cannot_be_read_is_told_once(here: Here, tmp_path: Path) -> None:
    file = tmp_path / "net.onnx"
    file.write_bytes(b"no model")
    done = here("explain", file, "--trace", tmp_path / "t.json")
    assert done.status == 1
    assert "net" in done.complaint
    assert not (tmp_path / "t.json").exists()
