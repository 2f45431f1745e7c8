"""The rules of outputs in place, against the memory that the runtime allocates."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper
from resident import peak_bytes, return_large
from tiers import one_in

from bricks.backends.onnxruntime.graphs import OVERWRITES, VIEWS

# A megabyte can be distinguished from other memory of a run, sixteen are far from any doubt: other
# tests leave memory in the process that comes and goes.
MIB = 16
SHAPE = (1, 16, MIB * 1024 * 1024 // 4 // 16 // 512, 512)

# The other inputs of an operator, and its attributes.
EXTRAS: dict[str, tuple[str, ...]] = {
    "Reshape": ("shape",), "Add": ("one",), "Sub": ("one",), "Mul": ("one",), "Div": ("one",),
    "Pow": ("one",), "Max": ("one",), "Min": ("one",), "Sum": ("one",), "PRelu": ("one",),
    "BatchNormalization": ("channels",) * 4, "InstanceNormalization": ("channels",) * 2,
    "LayerNormalization": ("row", "row"), "ScatterElements": ("first", "update"),
    "Unsqueeze": ("zero",), "Squeeze": ("zero",),
}  # fmt: skip
ATTRIBUTES = {"Cast": {"to": TensorProto.INT32}, "Transpose": {"perm": [0, 1, 2, 3]}}
CONSTANTS = {
    "shape": np.array(SHAPE), "one": np.ones(1, np.float32), "zero": np.array([0]),
    "channels": np.ones(16, np.float32), "row": np.ones(512, np.float32),
    "first": np.zeros((1, 1, 1, 1), np.int64), "update": np.ones((1, 1, 1, 1), np.float32),
}  # fmt: skip
ARITHMETIC = (
    "Abs", "Add", "BatchNormalization", "Ceil", "Div", "Erf", "Exp", "Floor", "Gelu",
    "InstanceNormalization", "LayerNormalization", "Log", "Max", "Min", "Mul", "Neg", "PRelu",
    "Pow", "Reciprocal", "Round", "Sign", "Sqrt", "Sub", "Sum", "Transpose",
)  # fmt: skip


def buffers(
    operator: str, domain: str = "", constants: Mapping[str, np.ndarray] = CONSTANTS
) -> int:
    """How many values of that size a chain of two such operators holds at once."""
    extras, attributes = EXTRAS.get(operator, ()), ATTRIBUTES.get(operator, {})
    nodes, value = [helper.make_node("Expand", ["in", "shape"], ["v0"])], "v0"
    for i in range(1 if operator == "Cast" else 2):
        inputs, output = [value, *extras], f"v{i + 1}"
        if operator in ("Squeeze", "Unsqueeze") and i == 1:
            operator = {"Squeeze": "Unsqueeze", "Unsqueeze": "Squeeze"}[operator]
        nodes.append(helper.make_node(operator, inputs, [output], domain=domain, **attributes))
        value = output
    nodes.append(helper.make_node("ReduceMax", [value], ["out"], keepdims=0))
    return _peak(nodes, constants, "INT32" if operator == "Cast" else "FLOAT")


def sums() -> int:
    """The same for a convolution that adds to what is there, as the runtime fuses them."""
    nodes, value = [helper.make_node("Expand", ["in", "shape"], ["v0"])], "v0"
    constants = {
        "shape": np.array(SHAPE), "image": np.ones(SHAPE, np.float32),
        "kernel": np.ones((16, 16, 1, 1), np.float32), "bias": np.ones(16, np.float32),
    }  # fmt: skip
    for i in range(2):
        nodes.append(
            helper.make_node(
                "FusedConv", ["image", "kernel", "bias", value], [f"v{i + 1}"],
                domain="com.microsoft", kernel_shape=[1, 1],
            )
        )  # fmt: skip
        value = f"v{i + 1}"
    nodes.append(helper.make_node("ReduceMax", [value], ["out"], keepdims=0))
    return _peak(nodes, constants, "FLOAT")


def _peak(nodes: list[onnx.NodeProto], constants: Mapping[str, np.ndarray], out: str) -> int:
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, [1, 1, 1, 1])],
        [helper.make_tensor_value_info("out", TensorProto.DataType.Value(out), [])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    return_large()
    given = {"in": np.full((1, 1, 1, 1), 0.3, np.float32)}
    return round(peak_bytes(partial(session.run, None, given)) / (MIB << 20))


# Only there can a peak be reset between two operators; the rules are the same everywhere.
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")


# All of them but Flatten, whose output is of another rank: it cannot stand in a chain.
SHARING = sorted({op for domain, op in {*VIEWS, *OVERWRITES} if not domain} - {"Flatten"})


@pytest.mark.parametrize("operator", one_in(99, SHARING))
def test_operators_in_place_need_one_buffer(operator: str) -> None:
    assert buffers(operator) == 1


def test_a_fused_sum_is_added_in_place() -> None:
    assert sums() == 1


@pytest.mark.parametrize("operator", one_in(99, ARITHMETIC))
def test_other_operators_need_two_buffers(operator: str) -> None:
    assert ("", operator) not in {*VIEWS, *OVERWRITES}
    assert buffers(operator) == 2
