from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import mxnet_environment
import onnx
import pytest
import torch_environment
from factories import model, node, one_node, save, value
from systems import know_peaks
from tiers import slow_but

from bricks import Bench, Estimate, Peaks
from bricks.compose.estimate import Uncertainty
from bricks.graph.view import source_graph
from bricks.measure.conditions import Conditions, StopRule
from bricks.operators.registry import flops
from bricks.reading.read import read_model
from bricks.report.operators import operator_lines
from bricks.samples.evaluation import ErrorNorms
from bricks.session.machine_peaks import Level
from bricks.studies.numerics.comparison import compare_operators, latency_of
from bricks.studies.numerics.operators import (
    CONVOLUTIONS,
    KERNELS,
    PRODUCTS,
    RECURRENT,
    Convolution,
    OperatorCase,
    Product,
    deepbench,
    work_of,
)
from bricks.studies.numerics.results import (
    Accuracy,
    Form,
    Gradients,
    OperatorComparison,
    OperatorLatency,
    OperatorResult,
    OperatorRun,
    Work,
)
from bricks.units.facts import Missing

NCHWC = "com.microsoft.nchwc"

QUICK = Conditions(rule=StopRule(precision=0.5, min_rounds=2, max_rounds=3))
SMALL = ("conv_1x3x108x108_64x3x3_s2", "gemm_64x1x1216", "vanilla_64x1x96", "gru_512x1x1")
OPERATORS = [operator for operator in deepbench() if operator.name in SMALL]
(PRODUCT,) = (operator for operator in OPERATORS if operator.name.startswith("gemm"))


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Bench]]:
    cache = tmp_path_factory.mktemp("operators") / "cache"
    with ExitStack() as opened:
        opened.enter_context(torch_environment.one_recorder())
        yield [
            opened.enter_context(Bench(cache, runtime=name, threads=1, conditions=QUICK))
            for name in ("onnxruntime", "torch")
        ]


@pytest.fixture(scope="module")
def onnxruntime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    cache = tmp_path_factory.mktemp("onnxruntime") / "cache"
    with Bench(cache, runtime="onnxruntime", threads=1, conditions=QUICK) as bench:
        know_peaks(bench)
        yield bench


@pytest.fixture(scope="module")
def torch_bench(benches: list[Bench], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """Beside that of the slow tests, which measures its peaks; both record with one process."""
    cache = tmp_path_factory.mktemp("torch") / "cache"
    with Bench(cache, runtime="torch", threads=1, conditions=QUICK) as bench:
        know_peaks(bench)
        yield bench


def compared(
    operators: Sequence[OperatorCase], benches: Sequence[Bench], *, repeats: int
) -> OperatorComparison:
    workspaces = [bench.workspace for bench in benches]
    return compare_operators(operators, workspaces, repeats=repeats)


@pytest.fixture(scope="module")
def results(benches: list[Bench]) -> list[OperatorResult]:
    """Operators in both runtimes, with peaks that are really measured."""
    found = compared(OPERATORS, benches, repeats=2)
    assert [facts.target.runtime.backend for facts in found.runtimes] == ["onnxruntime", "torch"]
    assert all(facts.peaks.flops_per_s for facts in found.runtimes)
    assert [each.name for each in found.operators] == [each.name for each in OPERATORS]
    return list(found.operators)


def runs(result: OperatorResult) -> dict[str, OperatorRun]:
    return {run.runtime: run for run in result.runs}


def accuracy(run: OperatorRun) -> Accuracy:
    assert isinstance(run.accuracy, Accuracy), run.accuracy
    return run.accuracy


def has_latency_rates_and_accuracy(run: OperatorRun) -> None:
    assert isinstance(run.latency, OperatorLatency), run.latency
    assert run.latency.latency_s.holds(run.latency.latency_s.value)
    assert run.latency.flops_per_s and run.latency.bytes_per_s and run.latency.peak_share
    assert run.latency.bound in ("compute", "memory")
    found = accuracy(run)
    assert isinstance(found.reference, str)
    assert found.evaluation.repeats == 2
    assert 1 <= found.evaluation.distinct <= 2
    (output,) = found.evaluation.outputs
    assert isinstance(output.norms, ErrorNorms)
    assert output.norms.l2_relative is not None
    assert output.norms.l2_relative < 1e-5
    assert len(output.heat_map) <= 32 and len(output.heat_map[0]) <= 32


def test_an_operator_has_a_latency_rates_and_an_accuracy(onnxruntime: Bench) -> None:
    (result,) = compared([PRODUCT], [onnxruntime], repeats=2).operators
    (run,) = result.runs
    has_latency_rates_and_accuracy(run)


@pytest.mark.slow
def test_operators_of_each_kind_have_these_in_each_runtime(results: list[OperatorResult]) -> None:
    for run in [run for result in results for run in result.runs]:
        has_latency_rates_and_accuracy(run)


@pytest.mark.slow
def test_both_forms_of_an_operator_have_one_shape(results: list[OperatorResult]) -> None:
    for result in results:
        shapes = [accuracy(run).evaluation.outputs[0].shape for run in result.runs]
        # Of a layer's direction, which only ONNX has an axis for.
        plain = [tuple(size for size in shape if size > 1) for shape in shapes]
        assert plain[0] == plain[1], result.name


@pytest.mark.slow
def test_gradients_of_programs_agree_with_finite_differences(results: list[OperatorResult]) -> None:
    for result in results:
        found = accuracy(runs(result)["torch"]).gradients
        assert isinstance(found, Gradients)
        assert found.checked
        assert found.first_wrong is None
        of_onnx = accuracy(runs(result)["onnxruntime"]).gradients
        assert of_onnx == Missing("onnxruntime computes no gradients of ONNX models")


def test_a_runtime_without_the_operators_form_is_named(onnxruntime: Bench) -> None:
    in_torch = replace(PRODUCT, name="program", onnx=None)
    (result,) = compared([in_torch], [onnxruntime], repeats=1).operators
    lacking = Missing("onnxruntime runs ONNX models, and this is a PyTorch program")
    assert runs(result)["onnxruntime"] == OperatorRun("onnxruntime", lacking, lacking)


@pytest.mark.slow
def test_an_onnx_operator_is_measured_and_evaluated_as_its_counterpart(
    onnxruntime: Bench, torch_bench: Bench
) -> None:
    in_onnx = replace(PRODUCT, program=None)
    (result,) = compared([in_onnx], [onnxruntime, torch_bench], repeats=2).operators
    assert [run.form for run in result.runs] == [Form.GIVEN, Form.COUNTERPART]
    for run in result.runs:
        has_latency_rates_and_accuracy(run)
    found = [accuracy(run) for run in result.runs]
    assert found[0].reference == found[1].reference
    (one,), (other,) = (each.evaluation.outputs for each in found)
    assert other.output == one.output
    assert one.heat_map != other.heat_map  # computed by different kernels


def test_operators_without_a_counterpart_are_one_line(torch_bench: Bench) -> None:
    lacking = [
        OperatorCase(
            f"shrink{size}", "a test",
            onnx=one_node("Shrink", [value("x", [size])], [value("y", [size])]),
        )
        for size in (5, 6)
    ]  # fmt: skip
    comparison = compared(lacking, [torch_bench], repeats=1)
    assert not any(run.ran for result in comparison.operators for run in result.runs)
    (line,) = filter(None, operator_lines(comparison))
    assert "Shrink" in line
    assert line.endswith("(shrink5, shrink6)")


def blocked_convolution() -> OperatorCase:
    """Of 64 channels, which every block divides."""
    shapes = {"x": [1, 64, 8, 8], "w": [64, 64, 3, 3], "z": [1, 64, 6, 6], "y": [1, 64, 6, 6]}
    infos = {name: value(name, shape) for name, shape in shapes.items()}
    weight = onnx.TensorProto(name="w", data_type=onnx.TensorProto.FLOAT, dims=shapes["w"])
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    own = node("Conv", ["x", "w", "", "z"], ["y"], domain=NCHWC, activation="Relu")
    proto = model([own], [infos["x"], infos["z"]], [infos["y"]], [weight], domains=[NCHWC])
    return OperatorCase("blocked", "a test", onnx=proto)


def test_a_blocked_convolution_has_a_reference_in_its_layout(onnxruntime: Bench) -> None:
    (result,) = compared([blocked_convolution()], [onnxruntime], repeats=2).operators
    (run,) = result.runs
    assert run.form is Form.GIVEN
    has_latency_rates_and_accuracy(run)


@pytest.mark.slow
def test_a_blocked_convolution_is_compared_in_the_plain_layout(
    onnxruntime: Bench, torch_bench: Bench
) -> None:
    chosen = [blocked_convolution()]
    (result,) = compared(chosen, [onnxruntime, torch_bench], repeats=2).operators
    assert [run.form for run in result.runs] == [Form.GIVEN, Form.COUNTERPART]
    for run in result.runs:
        has_latency_rates_and_accuracy(run)


@pytest.mark.slow
def test_a_runtime_of_programs_runs_one_that_has_no_other_form(benches: list[Bench]) -> None:
    in_torch = replace(PRODUCT, name="program", onnx=None)
    (result,) = compared([in_torch], benches, repeats=1).operators
    assert not runs(result)["onnxruntime"].ran
    assert runs(result)["torch"].ran
    assert result.work.flops


@pytest.mark.parametrize("runtime", slow_but("onnxruntime".__eq__, ["onnxruntime", "mxnet"]))
def test_an_operator_that_a_runtime_lacks_is_named_and_the_others_run(
    runtime: str, tmp_path: Path
) -> None:
    strange = one_node("Strange", [value("x", [4])], [value("y", [4])], domain="org.x")
    lacking, names = OperatorCase("strange", "a test", onnx=strange), ("org.x", "Strange")
    if runtime == "mxnet":
        mxnet_environment.python()
        (lacking,) = (each for each in OPERATORS if each.name.startswith("vanilla"))
        names = ("RNN 'y'", "MXNet")
    with Bench(tmp_path / "cache", runtime=runtime, threads=1, conditions=QUICK) as bench:
        know_peaks(bench)
        found, missing = compared([PRODUCT, lacking], [bench], repeats=1).operators
    assert found.runs[0].ran
    (run,) = missing.runs
    assert isinstance(run.latency, Missing)
    for name in names:
        assert name in run.latency.reason


def test_a_file_that_cannot_be_read_is_missing_everywhere(
    onnxruntime: Bench, tmp_path: Path
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"nothing")
    chosen = [OperatorCase("bad", "a test", onnx=tmp_path / "bad.onnx")]
    (result,) = compared(chosen, [onnxruntime], repeats=1).operators
    (run,) = result.runs
    assert not run.ran


def test_operators_without_a_reference_are_measured_and_named(
    onnxruntime: Bench, tmp_path: Path
) -> None:
    fast = one_node("FastGelu", [value("x", [4, 5])], [value("y", [4, 5])], domain="com.microsoft")
    chosen = [OperatorCase("gelu", "a test", onnx=save(fast, tmp_path))]
    (result,) = compared(chosen, [onnxruntime], repeats=2).operators
    (run,) = result.runs
    assert isinstance(run.latency, OperatorLatency)
    found = accuracy(run)
    assert isinstance(found.reference, Missing)
    assert "no reference: there is no reference of FastGelu" in found.reference.reason
    assert found.evaluation.outputs[0].reason == found.reference.reason
    assert found.evaluation.repeats == 2


def test_the_selection_is_what_it_says() -> None:
    assert (len(CONVOLUTIONS), len(PRODUCTS), len(RECURRENT)) == (15, 15, 8)
    assert len({kernel.name for kernel in KERNELS}) == len(KERNELS)


def test_work_is_counted_as_deepbench_counts_it(tmp_path: Path) -> None:
    kernel = Product(35, 700, 2048)
    path = save(kernel.model(), tmp_path)
    work = work_of(read_model(path))
    assert work.flops == 2 * 35 * 700 * 2048
    assert work.bytes == 4 * (35 * 2048 + 2048 * 700 + 35 * 700)
    convolution = Convolution(1, 64, 54, 54, 64, 3, 3, 1, 1, 1, 1)
    path = save(convolution.model(), tmp_path)
    graph = source_graph(read_model(path))
    assert flops(graph, [0]) == 2 * 54 * 54 * 64 * 64 * 9


def test_rates_leave_out_the_call_and_are_held_against_the_roofline() -> None:
    estimate = Estimate(
        "m", "executed", 3e-3, 2e-3, 4e-3, 3e-3, 1e-3, 0.0, 0.0, 1.0, (), Uncertainty()
    )
    peaks = Peaks(1e9, 1e8, (Level(1000, 1e9), Level(10**6, 1e8)))
    found = latency_of(estimate, Work(10**6, 10**4), peaks)
    assert found.flops_per_s == pytest.approx(5e8)
    assert found.bytes_per_s == pytest.approx(5e6)
    assert (found.peak_share, found.bound) == (pytest.approx(0.5), "compute")
    assert latency_of(estimate, Work(None, 10**4), peaks).peak_share is None
    assert latency_of(estimate, Work(10**6, 10**4), Peaks()).bound is None
