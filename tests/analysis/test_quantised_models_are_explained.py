"""Of a quantised model: what runs in integers, what is converted, what stays in floats, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, conv_net, model, node, save, value
from quantising import quantise

from bricks.analysis.explain import ExplainedModel, Explainer, with_float_versions
from bricks.analysis.integer_execution import (
    FloatVersion,
    IntegerExecution,
    Numbers,
    NumbersTime,
)
from bricks.graph.model import Model
from bricks.report.explanation import number_remarks
from bricks.session.options import Options
from bricks.session.workspace import Workspace


def dynamic() -> onnx.ModelProto:
    """A convolution of integers as a dynamic quantiser writes it, and one of floats."""
    weights = np.random.default_rng(0).integers(0, 255, (4, 3, 3, 3))
    return model(
        [
            node("DynamicQuantizeLinear", ["x"], ["xq", "xs", "xz"]),
            node("ConvInteger", ["xq", "w", "xz"], ["sum"], pads=[1] * 4),
            node("Cast", ["sum"], ["float"], to=onnx.TensorProto.FLOAT),
            node("Mul", ["float", "xs"], ["scaled"]),
            node("Conv", ["scaled", "w2"], ["y"]),
        ],
        [value("x", [1, 3, 8, 8])],
        [value("y", [1, 2, 8, 8])],
        [constant("w", weights, "UINT8"), constant("w2", np.ones((2, 4, 1, 1)), "FLOAT")],
    )


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace.open(tmp_path / "cache", Options(runtime="fake", threads=1)) as opened:
        yield opened


def explained(workspace: Workspace, of: Model) -> ExplainedModel:
    insight = Explainer(workspace, measure=True)
    explanation = insight.explain(of)
    return ExplainedModel(
        model=of.name,
        estimate=explanation.estimate,
        explanation=explanation,
        integers=insight.integers(of, explanation),
    )


def nodes(execution: IntegerExecution) -> dict[Numbers, tuple[int, tuple[str, ...]]]:
    return {time.numbers: (time.nodes, tuple(sorted(time.operators))) for time in execution.times}


def test_kernels_compute_in_integers_or_floats_or_convert(fake: Workspace, tmp_path: Path) -> None:
    found = explained(fake, fake.read(save(dynamic(), tmp_path, "dynamic.onnx"))).integers
    assert found is not None
    assert nodes(found) == {
        Numbers.INTEGERS: (1, ("ConvInteger (uint8 × uint8)",)),
        Numbers.CONVERSIONS: (2, ("Cast", "DynamicQuantizeLinear")),
        Numbers.FLOAT_PRODUCTS: (1, ("Conv",)),
        Numbers.OTHERS: (1, ("Mul",)),
    }
    assert (found.in_file, found.apart) == (0, 0)
    assert sum(time.share for time in found.times) == pytest.approx(1.0)


def test_conversions_of_the_file_are_counted(tmp_path: Path) -> None:
    """ONNX Runtime makes kernels of integers of them; the fake runtime runs each as it is."""
    floats = save(conv_net(), tmp_path, "floats.onnx")
    path = tmp_path / "quantised.onnx"
    quantise(floats, path, "QDQ")
    counted = {}
    for runtime in ("fake", "onnxruntime"):
        with Workspace.open(tmp_path / runtime, Options(runtime=runtime, threads=1)) as workspace:
            found = explained(workspace, workspace.read(path)).integers
            assert found is not None
            counted[runtime] = found
    as_written, fused = counted["fake"], counted["onnxruntime"]
    assert as_written.in_file == fused.in_file == as_written.apart > fused.apart
    assert as_written.time(Numbers.INTEGERS).nodes == 0
    assert as_written.time(Numbers.FLOAT_PRODUCTS).nodes > 0
    assert fused.time(Numbers.INTEGERS).nodes > 0


def test_a_model_in_floats_has_no_integers(fake: Workspace, tmp_path: Path) -> None:
    assert explained(fake, fake.read(save(conv_net(), tmp_path, "net.onnx"))).integers is None


def test_the_same_model_in_floats_stands_next_to_it(fake: Workspace, tmp_path: Path) -> None:
    in_floats = model(
        [node("Conv", ["x", "w"], ["y"])],
        [value("x", [1, 3, 8, 8])],
        [value("y", [1, 2, 8, 8])],
        [constant("w", np.ones((2, 3, 1, 1)), "FLOAT")],
    )
    protos = {"int8": dynamic(), "floats": in_floats}
    models = [fake.read(save(proto, tmp_path, f"{name}.onnx")) for name, proto in protos.items()]
    quantised, floats = with_float_versions(models, [explained(fake, of) for of in models])
    assert floats.integers is None and quantised.integers is not None
    version = quantised.integers.floats
    assert version is not None and version.model == "floats"
    assert version.latency_s == floats.latency_s.value
    assert version.products_s == pytest.approx(sum(part.total_s for part in floats.parts))
    other = replace(models[1], inputs=())
    alone, _ = with_float_versions([models[0], other], [quantised, floats])
    assert alone.integers is not None and alone.integers.floats is None


def test_a_remark_says_what_runs_and_with_what(fake: Workspace, tmp_path: Path) -> None:
    of = explained(fake, fake.read(save(dynamic(), tmp_path, "net.onnx")))
    execution = IntegerExecution(
        in_file=22,
        apart=2,
        times=(
            NumbersTime(Numbers.INTEGERS, 2, 4, 3e-3, 0.5, ("QLinearConv",)),
            NumbersTime(Numbers.FLOAT_PRODUCTS, 1, 1, 1e-3, 0.2, ("Conv",)),
            NumbersTime(Numbers.OTHERS, 1, 0, 2e-3, 0.3, ("Relu",)),
        ),
        instructions=("avx512_vnni", "avx_vnni"),
        floats=FloatVersion("floats", 2 * of.latency_s.value, 8e-3, 1e-3),
    )
    (line,) = number_remarks(replace(of, integers=execution))
    assert line.startswith(
        "net: of 5 convolutions and matrix products, 4 compute in 8-bit integers and 1 in floats;"
        " of 22 conversions in the file, 20 are part of kernels. It takes 0.50 of the "
    )
    assert line.endswith(
        " of floats: products 4.00 ms against 8.00 ms, other operators 2.00 ms against 1.00 ms,"
        " conversions 0 ns. The processor has instructions for 8-bit products: avx512_vnni and"
        " avx_vnni."
    )
    (line,) = number_remarks(replace(of, integers=replace(execution, in_file=1)))
    assert "; 2 conversions run, 1 are in the file. It takes" in line
    plain = replace(execution, times=execution.times[:1], instructions=(), in_file=0, floats=None)
    assert number_remarks(replace(of, integers=plain)) == [
        "net: of 4 convolutions and matrix products, 4 compute in 8-bit integers and 0 in floats."
        " The processor has no instructions for 8-bit products (VNNI, AMX, dot products), so they"
        " may take as long as those of floats."
    ]
    assert number_remarks(replace(of, integers=None)) == []
