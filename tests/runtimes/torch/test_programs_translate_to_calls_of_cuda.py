"""Programs recorded on the processor become the calls that CUDA makes of the same code."""

import json
from collections import Counter
from functools import cache
from pathlib import Path

import onnx
import pytest
from tiers import slow_but

from benchmarks.gpu.raw import protos
from benchmarks.gpu.translation import agreement
from bricks.backends.torch.cuda_calls import translated
from bricks.errors import ModelError
from bricks.graph.program import FREED
from tests.support.refusals import refused

ZOO = Path(__file__).parents[3] / "models" / "torch"


@cache
def recorded_on_cuda() -> dict[str, onnx.ModelProto]:
    return protos(("programs", "h200-programs"))


def of_the_zoo(name: str) -> onnx.ModelProto:
    return onnx.load(ZOO / f"torch_{name}.onnx", load_external_data=False)


@pytest.mark.parametrize(
    "name",
    slow_but(
        {"resnet44_training", "bert"}.__contains__,
        [
            "resnet44_training",
            "bert",
            "gpt2_training",
            "conformer_training",
            "gcn_training",
            "dlrm",
        ],
    ),
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


def test_attention_of_single_calls_becomes_one_kernel_in_each_pass() -> None:
    before = of_the_zoo("bert_training")
    after = translated(before).proto
    operators = Counter(node.op_type for node in after.graph.node)
    layers = Counter(node.op_type for node in before.graph.node)["_safe_softmax"]
    assert operators["_scaled_dot_product_efficient_attention"] == layers
    assert operators["_scaled_dot_product_efficient_attention_backward"] == layers
    assert not {"bmm", "_safe_softmax", "_softmax_backward_data", "bernoulli_.float"} & {*operators}


def test_a_value_is_freed_after_all_calls_that_read_its_memory() -> None:
    graph = translated(of_the_zoo("bert_training")).proto.graph
    freed: set[str] = set()
    for node in graph.node:
        assert not freed.intersection(node.input)
        notes = {entry.key: entry.value for entry in node.metadata_props}
        freed |= set(json.loads(notes.get(FREED, "[]")))
    made = {name for node in graph.node for name in node.output}
    assert freed <= made


def test_calls_that_no_rule_translates_are_named() -> None:
    untranslated = translated(of_the_zoo("lstm")).untranslated
    assert any("mkldnn_rnn_layer" in calls for calls in untranslated)
    assert not any("mkldnn_rnn_layer" in note for note in translated(of_the_zoo("bert")).notes)


def test_fused_attention_needs_the_elements_of_a_head_in_a_row() -> None:
    before = of_the_zoo("diffusion")
    after = translated(before).proto
    assert [node.op_type for node in after.graph.node] == [n.op_type for n in before.graph.node]


def test_a_reshape_of_an_attentions_output_is_a_view_on_cuda() -> None:
    before, after = of_the_zoo("bert_training"), translated(of_the_zoo("bert_training")).proto
    assert "clone" in {node.op_type for node in before.graph.node}
    assert "clone" not in {node.op_type for node in after.graph.node}
