from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch_environment
from added_packages import install_offer, make_site
from commands import chain
from factories import constant, conv_net, model, node, save, value
from torch_environment import program

from bricks import Bench
from bricks.samples.evaluation import ComparedOutput, Divergence, ErrorNorms, Evaluation
from bricks.studies.numerics.networks import compare_networks
from bricks.studies.numerics.results import (
    Accuracy,
    Gradients,
    NetworkResult,
    NetworkRun,
)
from bricks.units.facts import Missing

# ONNX Runtime, but its Relu is off by 1 %.
WRONG = """
import onnx
from bricks.backends import BackendInfo, Offer


class WrongOffer(Offer):
    def describe(self):
        return BackendInfo("wrong", "1", "CPU", timed=True)

    def create(self, **settings):
        return backend_class()(**settings)


OFFER = WrongOffer(name="wrong")


def backend_class():
    from bricks.backends.onnxruntime.backend import OnnxRuntimeBackend

    class Wrong(OnnxRuntimeBackend):
        def evaluate(self, proto, weights, feeds, *, optimize):
            other = onnx.ModelProto()
            other.CopyFrom(proto)
            del other.graph.node[:]
            for node in proto.graph.node:
                if node.op_type != "Relu":
                    other.graph.node.append(node)
                    continue
                right, (name,) = onnx.NodeProto(), node.output
                right.CopyFrom(node)
                right.output[:] = [name + " right"]
                scale = onnx.helper.make_node("Mul", [right.output[0], "off"], [name])
                other.graph.node.extend([right, scale])
            tensor = onnx.helper.make_tensor("off", onnx.TensorProto.FLOAT, [], [1.01])
            other.graph.initializer.append(tensor)
            return super().evaluate(other, weights, feeds, optimize=optimize)

    return Wrong
"""


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a runtime that errs, as another package would add it."""
    site = make_site(tmp_path, monkeypatch)
    (site / "wrong_runtime.py").write_text(WRONG, encoding="utf-8")
    install_offer(site, "wrong_runtime", "wrong")
    return "wrong"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("networks")
    with Bench(folder / "cache", runtime="onnxruntime", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def torch_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("networks")
    with (
        torch_environment.one_recorder(),
        Bench(folder / "cache", runtime="torch", threads=1) as opened,
    ):
        yield opened


def compared(benches: list[Bench], path: Path, tolerance: float | None = None) -> NetworkResult:
    (found,) = compare_networks(
        [benches[0].read(path)],
        [each.workspace for each in benches],
        repeats=2,
        tolerance=tolerance,
    )
    return found


def of_program(bench: Bench, name: str) -> NetworkRun:
    (found,) = compare_networks([bench.read(program(name))], [bench.workspace], repeats=3)
    (run,) = found.runs
    return run


def accuracy(run: NetworkRun) -> Accuracy:
    assert isinstance(run.accuracy, Accuracy), run.accuracy
    return run.accuracy


def l2(run: NetworkRun) -> float:
    worst = accuracy(run).worst
    assert worst is not None
    assert isinstance(worst.norms, ErrorNorms)
    assert worst.norms.l2_relative is not None
    return worst.norms.l2_relative


def test_the_worst_output_is_that_with_the_greatest_relative_error() -> None:
    outputs = [
        ComparedOutput(name, (1,), "FLOAT", ErrorNorms(error, error, error, *[relative] * 3))
        for name, error, relative in (("near", 9.0, 0.1), ("far", 1.0, 0.3), ("mean", 5.0, 0.2))
    ]
    outputs.append(ComparedOutput("unknown", (1,), "FLOAT"))
    evaluation = Evaluation(tuple(outputs), 1, 1, 0.0)
    found = Accuracy(evaluation, "double", Missing("no gradients"))
    assert found.worst is outputs[1]


def test_a_right_runtime_diverges_nowhere(bench: Bench, tmp_path: Path) -> None:
    proto = conv_net(blocks=1)
    found = compared([bench], save(proto, tmp_path))
    assert found.own_weights
    (run,) = found.runs
    assert l2(run) < 1e-5
    assert run.divergence == Divergence(len(proto.graph.node), 0, None)


def test_a_planted_error_is_found_at_its_first_operator(
    bench: Bench, tmp_path: Path, wrong: str
) -> None:
    path = save(conv_net(blocks=1), tmp_path)
    with Bench(tmp_path / "cache", runtime=wrong, threads=1) as other:
        found = compared([bench, other], path)
    right, off = found.runs
    assert isinstance(right.divergence, Divergence)
    assert right.divergence.first is None
    assert l2(off) > 0.001
    assert isinstance(off.divergence, Divergence)
    assert off.divergence.first is not None
    assert off.divergence.first.node == "Relu 'Relu_r0'"
    assert off.divergence.first.linf_relative == pytest.approx(0.01, rel=0.01)
    assert off.divergence.beyond > 1
    (pair,) = found.pairs
    assert (pair.one, pair.other) == ("onnxruntime", "wrong")
    assert isinstance(pair.outputs[0].norms, ErrorNorms)
    assert pair.outputs[0].norms.l2_relative == pytest.approx(l2(off), rel=0.01)


def test_lost_digits_are_found_where_they_are_lost(bench: Bench, tmp_path: Path) -> None:
    nodes = [
        node("Add", ["x", "large"], ["sum"]),
        node("Relu", ["sum"], ["kept"]),
        node("Sub", ["kept", "large"], ["rest"]),
        node("Mul", ["rest", "rest"], ["y"]),
    ]
    large = constant("large", [[1e6, 1e6]], "FLOAT")
    proto = model(nodes, [value("x", [4, 2])], [value("y", [4, 2])], [large])
    (run,) = compared([bench], save(proto, tmp_path)).runs
    assert isinstance(run.divergence, Divergence)
    assert run.divergence.first is not None
    assert run.divergence.first.node == "Sub 'Sub_rest'"
    assert run.divergence.beyond == 2
    (run,) = compared([bench], save(proto, tmp_path), tolerance=1.0).runs
    assert isinstance(run.divergence, Divergence)
    assert run.divergence.first is None


def test_a_model_without_a_reference_is_still_compared_over_runtimes(
    bench: Bench, tmp_path: Path, wrong: str
) -> None:
    nodes = [node("FastGelu", ["x"], ["a"], domain="com.microsoft"), node("Relu", ["a"], ["y"])]
    proto = model(nodes, [value("x", [4, 5])], [value("y", [4, 5])], domains=["com.microsoft"])
    with Bench(tmp_path / "cache", runtime=wrong, threads=1) as other:
        found = compared([bench, other], save(proto, tmp_path))
    assert found.own_weights is True  # it has none that could be missing
    for run in found.runs:
        assert isinstance(accuracy(run).reference, Missing)
        assert run.divergence == accuracy(run).reference
        assert accuracy(run).evaluation.distinct == 1
    (pair,) = found.pairs
    assert isinstance(pair.outputs[0].norms, ErrorNorms)
    assert pair.outputs[0].norms.l2_relative == pytest.approx(0.01, rel=1e-3)


def test_an_onnx_model_is_computed_by_its_counterparts_in_pytorch(
    bench: Bench, torch_bench: Bench, tmp_path: Path
) -> None:
    found = compared([bench, torch_bench], save(conv_net(), tmp_path))
    onnx_run, torch_run = found.runs
    assert l2(torch_run) < 1e-5
    names = [[output.output for output in accuracy(run).evaluation.outputs] for run in found.runs]
    assert names == [["scores"], ["scores"]]
    assert accuracy(torch_run).reference == accuracy(onnx_run).reference
    (pair,) = found.pairs
    assert (pair.one, pair.other) == ("onnxruntime", "torch")
    assert isinstance(pair.outputs[0].norms, ErrorNorms)
    assert pair.outputs[0].norms.l2_relative is not None
    assert pair.outputs[0].norms.l2_relative < 1e-5


def test_a_model_with_an_operator_that_pytorch_lacks_is_one_gap(
    bench: Bench, torch_bench: Bench, tmp_path: Path
) -> None:
    found = compared([bench, torch_bench], save(chain("Relu", "Shrink"), tmp_path))
    assert found.runs[1].accuracy == Missing("no counterpart of Shrink in PyTorch is known")
    assert l2(found.runs[0]) < 1e-5


def test_a_program_is_no_onnx_model(bench: Bench, torch_bench: Bench) -> None:
    read = torch_bench.read(program("convolutions"), name="net")
    (found,) = compare_networks([read], [bench.workspace, torch_bench.workspace], repeats=1)
    assert found.runs[0].accuracy == Missing(
        "onnxruntime runs ONNX models, and net is a PyTorch program"
    )
    assert l2(found.runs[1]) < 1e-5


def test_a_training_step_has_loss_and_gradients_compared_with_double(torch_bench: Bench) -> None:
    run = of_program(torch_bench, "bags")
    names = {output.output for output in accuracy(run).evaluation.outputs}
    assert names == {
        "loss",
        "gradient of bag.weight",
        "gradient of last.weight",
        "gradient of last.bias",
    }
    assert l2(run) < 1e-3
    gradients = accuracy(run).gradients
    assert isinstance(gradients, Gradients)
    assert gradients.first_wrong is None


def test_a_gradient_that_is_off_by_1_percent_is_caught_where_the_backward_pass_first_has_it(
    torch_bench: Bench,
) -> None:
    gradients = accuracy(of_program(torch_bench, "wrong_gradient_training")).gradients
    assert isinstance(gradients, Gradients)
    order = [check.of for check in gradients.checked]
    assert order.index("last.weight") < order.index("first.weight")
    assert gradients.first_wrong is not None
    assert gradients.first_wrong.of.startswith("first.")
    assert gradients.first_wrong.relative_error == pytest.approx(0.01, rel=0.02)
    wrong = {check.of for check in gradients.checked if check.wrong}
    assert wrong == {"first.weight", "first.bias", "input 0"}


def test_digits_that_a_program_loses_show_against_double(torch_bench: Bench) -> None:
    assert l2(of_program(torch_bench, "rough")) > 1e-5


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("dropped", "draws random numbers in its step"),
        ("narrowed", "computes output 0 as float32, though all that it gets is in double"),
    ],
)
def test_a_program_without_a_reference_says_why(torch_bench: Bench, name: str, reason: str) -> None:
    found = accuracy(of_program(torch_bench, name))
    assert isinstance(found.reference, Missing)
    assert reason in found.reference.reason


def test_a_program_whose_results_vary_is_reported_as_such(torch_bench: Bench) -> None:
    found = accuracy(of_program(torch_bench, "unsettled"))
    assert (found.evaluation.repeats, found.evaluation.distinct) == (3, 2)
    assert found.evaluation.max_variance == pytest.approx(2 / 9)
    assert found.evaluation.outputs[0].variance_map == ((pytest.approx(2 / 9),) * 2,) * 2
