"""Models are quantised by the runtime's own tool: once, with int8 kernels, near the original."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from commands import Here, chain
from factories import conv_net, mlp, save
from quantising import quantise
from refusals import refused

from bricks import Bench, backends
from bricks.backends.quantising import QuantisationMethod, Quantiser
from bricks.decompose.plan import Decomposition
from bricks.errors import UsageError
from bricks.graph.model import Model
from bricks.sources import ReadOptions, Unread, open, read
from bricks.zoo import programs

INT8 = ReadOptions(runtime="onnxruntime", quantize="int8")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where quantised models are kept, which is empty."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    return tmp_path / "caches" / "bricks" / "quantised"


def executed(bench: Bench, model: Model) -> set[str]:
    """The operators that the runtime executes, without their domains."""
    of: Decomposition = bench.decompose(model)
    return {name.rpartition(".")[2] for b in of.bricks.values() for name in b.operators}


def refusal(word: str | Path, options: ReadOptions = INT8) -> str:
    (result,) = open(str(word), options)
    assert isinstance(result.content, Unread)
    return result.content.error


def test_convolutions_run_in_integers(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "net.onnx")
    with Bench(tmp_path / "cache", threads=1) as bench:
        quantised = bench.read(path, quantize="int8")
        assert quantised.name == "net (int8)"
        assert "QLinearConv" in executed(bench, quantised)
        assert "QLinearConv" not in executed(bench, bench.read(path))
        assert bench.verify(quantised).exact


def test_products_are_quantised_dynamically_where_the_tool_runs_them(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", threads=1) as bench:
        found = executed(bench, bench.read(path, quantize="int8"))
    assert any("MatMulInteger" in name or name == "DynamicQuantizeMatMul" for name in found), found
    (result,) = open(str(path), INT8)
    assert result.note is not None
    assert "dynamic" in result.note and "accuracy was not measured" in result.note
    (other,) = open(str(path), ReadOptions(runtime="openvino", quantize="int8"))
    assert other.note is not None and "static" in other.note


@pytest.mark.parametrize("method", QuantisationMethod)
def test_quantised_models_compute_nearly_the_same(
    tmp_path: Path, method: QuantisationMethod
) -> None:
    static = method is QuantisationMethod.STATIC
    source = save(conv_net() if static else mlp(), tmp_path, "net.onnx")
    (described,) = onnx.load(source, load_external_data=False).graph.input
    shape = [dim.dim_value or 1 for dim in described.type.tensor_type.shape.dim]
    sample = {described.name: np.random.default_rng(0).random(shape, np.float32)}
    offer = backends.offer(backends.quantiser())
    assert isinstance(offer, Quantiser)
    target = tmp_path / "int8.onnx"
    offer.quantise(source, target, method, [sample])
    exact, near = (ort.InferenceSession(path).run(None, sample)[0] for path in (source, target))
    assert 0 < np.abs(near - exact).max() < 0.1 * np.abs(exact).max()


def test_a_model_is_quantised_once(tmp_path: Path, kept: Path) -> None:
    path = save(conv_net(), tmp_path, "net.onnx")
    first = read(str(path), INT8)
    (file,) = kept.iterdir()
    stamp = file.stat().st_mtime_ns
    again = read(str(path), INT8)
    assert (again.digest, again.inputs) == (first.digest, first.inputs)
    assert first.digest != read(str(path), ReadOptions()).digest
    assert [each.stat().st_mtime_ns for each in kept.iterdir()] == [stamp]
    read(str(path), ReadOptions(runtime="onnxruntime", quantize="int8", batch=2))
    assert len([*kept.iterdir()]) == 2


def test_what_cannot_be_quantised_is_refused_in_one_line(tmp_path: Path) -> None:
    path, twice = save(conv_net(), tmp_path, "net.onnx"), tmp_path / "twice.onnx"
    quantise(path, twice, "QDQ")
    assert refusal(twice) == "twice is quantised already: leave out --quantize"
    relu = save(chain("Relu"), tmp_path, "relu.onnx")
    assert "relu has no convolution and no matrix product" in refusal(relu)
    assert "is a PyTorch program" in refusal(programs()[0].name, ReadOptions(quantize="int8"))


def test_another_form_of_numbers_is_a_wrong_usage() -> None:
    with refused(UsageError, "int8"):
        ReadOptions(quantize="int9")


def test_commands_take_quantised_models(here: Here, tmp_path: Path) -> None:
    path = save(conv_net(blocks=1), tmp_path, "net.onnx")
    done = here("decompose", path, "--quantize", "int8", "--json")
    assert [row["model"] for row in done.json["models"]] == ["net (int8)"]
    assert "accuracy was not measured" in done.complaint


def test_predict_compares_a_quantised_model_with_its_original(here: Here, tmp_path: Path) -> None:
    path = save(conv_net(blocks=1), tmp_path, "net.onnx")
    predict = ("predict", path, "--quantize", "int8", "--threads", 1)
    facts = here(*predict, "--json").json
    rows = {row["quantize"]: row for row in facts["models"]}
    assert rows.keys() == {None, "int8"}
    assert {row["model"] for row in rows.values()} == {"net"}
    alone = here("predict", path, "--threads", 1, "--json").json["models"][0]
    assert rows[None]["estimate_s"] == alone["estimate_s"]
    assert facts["answer"].startswith("net in int8 takes ")
    shown = here(*predict).out.splitlines()
    assert shown[0] == facts["answer"] and any("int8" in line for line in shown[1:])
    assert here("predict", path, "--quantize", "int4").status == 2
