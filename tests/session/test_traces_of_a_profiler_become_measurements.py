from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import profiler_traces as kineto
import pytest
import recorded_programs
from commands import Here
from refusals import refused

from bricks.backends.profiler_trace import Unmatched
from bricks.cli.cache import WHY
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition
from bricks.errors import StoreError, UsageError
from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER, PER_CALL
from bricks.graph.model import Model
from bricks.graph.view import graph_of
from bricks.samples.call_overhead import ALL_PROBES, PHASE_PROBES
from bricks.samples.measurement import Measurement
from bricks.session.trace_import import ImportedTrace, TracedHost, TraceImport, trace_offer
from bricks.store import Store
from bricks.units.sample import Kernel

X, W, Y = (
    kineto.tensor([2, 8], [8, 1]),
    kineto.tensor([8, 4], [4, 1]),
    kineto.tensor([2, 4], [4, 1]),
)
HOST = TracedHost("cluster", threads=4, version="2.11.0")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cache") as opened:
        yield opened


@pytest.fixture
def program() -> Decomposition:
    """Cut ``relu(x w)`` into its calls."""
    proto = recorded_programs.inference_step()
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    model = Model("inference", Path(), skeleton, (), digest)
    return build(model, graph_of(proto), Granularity.parse("executed"))


def steps(count: int, mm_us: float = 10.0) -> list[dict[str, Any]]:
    """Steps of the program, each 1 ms: ``mm`` within a composite operator, ``relu`` with inners."""
    events = []
    for n in range(count):
        begin = 1000.0 * n
        events += [
            kineto.step(n, begin, begin + 900),
            kineto.call("aten::matmul", [X, W], begin + 1, begin + 3 + mm_us + n),
            kineto.call("aten::mm", [X, W], begin + 2, begin + 2 + mm_us + n),
            kineto.call("aten::resolve_conj", [X], begin + 3, begin + 4),
            kineto.call("aten::relu", [Y], begin + 100, begin + 105),
            kineto.call("aten::clamp_min", [Y, kineto.number("0")], begin + 101, begin + 104),
        ]
    return events


def imported(
    store: Store, path: Path, ran: Decomposition | None = None, host: TracedHost = HOST
) -> ImportedTrace:
    found = trace_offer(path)
    assert found is not None
    return TraceImport(store, *found).run(path, host, ran and (lambda target: ran))


def written(tmp_path: Path, events: Sequence[Any], name: str = "t.json", **facts: Any) -> Path:
    return kineto.write(tmp_path / name, kineto.trace(events, **facts))


def measured(store: Store, of: ImportedTrace, operator: str, program: Decomposition) -> Measurement:
    (key,) = (k for k, b in program.bricks.items() if b.operators[0].endswith(f".{operator}"))
    result = store.measurements.results(of.target.key, [key])[key]
    assert isinstance(result, Measurement)
    return result


def test_calls_of_a_model_that_ran_become_samples_step_by_step(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    of = imported(store, written(tmp_path, steps(3), "t.json.gz"), program)
    assert (of.calls, of.matched, of.bricks) == (6, 6, 2)
    mm = measured(store, of, "mm", program)
    assert [round_.host_s for round_ in mm.rounds] == [
        (pytest.approx(1e-6 * us),) for us in (10, 11, 12)
    ]
    assert (of.target.system.name, of.target.runtime.threads) == ("cluster", 4)
    assert (of.target.runtime.version, of.target.runtime.provider) == ("2.11.0", "CPU")


def test_a_trace_that_is_imported_twice_adds_nothing(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    path = written(tmp_path, steps(2))
    first = imported(store, path, program).merged
    assert first.rounds > 0
    again = imported(store, path)
    assert (again.matched, again.merged.rounds) == (4, 0)
    assert again.merged.known == first.measurements
    assert store.contents.verify() == []


def test_calls_that_differ_in_one_fact_are_no_samples(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    others = [
        kineto.call("aten::mm", [kineto.tensor([2, 8], [8, 1], "c10::Half"), W], 0, 5),
        kineto.call("aten::mm", [kineto.tensor([4, 8], [8, 1]), W], 10, 15),
        kineto.call("aten::mm", [kineto.tensor([2, 8], [1, 2]), W], 20, 25),
        kineto.call("aten::bmm", [X, W], 30, 35),
        kineto.call("aten::relu", [Y], 40, 45),
    ]
    of = imported(store, written(tmp_path, others), program)
    assert (of.calls, of.matched) == (5, 1)
    assert of.unknown == {"aten::mm": 3, "aten::bmm": 1}


def test_strides_along_dimensions_of_one_element_do_not_count(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    one = kineto.tensor([2, 4], [4, 1])
    of = imported(store, written(tmp_path, [kineto.call("aten::relu", [one], 0, 5)]), program)
    assert of.matched == 1


def test_runs_within_one_step_are_rounds_of_their_own(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    calls = [kineto.call("aten::relu", [Y], 10 * n, 10 * n + 5 + n) for n in range(4)]
    of = imported(store, written(tmp_path, calls), program)
    assert [len(r.host_s) for r in measured(store, of, "relu", program).rounds] == [1, 1, 1, 1]


def test_kernels_are_those_that_a_call_has_launched(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    events = [
        *steps(1),
        kineto.launch(7, 4.0), kineto.kernel(7, "gemm", 30, 37),
        kineto.launch(8, 6.0), kineto.kernel(8, "splitK", 37, 39),
        kineto.launch(9, 102.0), kineto.kernel(9, "elementwise", 110, 111.5),
        kineto.kernel(99, "of nobody", 120, 130),
    ]  # fmt: skip
    path = written(tmp_path, events, devices=[kineto.H100])
    of = imported(store, path, program, TracedHost())
    accelerator = of.target.system.accelerator
    assert accelerator is not None and accelerator.name == kineto.H100["name"]
    assert (of.target.runtime.provider, of.loose_kernels) == ("CUDA", 1)
    (mm,) = measured(store, of, "mm", program).samples
    assert mm.kernels == (
        Kernel("gemm", pytest.approx(7e-6)),
        Kernel("splitK", pytest.approx(2e-6)),
    )
    (relu,) = measured(store, of, "relu", program).samples
    assert [each.name for each in relu.kernels] == ["elementwise"]


def test_a_call_of_the_backward_pass_owns_what_its_thread_has_launched(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    events = [
        kineto.call("aten::relu", [Y], 0, 50),
        kineto.call("aten::mm", [X, W], 10, 20, kineto.BACKWARD),
        kineto.launch(1, 12, kineto.BACKWARD), kineto.kernel(1, "gemm", 30, 37),
        kineto.launch(2, 13), kineto.kernel(2, "elementwise", 40, 41),
    ]  # fmt: skip
    of = imported(store, written(tmp_path, events, devices=[kineto.H100]), program, TracedHost())
    (mm,) = measured(store, of, "mm", program).samples
    assert [each.name for each in mm.kernels] == ["gemm"]


def test_a_call_whose_kernel_was_not_traced_is_left_out(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    events = [
        *steps(1),
        kineto.launch(7, 4.0),
        kineto.launch(9, 102.0), kineto.kernel(9, "elementwise", 110, 111.5),
    ]  # fmt: skip
    of = imported(store, written(tmp_path, events, devices=[kineto.H100]), program, TracedHost())
    assert (of.calls, of.unfinished) == (1, 1)


def test_without_the_model_what_a_trace_does_not_tell_is_no_match(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    path = written(tmp_path, steps(1))
    with refused(StoreError, path, "--model"):
        imported(store, path)
    assert store.systems.all() == []


@pytest.mark.parametrize("rows", [2, 100])
def test_a_gather_is_known_only_where_what_reads_its_rows_proves_their_number(
    store: Store, tmp_path: Path, rows: int
) -> None:
    ran = decomposed(recorded_programs.gathering_step())
    events = [
        kineto.call("aten::index", [kineto.tensor([2, 8], [8, 1]), kineto.NOTHING], 0, 5),
        kineto.call("aten::relu", [kineto.tensor([rows, 4], [4, 1])], 10, 15),
    ]
    path = written(tmp_path, events)
    if rows == 2:
        assert imported(store, path, ran).matched == 2
    else:
        with refused(StoreError, path, "with the same shapes"):
            imported(store, path, ran)


def decomposed(proto: onnx.ModelProto) -> Decomposition:
    skeleton = proto.SerializeToString(deterministic=True)
    model = Model("program", Path(), skeleton, (), "m1-" + "0" * 16)
    return build(model, graph_of(proto), Granularity.parse("executed"))


def gathers(*rows: int, relus: Sequence[int] = (0, 1)) -> list[dict[str, Any]]:
    """Calls of a gather of so many rows each, a microsecond a row, and of what reads them."""
    calls = []
    for n, count in enumerate(rows):
        of = [kineto.tensor([2, 8], [8, 1]), kineto.NOTHING]
        calls.append(kineto.call("aten::index", of, 500 * n, 500 * n + count))
        if n in relus:
            read = [kineto.tensor([count, 4], [4, 1])]
            at = 500 * n + 200
            calls.append(kineto.call("aten::relu", read, at, at + 1))
    return calls


def test_gathers_of_two_lengths_are_told_by_what_reads_each(store: Store, tmp_path: Path) -> None:
    ran = decomposed(recorded_programs.gathering_twice())
    of = imported(store, written(tmp_path, gathers(2, 100)), ran)
    assert (of.calls, of.matched, of.left_out) == (4, 4, {})
    keys = [key for key, brick in ran.bricks.items() if brick.operators[0].endswith("index.Tensor")]
    found = store.measurements.results(of.target.key, keys)
    taken = [round(1e6 * found[key].rounds[0].host_s[0]) for key in keys]  # type: ignore[union-attr]  # measured
    assert sorted(taken) == [2, 100]


def test_gathers_that_nothing_tells_apart_are_left_out_for_that_reason(
    store: Store, tmp_path: Path
) -> None:
    ran = decomposed(recorded_programs.gathering_twice())
    apart, both = gathers(2, 100), gathers(2, 100, relus=())
    read = [call for call in apart if call["name"] == "aten::relu"]
    of = imported(store, written(tmp_path, [*both, *read][:3]), ran)
    assert of.left_out == {Unmatched.SEVERAL: {"aten::index": 2}}
    path = written(tmp_path, [*gathers(2), gathers(2)[0] | {"ts": 400}], "again.json")
    of = imported(store, path, decomposed(recorded_programs.gathering_step()))
    assert (of.matched, of.left_out) == (2, {Unmatched.UNPROVEN: {"aten::index": 1}})
    of = imported(store, path)
    assert of.left_out == {Unmatched.UNNAMED: {"aten::index": 2}}
    of = imported(store, path, decomposed(recorded_programs.inference_step()))
    assert of.left_out == {Unmatched.FOREIGN: {"aten::index": 2}}


@pytest.mark.parametrize("tensors", [40, 41])
def test_a_list_too_long_to_be_written_needs_proof(
    store: Store, tmp_path: Path, tensors: int
) -> None:
    ran = decomposed(recorded_programs.joining(40))
    events = [
        kineto.call("aten::cat", [kineto.NOTHING, kineto.number("0")], 0, 5),
        kineto.call("aten::relu", [kineto.tensor([2 * tensors, 8], [8, 1])], 10, 15),
    ]
    path = written(tmp_path, events)
    if tensors == 40:
        assert imported(store, path, ran).matched == 2
    else:
        with refused(StoreError, path):
            imported(store, path, ran)


def test_what_the_command_says_of_a_trace_fits_eighty_columns() -> None:
    assert all(len(line) <= 80 for lines in WHY.values() for line in lines)
    assert WHY.keys() == set(Unmatched)


def test_a_trace_of_another_host_needs_a_name(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    path = written(tmp_path, steps(1), host_name="somewhere.example")
    with refused(UsageError, path, "--host"):
        imported(store, path, program, TracedHost())
    assert imported(store, path, program).matched == 2


def test_a_gpu_without_known_facts_is_refused(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    events = [*steps(1), kineto.launch(7, 4.0), kineto.kernel(7, "gemm", 30, 37)]
    card = {**kineto.H100, "name": "NVIDIA X900"}
    path = written(tmp_path, events, devices=[card])
    with refused(StoreError, path, card["name"]):
        imported(store, path, program)


def without(events: Sequence[Any], *names: str) -> list[Any]:
    """The events without these arguments."""
    return [{**e, "args": {k: v for k, v in e["args"].items() if k not in names}} for e in events]


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (kineto.trace(without(steps(1), "Input Dims", "Input Strides")), "record_shapes=True"),
        (kineto.trace(without(steps(1), "Input Strides")), "strides"),
        (kineto.trace([kineto.step(1, 0, 5)]), "ProfilerActivity.CPU"),
        ({**kineto.trace(steps(1)), "schemaVersion": 2}, "2"),
        ({"traceEvents": []}, "version"),
        (kineto.trace([{**steps(1)[2], "ts": "soon"}]), "export"),
        (kineto.trace([{k: v for k, v in steps(1)[2].items() if k != "tid"}]), "export"),
        (kineto.trace(["nothing"]), "export"),
        (kineto.trace(without(steps(1), "Input type")), "export"),
    ],
    ids=[
        "shapes", "strides", "calls", "later", "older", "time", "thread", "event", "types",
    ],
)  # fmt: skip
def test_a_trace_that_tells_too_little_is_refused_in_one_line(
    store: Store, program: Decomposition, tmp_path: Path, content: Any, fact: str
) -> None:
    path = kineto.write(tmp_path / "t.json", content)
    with refused(StoreError, path, fact):
        imported(store, path, program)
    assert store.systems.all() == []


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_that_is_cut_off_is_refused(
    store: Store, program: Decomposition, tmp_path: Path, packed: bool
) -> None:
    text = json.dumps(kineto.trace(steps(300))).encode()
    content = gzip.compress(text) if packed else text
    path = tmp_path / "t.json"
    path.write_bytes(content[: len(content) // 2])
    with refused(StoreError, path):
        imported(store, path, program)


def test_the_command_tells_what_calls_are(
    here: Here, program: Decomposition, tmp_path: Path
) -> None:
    path = written(tmp_path, [*steps(2), kineto.call("aten::bmm", [X, W], 5000, 5001)])
    with Store.open(here.cache) as store:
        imported(store, path, program)
    said = ("--host", "cluster", "--threads", 4, "--runtime-version", "2.11.0")
    result = here("cache", "import", path, *said, "--json", runtime=None)
    facts = result.json
    assert (facts["calls"], facts["matched_calls"], facts["matched_bricks"]) == (5, 4, 2)
    assert (facts["unknown"], facts["rounds"]) == ({"aten::bmm": 1}, 0)
    assert (facts["system"]["name"], facts["runtime"]["threads"]) == ("cluster", 4)
    assert "aten::bmm" in here("cache", "import", path, *said, runtime=None).out


def test_options_of_traces_are_refused_where_they_say_nothing(here: Here, tmp_path: Path) -> None:
    trace = written(tmp_path, steps(1))
    results = tmp_path / "results.jsonl"
    results.write_text('{"format":{"name":"bricks-results","version":1}}\n')
    for words, fact in (((trace, "--batch", 2), "--model"), ((results, "--host", "x"), results)):
        result = here("cache", "import", *words, runtime=None)
        assert result.status == 2 and str(fact) in result.complaint


def test_other_files_are_no_traces(tmp_path: Path) -> None:
    for content in (b"", b"{}", b'{"format": {"name": "bricks-results"}}', b"\x1f\x8bno gzip"):
        path = tmp_path / "file"
        path.write_bytes(content)
        assert trace_offer(path) is None
    assert trace_offer(tmp_path / "missing") is None


def test_what_steps_take_beyond_their_calls_is_call_overhead_by_phase(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    events = [
        kineto.step(1, 0, 100),
        kineto.call("aten::mm", [X, W], 10, 20),
        kineto.event("autograd::engine::evaluate_function: MmBackward0", "cpu_op", 30, 60),
        kineto.call("aten::relu", [Y], 40, 45, kineto.BACKWARD),
        kineto.call("aten::relu", [Y], 50, 55, kineto.BACKWARD),
        kineto.event("Optimizer.step#SGD.step", "user_annotation", 80, 95),
        kineto.call("aten::relu", [Y], 85, 90),
    ]
    of = imported(store, written(tmp_path, events), program)
    results = store.measurements.results(of.target.key, ALL_PROBES)
    probes = {key: each for key, each in results.items() if isinstance(each, Measurement)}
    per_call = {
        phase: tuple(probes[key].host_s[0] for key in PHASE_PROBES[phase][PER_CALL])
        for phase in (FORWARD, BACKWARD, OPTIMIZER)
    }
    assert per_call == {
        FORWARD: pytest.approx((30e-6, 10e-6)),
        BACKWARD: pytest.approx((25e-6, 5e-6)),
        OPTIMIZER: pytest.approx((20e-6, 5e-6)),
    }
    assert PHASE_PROBES[INFERENCE][PER_CALL][0] not in results


def test_without_steps_a_trace_tells_no_call_overhead(
    store: Store, program: Decomposition, tmp_path: Path
) -> None:
    of = imported(store, written(tmp_path, [kineto.call("aten::relu", [Y], 0, 5)]), program)
    assert store.measurements.results(of.target.key, ALL_PROBES) == {}
