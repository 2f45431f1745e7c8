"""A runtime's own profile: taken in the worker, and joined with the plan's occurrences."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import chain
from factories import branches, conv_net, mlp, save
from fork_server import children
from mxnet_environment import python as mxnet_python
from refusals import refused
from tiers import slow_but
from unusual import nested_control_flow, scan

import bricks
from bricks.backends.base import NodeEvent, Profiler, capability
from bricks.backends.fake.backend import CALL_OVERHEAD_S, PROFILING_S, FakeBackend, node_latency_s
from bricks.backends.onnxruntime.loaded import ProfiledSession
from bricks.errors import BackendError
from bricks.measure.worker import whole_models as worker_models
from bricks.measure.worker.whole_models import typical_run
from bricks.samples.whole_models import NodeRun, Profile, TypicalRun, profile_of
from bricks.session import whole_models

# No latency is looked at: others may measure meanwhile.
SHARED = bricks.Conditions(exclusive=False)


def profiled(proto: onnx.ModelProto | str, folder: Path, **options: Any) -> tuple[Profile, Any]:
    """A model's profile, and how it was decomposed."""
    with bricks.Bench(folder / "cache", threads=1, conditions=SHARED, **options) as bench:
        model = bench.read(proto if isinstance(proto, str) else save(proto, folder))
        return whole_models.profile(bench.workspace, model), bench.decompose(model)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., tuple[Profile, Any]]]:
    """The profile that ONNX Runtime takes of a model, and how that was decomposed."""
    folder = tmp_path_factory.mktemp("ran")
    options: dict[str, Any] = {"runtime": "onnxruntime", "threads": 1, "conditions": SHARED}
    with bricks.Bench(folder / "cache", **options) as bench:

        def ran(proto: onnx.ModelProto | str) -> tuple[Profile, Any]:
            model = bench.read(proto)
            return whole_models.profile(bench.workspace, model), bench.decompose(model)

        yield ran


HOSTILE_NAMES = ('"', "\\", "a\nb", '","ts":0,"x":"', "\u202e", "x" * 5000)


def with_hostile_names() -> onnx.ModelProto:
    """Names that would break a profile which holds them as they are."""
    proto = branches(2)
    for node, name in zip(proto.graph.node, HOSTILE_NAMES, strict=False):
        node.name = name
    return proto


def operators(decomposition: Any) -> list[str]:
    """Of each occurrence, without its domain."""
    plan, of = decomposition.plan, decomposition.bricks
    return [of[o.brick].operators[0].rpartition(".")[2] for o in plan.occurrences]


@pytest.mark.parametrize(
    "name", slow_but(lambda name: name == "squeezenet", ["squeezenet", "bert_mini"])
)
def test_the_nodes_that_the_runtime_runs_are_the_plans_occurrences(name: str, ran: Any) -> None:
    found, decomposition = ran(name)
    assert found.unmatched is None
    assert [node.position for node in found.nodes] == list(range(len(found.nodes)))
    assert [node.operator for node in found.nodes] == operators(decomposition)
    ends = [node.end_s for node in found.nodes]
    assert all(end <= node.begin_s for end, node in zip(ends, found.nodes[1:], strict=False))
    assert 0 < found.nodes_s <= ends[-1] <= found.latency_s
    assert len(found.runs_s) == worker_models.RUNS
    assert sorted(found.runs_s)[worker_models.RUNS // 2] == found.latency_s


@pytest.mark.parametrize("proto", [nested_control_flow(), scan()], ids=["loop", "scan"])
def test_what_runs_inside_of_a_node_is_inside_of_it(proto: onnx.ModelProto, ran: Any) -> None:
    found, decomposition = ran(proto)
    assert found.unmatched is None
    outer = [node for node in found.nodes if not node.inner]
    assert [node.operator for node in outer] == operators(decomposition)
    assert found.nodes[0].position == 0
    inner = found.nodes[found.nodes.index(outer[1]) + 1 :]
    assert len(inner) == len(found.nodes) - 2 > 0
    for node in inner:
        assert outer[1].begin_s <= node.begin_s <= node.end_s <= outer[1].end_s
    assert found.nodes_s == pytest.approx(sum(node.end_s - node.begin_s for node in outer))


def test_nodes_of_streams_are_known_by_their_place(tmp_path: Path) -> None:
    proto = with_hostile_names()
    found, decomposition = profiled(proto, tmp_path, runtime="onnxruntime", workers=2)
    assert found.unmatched is None
    assert len(found.nodes) == len(proto.graph.node)
    joined = found.of_occurrences
    assert [joined[i].operator for i in range(len(joined))] == operators(decomposition)
    assert not any(node.name.isdecimal() for node in found.nodes)
    for node, producers in enumerate(decomposition.plan.producers()):
        assert all(joined[p].end_s <= joined[node].begin_s for p in producers)


def test_names_that_would_break_a_profile_do_not(ran: Any) -> None:
    proto = with_hostile_names()
    found, _ = ran(proto)
    assert found.unmatched is None
    assert len(found.nodes) == len(proto.graph.node)


@pytest.mark.slow
def test_a_graph_that_is_ordered_otherwise_each_time_is_found_again(ran: Any) -> None:
    """Layouts change in several places, by nodes that the runtime adds in any order."""
    found, decomposition = ran("gluon_senet_154")
    assert found.unmatched is None
    joined = found.of_occurrences
    assert [joined[i].operator for i in range(len(joined))] == operators(decomposition)
    for node, producers in enumerate(decomposition.plan.producers()):
        assert all(joined[p].end_s <= joined[node].begin_s + 1e-9 for p in producers)


def test_nodes_without_names_of_their_own_are_told_apart(ran: Any) -> None:
    proto = branches(2)
    for each in proto.graph.node:
        each.name = "" if each.op_type == "MatMul" else "same"
    found, decomposition = ran(proto)
    assert (found.unmatched, found.unsure) == (None, 0)
    names = [node.name for node in found.nodes]
    assert len({*names}) == len(decomposition.plan.occurrences)
    assert "unnamed MatMul (0)" in names and "same" in names


def test_bricks_of_the_source_graph_are_not_joined_with_nodes(tmp_path: Path) -> None:
    found, _ = profiled(conv_net(), tmp_path, runtime="fake", granularity="3")
    assert found.unmatched == "bricks of granularity 3 are not the nodes that the runtime runs"
    assert found.of_occurrences == {}
    assert found.nodes_s > 0


def test_the_fake_runtime_tells_what_it_makes_up(tmp_path: Path) -> None:
    found, decomposition = profiled(mlp(), tmp_path, runtime="fake")
    plan = decomposition.plan
    times_s = [node_latency_s(occurrence.brick) for occurrence in plan.occurrences]
    overhead_s = CALL_OVERHEAD_S + len(times_s) * PROFILING_S
    assert found.latency_s == pytest.approx(sum(times_s) + overhead_s)
    assert [node.end_s - node.begin_s for node in found.nodes] == pytest.approx(times_s)
    assert found.nodes[0].begin_s == pytest.approx(CALL_OVERHEAD_S / 2)
    again, _ = profiled(mlp(), tmp_path, runtime="fake")
    assert again == found


def test_a_profile_is_taken_in_a_worker_that_holds_nothing_else(tmp_path: Path) -> None:
    """What measuring has left there would count against the memory that the model may take."""
    with bricks.Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        model = bench.read(save(mlp(), tmp_path))
        bench.measure([model])
        before = {child.pid for child in children()}
        whole_models.profile(bench.workspace, model)
        after = {child.pid for child in children()}
        assert len(before - after) == len(after - before) == 1
        assert bench.measure([bench.read(save(conv_net(), tmp_path))]).new_bricks > 0


def test_the_fake_runtimes_streams_are_threads(tmp_path: Path) -> None:
    found, _ = profiled(branches(), tmp_path, runtime="fake", workers=2)
    assert found.lanes == 2
    assert found.unmatched is None


def test_a_fault_while_it_is_profiled_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Relu=crash")
    with refused(bricks.WorkerError, "model", "SIGABRT"):
        profiled(mlp(), tmp_path, runtime="fake")


def test_a_backend_without_a_profile_is_refused_by_name() -> None:
    with refused(BackendError, "mine", "profile"):
        capability(object(), Profiler, "mine")
    assert isinstance(capability(FakeBackend(), Profiler, "fake"), FakeBackend)


@pytest.mark.slow
def test_mxnet_is_refused_by_name(tmp_path: Path) -> None:
    mxnet_python()
    with refused(bricks.WorkerError, "model", "mxnet"):
        profiled(mlp(), tmp_path, runtime="mxnet")


class Runs:
    """A profile whose runs take what they are said to."""

    def __init__(self, *latencies_s: float, nodes: int = 1, inner: int = 0) -> None:
        self._left = [*([9.0] * worker_models.WARM_UPS), *latencies_s]
        self._kinds = [False] * nodes + [True] * inner
        self.taken: list[float] = []

    def sample(self) -> float:
        self.taken.append(self._left.pop(0))
        return self.taken[-1]

    def runs(self) -> list[list[NodeEvent]]:
        return [
            [NodeEvent(f"run {i}", "Relu", 0.0, taken, 7, inner) for inner in self._kinds]
            for i, taken in enumerate(self.taken)
        ]


def test_the_run_in_the_middle_is_the_typical_one() -> None:
    latencies = (0.3, 0.1, 0.2, 0.5, 0.4, 0.9, 0.8, 0.7, 0.6)
    found = typical_run(Runs(*latencies))
    assert found.runs_s == latencies
    assert latencies[found.typical] == 0.5
    assert found.nodes == (NodeRun(f"run {worker_models.WARM_UPS + 3}", "Relu", 0.0, 0.5, 7),)


def test_a_model_that_takes_long_is_run_less_often() -> None:
    found = typical_run(Runs(*[worker_models.ENOUGH_S] * 9))
    assert len(found.runs_s) == worker_models.MIN_RUNS


def test_of_countless_inner_nodes_some_are_left_out_and_counted() -> None:
    found = typical_run(Runs(*[0.1] * 9, nodes=2, inner=worker_models.MAX_INNER + 5))
    assert len(found.nodes) == 2 + worker_models.MAX_INNER
    assert found.omitted == 5


def run(*nodes: tuple[str, str, float, float, int, bool]) -> TypicalRun:
    return TypicalRun((1.0,), 0, tuple(NodeRun(*node) for node in nodes), omitted=0)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> bricks.Decomposition:
    """A Tanh and a Relu."""
    folder = tmp_path_factory.mktemp("two")
    with bricks.Bench(folder / "cache", runtime="fake") as bench:
        return bench.decompose(bench.read(save(chain("Tanh", "Relu"), folder)))


@pytest.mark.parametrize("names", ["Tanh", "Tanh Relu Relu", "Tanh Tanh", "Relu Tanh"])
def test_nodes_that_are_not_the_plans_are_not_taken_for_them(
    names: str, two: bricks.Decomposition
) -> None:
    nodes = [(f"n{i}", operator, i, i + 1, 0, False) for i, operator in enumerate(names.split())]
    found = profile_of(run(*nodes), two, two.plan, ["n0", "n1"])
    assert found.unmatched == f"the {len(nodes)} nodes that the runtime ran are not the plan's 2"
    assert found.of_occurrences == {}


def test_nodes_that_stand_for_several_are_not_joined(two: bricks.Decomposition) -> None:
    nodes = [(f"n{i}", operator, i, i + 1, 0, False) for i, operator in enumerate(("Tanh", "Relu"))]
    found = profile_of(run(*nodes), two, two.plan, ["n0", "n1", "n2"])
    assert found.unmatched == "the runtime runs several nodes of the model as one"


def test_nodes_that_began_at_once_are_in_the_order_in_which_they_ended(
    two: bricks.Decomposition,
) -> None:
    """As with a clock of whole microseconds: the first, then the second with what is inside."""
    nodes = [
        ("first", "Tanh", 5.0, 5.0, 77, False),
        ("inner", "Neg", 5.0, 6.0, 77, True),
        ("second", "Relu", 5.0, 9.0, 77, False),
    ]
    found = profile_of(run(*nodes), two, two.plan, ["first", "second"])
    assert [node.name for node in found.nodes] == ["first", "second", "inner"]
    assert found.nodes[0] == NodeRun("first", "Tanh", 5.0, 5.0, 0, inner=False, position=0)


class Session:
    """A session that has written a profile; a loaded one as well."""

    def __init__(self, file: Path) -> None:
        self._file, self.session = file, self

    def get_inputs(self) -> list[object]:
        return []

    def get_outputs(self) -> list[object]:
        return []

    def bind(self, binding: object, region: object) -> None:
        pass

    def end_profiling(self) -> str:
        return str(self._file)


class Folder:
    gone = False

    def cleanup(self) -> None:
        self.gone = True


@pytest.mark.parametrize(
    "content", ['[{"cat": "Node", "name": "a"b"}]', "", '[{"name":"model_run"']
)
def test_a_profile_that_is_no_json_is_an_error_of_one_line(content: str, tmp_path: Path) -> None:
    """Older runtimes write names as they are."""
    file, folder = tmp_path / "profile.json", Folder()
    file.write_text(content)
    session = ProfiledSession(Session(file), folder)  # type: ignore[arg-type]
    with refused(BackendError, "JSONDecodeError"):
        session.runs()
    assert folder.gone


def test_nodes_of_zero_microseconds_are_beside_each_other(tmp_path: Path) -> None:
    def entry(cat: str, name: str, ts: int, dur: int) -> dict[str, Any]:
        args = {"op_name": "Relu"} if cat == "Node" else {}
        return {"cat": cat, "name": name, "ts": ts, "dur": dur, "tid": 1, "args": args}

    nodes = [("a", 5, 0), ("b", 5, 0), ("c", 5, 4), ("in d", 9, 2), ("d", 9, 3)]
    entries = [entry("Node", f"{name}_kernel_time", ts, dur) for name, ts, dur in nodes]
    file = tmp_path / "profile.json"
    file.write_text(json.dumps([*entries, entry("Session", "model_run", 4, 10)]))
    (run,) = ProfiledSession(Session(file), Folder()).runs()  # type: ignore[arg-type]
    assert [event.name for event in run if event.inner] == ["in d"]
    assert run[0].begin_s == pytest.approx(1e-6)
