from __future__ import annotations

import json
import os
from pathlib import Path

import onnx
import pytest
from added_packages import install_offer, make_site
from chakra_schema import COMPUTES, facts, messages
from commands import Here
from factories import conv_net, mlp, save
from refusals import refused

import bricks
from bricks.analysis.trace import Traced, traced
from bricks.compose.estimate import Estimate
from bricks.compose.timeline import MissingLatency
from bricks.errors import UsageError
from bricks.graph.types import TensorType
from bricks.report.chakra import execution_trace

ONCE = bricks.Conditions(rule=bricks.StopRule(min_rounds=2, max_rounds=2), exclusive=False)


def recomposed(
    proto: onnx.ModelProto, folder: Path, runtime: str = "fake", *, measured: bool = True
) -> Traced:
    with bricks.Bench(folder / "cache", runtime=runtime, threads=1, conditions=ONCE) as bench:
        model = bench.read(save(proto, folder, "net.onnx"))
        if measured:
            bench.measure([model])
        return traced(bench.workspace, model, run=False)


def test_a_node_stands_for_each_occurrence_with_its_time_and_interval(tmp_path: Path) -> None:
    of = recomposed(conv_net(blocks=1, size=8), tmp_path)
    metadata, nodes = messages(execution_trace(of))
    assert isinstance(of.estimate, Estimate)
    about = facts(metadata.attr)
    assert (about["model"], about["digest"]) == (of.plan.model, of.plan.digest)
    assert (about["low_s"], about["high_s"]) == (of.estimate.low_s, of.estimate.high_s)
    assert [node.id for node in nodes] == list(range(len(of.plan.occurrences)))
    assert {node.type for node in nodes} == {COMPUTES}
    producers = of.plan.producers()
    for node, entry, occurrence in zip(
        nodes, of.recomposed.entries, of.plan.occurrences, strict=True
    ):
        brick, own = of.bricks[occurrence.brick], facts(node.attr)
        assert not isinstance(entry, MissingLatency)
        assert own["latency_s"] == entry.latency_s.value
        assert own["low_s"] <= own["latency_s"] <= own["high_s"]
        assert abs(node.start_time_micros - 1e6 * entry.span.begin_s) <= 0.5
        assert abs(node.duration_micros - 1e6 * own["latency_s"]) <= 1
        assert list(node.data_deps) == producers[node.id]
        assert list(node.ctrl_deps) == ([node.id - 1] if node.id else [])
        assert own["is_cpu_op"] and own["tensor_size"] == brick.bytes_moved
        assert own.get("num_ops") == brick.flops
        types = [type_ for type_ in brick.outputs.values() if isinstance(type_, TensorType)]
        assert len(types) == len(brick.outputs)
        assert json.loads(node.outputs.shapes) == [list(type_.shape) for type_ in types]


def test_kernels_of_a_device_follow_their_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_offer(make_site(tmp_path, monkeypatch), "two_lane_runtime", "two-lanes")
    support = str(Path(__file__).parents[1] / "support")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((support, os.environ["PYTHONPATH"])))
    of = recomposed(conv_net(blocks=1, size=8), tmp_path, "two-lanes")
    _, nodes = messages(execution_trace(of))
    calls, kernels = nodes[: len(of.plan.occurrences)], nodes[len(of.plan.occurrences) :]
    assert kernels and [node.id for node in kernels] == list(range(len(calls), len(nodes)))
    assert {facts(node.attr)["is_cpu_op"] for node in kernels} == {False}
    for kernel, previous in zip(kernels[1:], kernels, strict=False):
        launching, before = kernel.ctrl_deps
        assert launching < len(calls) and before == previous.id
        assert facts(kernel.attr)["brick"] == facts(calls[launching].attr)["brick"]


def test_an_estimate_that_lacks_latencies_is_no_execution_trace(tmp_path: Path) -> None:
    of = recomposed(mlp(), tmp_path, measured=False)
    with refused(UsageError, of.plan.model):
        execution_trace(of)


def test_explain_writes_one(here: Here, tmp_path: Path) -> None:
    path, file = save(mlp(), tmp_path, "net.onnx"), tmp_path / "net.et"
    result = here("explain", path, "--trace", file)
    assert result.status == 0 and file.name in result.out
    assert messages(file.read_bytes())[1]
