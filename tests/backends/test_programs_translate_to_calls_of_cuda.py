"""Programs recorded on the processor become the calls that CUDA makes of the same code."""

from functools import cache
from pathlib import Path

import onnx
import pytest

from benchmarks.gpu.raw import protos
from benchmarks.gpu.translation import agreement
from bricks.backends.torch.cuda_calls import translated
from bricks.errors import ModelError
from tests.support.refusals import refused

ZOO = Path(__file__).parents[2] / "models" / "torch"


@cache
def recorded_on_cuda() -> dict[str, onnx.ModelProto]:
    return protos(("programs", "h200-programs"))


def of_the_zoo(name: str) -> onnx.ModelProto:
    return onnx.load(ZOO / f"torch_{name}.onnx", load_external_data=False)


@pytest.mark.parametrize(
    "name",
    ["resnet44_training", "bert", "gpt2_training", "conformer_training", "gcn_training", "dlrm"],
)
def test_a_translated_program_has_the_bricks_that_cuda_has_in_order(name: str) -> None:
    found = agreement(translated(of_the_zoo(name)).proto, recorded_on_cuda()[f"zoo_{name}"])
    assert found.in_order, (found.missing, found.added)


def test_notes_name_the_rules_that_applied() -> None:
    notes = translated(of_the_zoo("resnet44_training")).notes
    assert any("cuDNN" in note for note in notes)
    assert any("optimiser" in note for note in notes)


def test_a_translated_program_keeps_what_is_known_of_its_step() -> None:
    before = of_the_zoo("resnet44_training")
    after = translated(before).proto
    assert list(after.metadata_props) == list(before.metadata_props)
    assert {value.name for value in after.graph.output} == {v.name for v in before.graph.output}


def test_a_model_that_is_no_recorded_program_is_refused() -> None:
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"
    ]
    graph = onnx.helper.make_graph([node], "graph", values[:1], values[1:])
    with refused(ModelError, "Relu"):
        translated(onnx.helper.make_model(graph))
