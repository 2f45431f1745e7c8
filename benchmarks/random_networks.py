"""Random convolutional networks, drawn from a number: what an architecture search proposes.

Four stages, each with a width, a depth, a kernel and a kind of block. Weights have shapes and no
values, so that a network is a few kilobytes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

_WIDTHS, _DEPTHS, _KERNELS, _SIDE = (24, 32, 48, 64, 96, 128), (1, 2, 3, 4), (3, 5), 192


@dataclass(frozen=True, slots=True)
class _Stage:
    """Equal blocks, separable or plain; the first halves the size."""

    width: int
    depth: int
    kernel: int
    separable: bool


@dataclass(frozen=True, slots=True)
class _Convolution:
    inputs: int
    outputs: int
    kernel: int
    groups: int
    stride: int


def _convolutions(stages: list[_Stage]) -> list[_Convolution]:
    layers = [_Convolution(3, 16, 3, 1, 2)]
    for stage in stages:
        for number in range(stage.depth):
            before, stride = layers[-1].outputs, 2 if number == 0 else 1
            if stage.separable:
                layers.append(_Convolution(before, before, stage.kernel, before, stride))
                layers.append(_Convolution(before, stage.width, 1, 1, 1))
            else:
                layers.append(_Convolution(before, stage.width, stage.kernel, 1, stride))
    return layers


def network(number: int) -> onnx.ModelProto:
    """The network of a number, always the same."""
    chance = random.Random(number)
    stages = [
        _Stage(
            chance.choice(_WIDTHS),
            chance.choice(_DEPTHS),
            chance.choice(_KERNELS),
            chance.choice((False, True)),
        )
        for _ in range(4)
    ]
    nodes, weights, last = [], [], "image"
    for at, layer in enumerate(_convolutions(stages)):
        weight = TensorProto(name=f"w{at}", data_type=TensorProto.FLOAT)
        weight.dims.extend(
            [layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel]
        )
        weight.data_location = TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="none")
        weights.append(weight)
        shape: dict[str, Any] = {
            "kernel_shape": [layer.kernel] * 2,
            "pads": [layer.kernel // 2] * 4,
            "strides": [layer.stride] * 2,
            "group": layer.groups,
        }
        nodes.append(helper.make_node("Conv", [last, f"w{at}"], [f"c{at}"], **shape))
        nodes.append(helper.make_node("Relu", [f"c{at}"], [f"r{at}"]))
        last = f"r{at}"
    nodes.append(helper.make_node("GlobalAveragePool", [last], ["features"]))
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, _SIDE, _SIDE])
    features = helper.make_tensor_value_info("features", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "network", [image], [features], weights)
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def save_networks(folder: Path, count: int) -> None:
    """Write the first ``count`` networks into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        onnx.save(network(number), folder / f"network{number:04d}.onnx")
