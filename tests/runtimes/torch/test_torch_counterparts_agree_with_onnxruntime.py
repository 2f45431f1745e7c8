from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import runtime_environments
import torch_environment
from factories import constant, conv_net, mlp, model, node, value

from bricks.graph.input_values import ReferenceValues

Outcomes = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Case:
    """One node on float inputs of these shapes; ``constants`` are its further inputs."""

    op: str
    shapes: Sequence[Sequence[int]]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[tuple[Any, str]] = ()
    outputs: int = 1
    opset: int = 17
    positive: bool = False

    def proto(self) -> onnx.ModelProto:
        names = [f"x{k}" for k in range(len(self.shapes))]
        constants = [
            constant(f"c{k}", number, dtype)
            for k, (number, dtype) in enumerate(self.constants)
            if dtype
        ]
        more = [f"c{k}" if dtype else "" for k, (_, dtype) in enumerate(self.constants)]
        made = [f"y{k}" for k in range(self.outputs)]
        own = node(self.op, [*names, *more], made, **self.attributes)
        inputs = [value(name, list(s)) for name, s in zip(names, self.shapes, strict=True)]
        outputs = [onnx.ValueInfoProto(name=name) for name in made]
        return model([own], inputs, outputs, constants, opset=self.opset)


IMAGE = [(2, 4, 9, 8)]
FILTERS = [(2, 4, 9, 8), (6, 4, 3, 2), (6,)]
NONE = (None, "")
LSTM = [(5, 2, 3), (1, 16, 3), (1, 16, 4)]
GRU = [(5, 2, 3), (2, 12, 3), (2, 12, 4), (2, 24)]

RIGHT = {
    "conv": Case("Conv", FILTERS, {"pads": [1, 0, 1, 0], "strides": [2, 1]}),
    "conv_asymmetric": Case("Conv", FILTERS, {"pads": [0, 1, 2, 0], "dilations": [2, 1]}),
    "conv_same_upper": Case("Conv", FILTERS[:2], {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    "conv_same_lower": Case("Conv", FILTERS[:2], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    "conv_valid": Case("Conv", FILTERS[:2], {"auto_pad": "VALID"}),
    "conv_groups": Case("Conv", [(1, 4, 6, 6), (8, 2, 3, 3)], {"group": 2}),
    "conv_1d": Case("Conv", [(1, 4, 9), (6, 4, 3)], {"pads": [1, 1]}),
    "conv_3d": Case("Conv", [(1, 2, 5, 6, 7), (3, 2, 2, 3, 2)]),
    "transposed": Case(
        "ConvTranspose", [(1, 4, 5, 5), (4, 3, 3, 3), (3,)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "transposed_less": Case(
        "ConvTranspose", [(1, 4, 5, 5), (4, 3, 3, 3)], {"strides": [2, 2], "pads": [1, 1, 0, 0]}
    ),
    "max_pool": Case("MaxPool", IMAGE, {"kernel_shape": [3, 2], "strides": [2, 2]}),
    "max_pool_ceil": Case(
        "MaxPool", IMAGE,
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
    ),
    "max_pool_asymmetric": Case(
        "MaxPool", IMAGE, {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "strides": [2, 2]}
    ),
    "max_pool_same": Case(
        "MaxPool", IMAGE, {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}
    ),
    "max_pool_dilated": Case("MaxPool", IMAGE, {"kernel_shape": [2, 2], "dilations": [3, 2]}),
    "mean_pool": Case(
        "AveragePool", IMAGE, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    ),
    "mean_pool_of_padding": Case(
        "AveragePool", IMAGE,
        {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1},
    ),
    "mean_pool_asymmetric": Case(
        "AveragePool", IMAGE,
        {"kernel_shape": [3, 3], "pads": [0, 1, 2, 0], "count_include_pad": 1},
    ),
    "mean_pool_ceil": Case(
        "AveragePool", IMAGE,
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1},
        opset=19,
    ),
    "mean_pool_ceil_of_padding": Case(
        "AveragePool", IMAGE,
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1,
         "count_include_pad": 1},
        opset=19,
    ),
    "global_mean": Case("GlobalAveragePool", IMAGE),
    "global_max": Case("GlobalMaxPool", IMAGE),
    "gemm": Case(
        "Gemm", [(4, 3), (5, 4), (5,)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}
    ),
    "gemm_alone": Case("Gemm", [(3, 4), (4, 5)], {"alpha": 0.5}),
    "matmul": Case("MatMul", [(2, 3, 4, 5), (3, 5, 6)]),
    "einsum": Case("Einsum", [(2, 3, 4), (2, 4, 5)], {"equation": "bij,bjk->bki"}),
    "batch_norm": Case(
        "BatchNormalization", [*IMAGE, (4,), (4,), (4,), (4,)], {"epsilon": 0.01}, positive=True
    ),
    "instance_norm": Case("InstanceNormalization", [*IMAGE, (4,), (4,)]),
    "layer_norm": Case("LayerNormalization", [(2, 3, 8), (3, 8), (3, 8)], {"axis": 1}),
    "layer_norm_plain": Case("LayerNormalization", [(2, 3, 8), (8,)], {"epsilon": 0.1}),
    "lp_norm": Case("LpNormalization", [(3, 5)], {"axis": 0, "p": 1}),
    "lrn": Case("LRN", IMAGE, {"size": 3, "alpha": 0.1}),
    "softmax": Case("Softmax", [(2, 3, 4)], {"axis": 1}),
    "softmax_of_old": Case("Softmax", [(2, 3, 4)], opset=11),
    "log_softmax": Case("LogSoftmax", [(2, 3, 4)]),
    "clip": Case("Clip", IMAGE, constants=[(-0.25, "FLOAT"), (0.5, "FLOAT")]),
    "clip_above": Case("Clip", IMAGE, constants=[NONE, (0.5, "FLOAT")]),
    "clip_of_old": Case("Clip", IMAGE, {"max": 0.5}, opset=6),
    "prelu": Case("PRelu", [*IMAGE, (4, 1, 1)]),
    "hard_sigmoid": Case("HardSigmoid", IMAGE),
    "hard_swish": Case("HardSwish", IMAGE),
    "gelu": Case("Gelu", IMAGE, {"approximate": "tanh"}, opset=20),
    "round": Case("Round", [(9,)]),
    "mean_of": Case("Mean", [(3, 4), (4,), (3, 1)]),
    "reduce": Case("ReduceMean", IMAGE, {"axes": [2, 3], "keepdims": 0}),
    "reduce_all": Case("ReduceSum", IMAGE),
    "reduce_input": Case("ReduceL2", IMAGE, constants=[([-1], "INT64")], opset=18),
    "log_sum_exp": Case("ReduceLogSumExp", IMAGE, {"axes": [1]}),
    "arg_max": Case("ArgMax", IMAGE, {"axis": 1, "keepdims": 0}),
    "top_k": Case("TopK", [(4, 9)], {"largest": 0}, constants=[([3], "INT64")], outputs=2),
    "transpose": Case("Transpose", [(2, 3, 4)], {"perm": [1, 2, 0]}),
    "reshape": Case("Reshape", [(2, 3, 4)], constants=[([0, -1], "INT64")]),
    "flatten": Case("Flatten", [(2, 3, 4)], {"axis": 2}),
    "flatten_all": Case("Flatten", [(2, 3, 4)], {"axis": 0}),
    "concat": Case("Concat", [(2, 3), (2, 1)], {"axis": 1}),
    "split": Case("Split", [(2, 7)], {"axis": 1, "num_outputs": 3}, outputs=3, opset=18),
    "split_sizes": Case("Split", [(2, 7)], {"axis": 1}, constants=[([2, 5], "INT64")], outputs=2),
    "slice": Case(
        "Slice", [(8, 9)],
        constants=[([1, -8], "INT64"), ([100, -1], "INT64"), ([0, 1], "INT64"), ([3, 2], "INT64")],
    ),
    "gather": Case("Gather", [(5, 6)], {"axis": 1}, constants=[([[0, -1], [2, 3]], "INT64")]),
    "gather_one": Case("Gather", [(5, 6)], constants=[(-2, "INT64")]),
    "pad": Case("Pad", [(2, 3)], constants=[([1, 0, 0, 2], "INT64"), (1.5, "FLOAT")]),
    "pad_reflect": Case("Pad", IMAGE, {"mode": "reflect"}, [([0, 0, 1, 2, 0, 0, 2, 1], "INT64")]),
    "expand": Case("Expand", [(3, 1)], constants=[([2, 1, 4], "INT64")]),
    "tile": Case("Tile", [(2, 3)], constants=[([2, 2], "INT64")]),
    "depth_to_space": Case("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2}),
    "depth_to_space_crd": Case("DepthToSpace", [(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    "nearest": Case(
        "Resize", IMAGE,
        {"mode": "nearest", "coordinate_transformation_mode": "asymmetric",
         "nearest_mode": "floor"},
        [NONE, ([1, 1, 2, 3], "FLOAT")],
    ),
    "bilinear": Case("Resize", IMAGE, {"mode": "linear"}, [NONE, ([1, 1, 2, 1.5], "FLOAT")]),
    "bilinear_corners": Case(
        "Resize", IMAGE,
        {"mode": "linear", "coordinate_transformation_mode": "align_corners"},
        [NONE, NONE, ([2, 4, 17, 5], "INT64")],
    ),
    "cubic": Case("Resize", IMAGE, {"mode": "cubic"}, [NONE, ([1, 1, 2, 2], "FLOAT")]),
    "upsample": Case("Upsample", IMAGE, {"mode": "nearest"}, [([1, 1, 2, 2], "FLOAT")], opset=9),
    "lstm": Case("LSTM", [*LSTM, (1, 32)], {"hidden_size": 4}, outputs=3),
    "lstm_plain": Case("LSTM", LSTM, {"hidden_size": 4}),
    "gru_both_ways": Case(
        "GRU", GRU, {"hidden_size": 4, "direction": "bidirectional", "linear_before_reset": 1},
        outputs=2,
    ),
    "rnn_relu": Case(
        "RNN", [(5, 2, 3), (1, 4, 3), (1, 4, 4)], {"hidden_size": 4, "activations": ["Relu"]}
    ),
}  # fmt: skip

REFUSED = {
    "indices": (Case("MaxPool", IMAGE, {"kernel_shape": [2, 2]}, outputs=2), "MaxPool", "indices"),
    "ceil": (
        Case("MaxPool", IMAGE, {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1], "ceil_mode": 1}),
        "MaxPool", "ceil_mode",
    ),
    "uncounted": (
        Case("AveragePool", IMAGE, {"kernel_shape": [3, 3], "pads": [0, 0, 1, 1]}),
        "AveragePool", "padding",
    ),
    "gru": (Case("GRU", GRU, {"hidden_size": 4, "direction": "bidirectional"}), "GRU",
            "linear_before_reset"),
    "reverse": (Case("LSTM", LSTM, {"hidden_size": 4, "direction": "reverse"}), "LSTM",
                "reverse"),
    "backwards": (
        Case("Slice", [(4,)], constants=[([-1], "INT64"), ([-9], "INT64"), ([0], "INT64"),
                                    ([-1], "INT64")]),
        "Slice", "backwards",
    ),
    "tf": (
        Case("Resize", IMAGE, {"mode": "linear", "coordinate_transformation_mode": "asymmetric"},
             [NONE, ([1, 1, 2, 2], "FLOAT")]),
        "Resize", "linear asymmetric",
    ),
    "shrink": (Case("Shrink", IMAGE), "Shrink", "no counterpart"),
}  # fmt: skip


def computed(proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Outputs of ONNX Runtime."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    results: list[np.ndarray] = session.run(None, dict(feeds))
    return results


def save(name: str, proto: onnx.ModelProto, feeds: Mapping[str, np.ndarray], folder: Path) -> None:
    """Write a model with its inputs, and the outputs of ONNX Runtime."""
    names = [info.name for info in proto.graph.output]
    values = dict(zip(names, computed(proto, feeds), strict=True))
    (folder / f"{name}.onnx").write_bytes(proto.SerializeToString())
    ReferenceValues(feeds, {}, values).save(folder / f"{name}.npz")


def drawn(proto: onnx.ModelProto, *, positive: bool = False) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    feeds = {}
    for info in proto.graph.input:
        shape = [each.dim_value for each in info.type.tensor_type.shape.dim]
        array = generator.standard_normal(shape).astype(np.float32)
        feeds[info.name] = np.abs(array) if positive else array
    return feeds


def in_torch(folder: Path) -> Outcomes:
    """Outcomes of PyTorch for the models in ``folder``: right, refused, wrong, unknown."""
    python = torch_environment.python()
    outcomes: Outcomes = json.loads(
        runtime_environments.run(python, "torch_counterparts.py", folder).splitlines()[-1]
    )
    return outcomes


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Of all cases at once: PyTorch takes seconds to start."""
    torch_environment.python()
    folder = tmp_path_factory.mktemp("counterparts")
    refused = ((name, case) for name, (case, *_) in REFUSED.items())
    for name, case in [*RIGHT.items(), *refused]:
        proto = case.proto()
        save(name, proto, drawn(proto, positive=case.positive), folder)
    for name, network in {"conv_net": conv_net(), "mlp": mlp(), "shapes": of_shapes()}.items():
        save(name, network, drawn(network), folder)
    return in_torch(folder)


def of_shapes() -> onnx.ModelProto:
    """A reshape whose shape is computed from that of an input, which is an output too."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["batch"]),
        node("Unsqueeze", ["batch", "axes"], ["u"]),
        node("Concat", ["u", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
        node("Mul", ["y", "half"], ["z"]),
    ]
    constants = [
        constant("first", 0), constant("axes", [0]), constant("rest", [-1]),
        constant("half", 0.5, "FLOAT"),
    ]  # fmt: skip
    outputs = [value("z", [2, 12]), value("shape", [2], "INT64")]
    return model(nodes, [value("x", [2, 3, 4])], outputs, constants)


@pytest.mark.parametrize("name", [*RIGHT, "conv_net", "mlp", "shapes"])
def test_a_counterpart_computes_what_onnxruntime_does(name: str, outcomes: Outcomes) -> None:
    if name in outcomes["unknown"]:
        pytest.fail("it has no function")
    assert name in outcomes["right"], outcomes["wrong"].get(name) or outcomes["refused"].get(name)


@pytest.mark.parametrize("name", REFUSED)
def test_what_pytorch_would_compute_otherwise_is_refused(name: str, outcomes: Outcomes) -> None:
    _, *named = REFUSED[name]
    if name in outcomes["unknown"]:
        assert named[-1] == "no counterpart"
        return
    assert all(fact in outcomes["refused"][name] for fact in named), outcomes["refused"][name]


@pytest.mark.slow
def test_every_case_of_the_onnx_package_is_computed_alike_or_refused(tmp_path: Path) -> None:
    for name, proto, feeds in cases_of_onnx():
        try:
            save(name, proto, feeds, tmp_path)
        except Exception:  # ONNX Runtime's errors have no common base class
            continue
    found = in_torch(tmp_path)
    assert len(found["right"]) > 500
    assert all(found["refused"].values()), "each refusal has its reason"
    # Of equal values, each takes another.
    ties = {name for name in found["wrong"] if "top_k_same_values" in name}
    assert found["wrong"].keys() == ties, found["wrong"]


# Inputs that models hold as constants, after so many; those of other operators are data.
_DATA = {"Gather": 2, "GatherElements": 2, "GatherND": 2, "ScatterElements": 3, "Where": 3}


def cases_of_onnx() -> Iterable[tuple[str, onnx.ModelProto, dict[str, np.ndarray]]]:
    """Models of one standard operator whose inputs and outputs are tensors that NumPy has."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of logarithms of zero and the like
        cases = list(collect_testcases(None))
    for case in cases:
        nodes = case.model.graph.node
        inputs, expected = case.data_sets[0]
        plain = all(
            isinstance(each, np.ndarray) and each.dtype.kind in "biuf" and each.dtype.isbuiltin
            for each in (*inputs, *expected)
        )
        if len(nodes) == 1 and not nodes[0].domain and plain:
            yield case.name, *with_constants(case.model, inputs)


def with_constants(
    proto: onnx.ModelProto, inputs: Sequence[np.ndarray]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """``proto``, whose inputs of an operator's settings are constants, as models have them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    data = _DATA.get(proto.graph.node[0].op_type, 1)
    feeds = dict(zip((info.name for info in proto.graph.input), inputs, strict=True))
    for number, (name, array) in enumerate(list(feeds.items())):
        if number >= data and array.size <= 16 and array.ndim <= 1:
            copy.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
            del feeds[name]
    remaining = [info for info in copy.graph.input if info.name in feeds]
    del copy.graph.input[:]
    copy.graph.input.extend(remaining)
    return copy, feeds
