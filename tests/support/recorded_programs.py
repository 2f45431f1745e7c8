"""Recorded programs made by hand, a few calls each, without PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence

import onnx
from onnx import TensorProto, helper

from bricks.graph.call import BACKWARD, FORWARD, INFERENCE, OPTIMIZER, TRAINING
from bricks.graph.program import FREED, PHASE, Call, Origin, State

ENTRY, FOLDER = "secret.py:step", "/home/somebody"


def _call(
    operator: str,
    arguments: list[object],
    inputs: Sequence[str],
    outputs: Sequence[str],
    phase: str,
    freed: Sequence[str] = (),
    aliases: tuple[int, ...] = (),
) -> onnx.NodeProto:
    node = Call("aten", operator, (arguments, {}), aliases=aliases).node(inputs, outputs)
    node.metadata_props.add(key=PHASE, value=phase)
    if freed:
        node.metadata_props.add(key=FREED, value=json.dumps(list(freed)))
    return node


def training_step() -> onnx.ModelProto:
    """``y = x w``, ``z = relu(y)``; gradients of both, and an update of ``w`` in place."""
    t0, t1 = {"t": 0}, {"t": 1}
    nodes = [
        _call("mm", [t0, t1], ["x", "w"], ["y"], FORWARD),
        _call("relu", [t0], ["y"], ["z"], FORWARD, freed=["y"]),
        _call("threshold_backward", [t0, t1, 0], ["z", "z"], ["dy"], BACKWARD, freed=["z"]),
        _call("t", [t0], ["x"], ["xt"], BACKWARD, aliases=(0,)),
        _call("mm", [t0, t1], ["xt", "dy"], ["dw"], BACKWARD, freed=["dy"]),
        _call("add_.Tensor", [t0, t1], ["w", "dw"], ["w2"], OPTIMIZER, aliases=(0,)),
    ]
    shapes = {
        "y": [2, 4], "z": [2, 4], "dy": [2, 4], "xt": [8, 2], "dw": [8, 4], "w2": [8, 4],
    }  # fmt: skip
    return _program(nodes, shapes, ["w2", "dw"], TRAINING, ["dw"])


def inference_step() -> onnx.ModelProto:
    """``z = relu(x w)``."""
    nodes = [
        _call("mm", [{"t": 0}, {"t": 1}], ["x", "w"], ["y"], FORWARD),
        _call("relu", [{"t": 0}], ["y"], ["z"], FORWARD, freed=["y"]),
    ]
    return _program(nodes, {"y": [2, 4], "z": [2, 4]}, ["z"], INFERENCE, [])


def gathering_step() -> onnx.ModelProto:
    """``z = relu(x[x])``, whose rows have the shape of ``x``."""
    nodes = [
        _call("index.Tensor", [{"t": 0}, [{"t": 1}]], ["x", "x"], ["y"], FORWARD),
        _call("relu", [{"t": 0}], ["y"], ["z"], FORWARD, freed=["y"]),
    ]
    return _program(nodes, {"y": [2, 4], "z": [2, 4]}, ["z"], INFERENCE, [])


def gathering_twice() -> onnx.ModelProto:
    """``relu(x[x])`` and ``relu(x[w])``, which has more rows."""
    nodes = [
        _call("index.Tensor", [{"t": 0}, [{"t": 1}]], ["x", "x"], ["y"], FORWARD),
        _call("relu", [{"t": 0}], ["y"], ["z"], FORWARD, freed=["y"]),
        _call("index.Tensor", [{"t": 0}, [{"t": 1}]], ["x", "w"], ["u"], FORWARD),
        _call("relu", [{"t": 0}], ["u"], ["v"], FORWARD, freed=["u"]),
    ]
    shapes = {"y": [2, 4], "z": [2, 4], "u": [100, 4], "v": [100, 4]}
    return _program(nodes, shapes, ["z", "v"], INFERENCE, [])


def joining(tensors: int) -> onnx.ModelProto:
    """``relu(cat([x, x, …]))`` of so many tensors."""
    rows = [2 * tensors, 8]
    nodes = [
        _call("cat", [[{"t": n} for n in range(tensors)]], ["x"] * tensors, ["y"], FORWARD),
        _call("relu", [{"t": 0}], ["y"], ["z"], FORWARD, freed=["y"]),
    ]
    return _program(nodes, {"y": rows, "z": rows}, ["z"], INFERENCE, [])


def _program(
    nodes: Sequence[onnx.NodeProto],
    shapes: dict[str, list[int]],
    outputs: Sequence[str],
    kind: str,
    gradients: Sequence[str],
) -> onnx.ModelProto:
    infos = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in {**shapes, "x": [2, 8]}.items()
    }
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8, 4])
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="weights")
    graph = helper.make_graph(
        list(nodes), "program", [infos["x"]], [infos[name] for name in outputs], [weight]
    )
    graph.value_info.extend(infos[name] for name in shapes if name not in outputs)
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("org.pytorch.aten", 1)], ir_version=10
    )
    Origin(ENTRY, FOLDER, kind, "2.13.0", {"batch": 2}).note(proto)
    State({"inputs": 64, "parameters": 128, "buffers": 0, "optimizer": 0}, gradients).note(proto)
    return proto
