"""Rewrites ONNX Runtime's own fused and blocked operators to standard ONNX operators.

The costliest operators are nodes of the graph that ONNX Runtime executes, which neither other
runtimes nor the reference evaluator know. Each is rewritten to equivalent standard operators on
values in the plain layout. In the blocked layout (NCHWc), ``block`` neighbouring channels of a
pixel are contiguous, so that one vector instruction reads them; a blocked value has the shape of
the plain layout, padding channels included. Must not know what runs the operators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bricks.errors import ModelError
from bricks.graph.topology import default_domain, label
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of

if TYPE_CHECKING:
    from bricks.graph.model import Graph

DOMAIN = "com.microsoft.nchwc"

# The channels of the largest block of any runtime; the probe has a second position of each.
_MOST_CHANNELS = 64

_FUSED = "com.microsoft"
# The version of the operators that are written here; earlier ones have other attributes.
_OPSET, _LEAST_OPSET = 17, 13

# Activations that are fused, and their parameters in order; and Clip.
_ACTIVATIONS: Mapping[str, Sequence[str]] = {
    "Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
}  # fmt: skip


class BlockedLayout(Enum):
    """The content of a blocked array: images (N, C, H, W), or filters (O, I, H, W)."""

    IMAGES = "images"
    FILTERS = "filters"


def blocked(array: np.ndarray, layout: BlockedLayout, block: int) -> np.ndarray:
    """``array`` of four axes in blocks of ``block`` channels, with an unchanged shape.

    Fewer channels than a block are not blocked, neither channels of images nor inputs of filters.
    Raises :class:`ModelError` if more channels are no multiple of a block.
    """
    shape = array.shape
    channel_axes = [1] if layout is BlockedLayout.IMAGES else [0, 1]
    axes = [k for k in channel_axes if k == 0 or shape[k] >= block]
    for k in axes:
        if shape[k] % block:
            raise ModelError(
                f"{shape[k]} channels are no multiple of this processor's blocks of {block}: they"
                " were blocked on another processor"
            )
    split = [
        part
        for k, size in enumerate(array.shape)
        for part in ([size // block, block] if (k in axes) else [size])
    ]
    outer, inner, at = [], [], 0
    for k in range(array.ndim):
        outer.append(at)
        if k in axes:
            inner.append(at + 1)
        at += 1 + (k in axes)
    # Of a filter, the inputs of a block come before its outputs.
    order = [*outer, *reversed(inner)]
    return np.ascontiguousarray(array.reshape(split).transpose(order)).reshape(array.shape)


def layout_probe() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model that reorders its input into the blocked layout, and an input for it."""
    shape = [1, _MOST_CHANNELS, 1, 2]
    node = helper.make_node("ReorderInput", ["x"], ["y"], domain=DOMAIN)
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy"]
    graph = helper.make_graph([node], "layout", infos[:1], infos[1:])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {"x": np.arange(2 * _MOST_CHANNELS, dtype=np.float32).reshape(shape)}


def block_of(output: np.ndarray) -> int:
    """The block size, from a runtime's output of :func:`layout_probe`."""
    (second,) = np.flatnonzero(output.ravel() == 1)  # the first channel's second pixel
    return int(second)


@dataclass(frozen=True, slots=True)
class StandardForm:
    """A model in standard operators, with the names of inputs, weights and outputs as before.

    ``layouts`` are the values that were in the blocked layout, and are in the plain one here.
    """

    proto: onnx.ModelProto
    layouts: Mapping[str, BlockedLayout]


@dataclass(slots=True)
class _Rewriting:
    """A rewritten graph: its nodes, further weights, and the layouts of blocked values."""

    graph: Graph
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    layouts: dict[str, BlockedLayout] = field(default_factory=dict)

    def add(self, op: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))

    def constant(self, name: str, values: Any, dtype: Any) -> str:
        self.constants.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def images(self, *names: str) -> None:
        """These values were images in the blocked layout."""
        self.layouts |= dict.fromkeys(filter(None, names), BlockedLayout.IMAGES)

    def shape(self, name: str, node: onnx.NodeProto) -> tuple[int, ...]:
        """The shape of a value; :class:`ModelError` where it is not known."""
        type_ = self.graph.types.get(name)
        if not isinstance(type_, TensorType):
            raise ModelError(f"the shape of {name!r} at {label(node)} is not known")
        return type_.shape


_Rule = Callable[[_Rewriting, onnx.NodeProto], None]


def standard_form(proto: onnx.ModelProto) -> StandardForm | None:
    """``proto`` in standard operators; None if an operator has no rule, or all are standard.

    Raises :class:`ModelError` if a needed shape is unknown, or if its standard operators are of a
    version before 13.
    """
    own = [node for node in proto.graph.node if default_domain(node.domain)]
    if not own or any((node.domain, node.op_type) not in _RULES for node in own):
        return None
    of = _Rewriting(graph_of(proto))
    for node in proto.graph.node:
        rule = _RULES.get((node.domain, node.op_type))
        if rule is None:
            of.nodes.append(node)
        else:
            rule(of, node)
    made = onnx.ModelProto()
    made.CopyFrom(proto)
    del made.graph.node[:], made.opset_import[:], made.graph.value_info[:]
    made.graph.node.extend(of.nodes)
    made.graph.initializer.extend(of.constants)
    made.opset_import.append(helper.make_opsetid("", _opset(proto)))
    return StandardForm(made, of.layouts)


def _opset(proto: onnx.ModelProto) -> int:
    """The version of the standard operators that ``proto`` has; where it has none, our own."""
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    if all(default_domain(node.domain) for node in proto.graph.node):
        return _OPSET
    version: int = versions.get("", 0)
    if version < _LEAST_OPSET:
        raise ModelError(f"its standard operators are of a version before {_LEAST_OPSET}")
    return version


def _attributes(node: onnx.NodeProto, without: Sequence[str] = ()) -> dict[str, Any]:
    return {
        attribute.name: helper.get_attribute_value(attribute)
        for attribute in node.attribute
        if attribute.name not in without
    }


def _conv(of: _Rewriting, node: onnx.NodeProto) -> None:
    """A convolution, then a sum with the fourth input, then an activation."""
    given = _attributes(node)
    parameters = given.pop("activation_params", ())
    activation = given.pop("activation", b"").decode()
    inputs, output = list(node.input), node.output[0]
    added = inputs[3] if len(inputs) > 3 else ""
    last = f"{output}_before_{activation}" if activation else output
    first = f"{output}_convolved" if added else last
    of.add("Conv", inputs[:3] if len(inputs) > 2 and inputs[2] else inputs[:2], first, **given)
    if added:
        of.add("Add", [first, added], last)
    if activation:
        _activate(of, activation, parameters, last, output)
    if node.domain == DOMAIN:
        of.images(inputs[0], added, output)
        of.layouts[inputs[1]] = BlockedLayout.FILTERS


def _activate(
    of: _Rewriting, activation: str, parameters: Sequence[float], before: str, after: str
) -> None:
    if activation == "Clip":
        bounds = [
            of.constant(f"{after}_{name}", bound, np.float32)
            for name, bound in zip(("least", "most"), parameters, strict=True)
        ]
        of.add("Clip", [before, *bounds], after)
        return
    if activation not in _ACTIVATIONS:
        raise ModelError(f"no activation is known that is called {activation!r}")
    names = _ACTIVATIONS[activation]
    of.add(activation, [before], after, **dict(zip(names, parameters, strict=False)))


def _pool(of: _Rewriting, node: onnx.NodeProto) -> None:
    of.add(node.op_type, node.input, node.output[0], **_attributes(node))
    of.images(node.input[0], node.output[0])


def _upsample(of: _Rewriting, node: onnx.NodeProto) -> None:
    given = _attributes(node)
    output = node.output[0]
    scales = of.constant(f"{output}_scales", given.pop("scales"), np.float32)
    mode = given.get("mode", b"nearest")
    if mode == b"nearest":  # each pixel is repeated
        given |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    of.add("Resize", [node.input[0], "", scales], output, **given)
    of.images(node.input[0], output)


def _reorder_input(of: _Rewriting, node: onnx.NodeProto) -> None:
    """Channels that fill the last block are zero."""
    (source,), output = node.input, node.output[0]
    last = bool(_attributes(node).get("channels_last", 0))
    shape = of.shape(source, node)
    channels = shape[-1] if last else shape[1]
    missing = of.shape(output, node)[1] - channels
    if last:
        turned = f"{output}_channels_first" if missing else output
        of.add("Transpose", [source], turned, perm=[0, 3, 1, 2])
        source = turned
    if missing:
        pads = of.constant(f"{output}_pads", [0, 0, 0, 0, 0, missing, 0, 0], np.int64)
        of.add("Pad", [source, pads], output)
    elif not last:
        of.add("Identity", [source], output)
    of.images(output)


def _reorder_output(of: _Rewriting, node: onnx.NodeProto) -> None:
    given = _attributes(node)
    (source,), output, channels = node.input, node.output[0], given["channels"]
    of.images(source)
    last = bool(given.get("channels_last", 0))
    if of.shape(source, node)[1] != channels:
        kept = f"{output}_channels_first" if last else output
        bounds = [
            of.constant(f"{output}_{name}", [number], np.int64)
            for name, number in (("from", 0), ("to", channels), ("axis", 1))
        ]
        of.add("Slice", [source, *bounds], kept)
        source = kept
    elif not last:
        of.add("Identity", [source], output)
    if last:
        of.add("Transpose", [source], output, perm=[0, 2, 3, 1])


def _gemm(of: _Rewriting, node: onnx.NodeProto) -> None:
    given = _attributes(node)
    activation = given.pop("activation").decode()
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    parameters = [given.pop(name) for name in names if name in given]
    before = f"{node.output[0]}_before_{activation}"
    of.add("Gemm", node.input, before, **given)
    _activate(of, activation, parameters, before, node.output[0])


def _matmul(of: _Rewriting, node: onnx.NodeProto) -> None:
    given, output = _attributes(node), node.output[0]
    if given.get("transBatchA") or given.get("transBatchB"):
        raise ModelError(f"{label(node)} moves its batches, which is not spelled out")
    factors = []
    for name, flag in zip(node.input, ("transA", "transB"), strict=True):
        turned = name
        rank = len(of.shape(name, node))
        if given.get(flag) and rank > 1:  # a vector has nothing to transpose
            turned = f"{output}_{flag}"
            axes = [*range(rank - 2), rank - 1, rank - 2]
            of.add("Transpose", [name], turned, perm=axes)
        factors.append(turned)
    alpha = given.get("alpha", 1.0)
    product = output if alpha == 1 else f"{output}_product"
    of.add("MatMul", factors, product)
    if alpha != 1:
        of.add("Mul", [product, of.constant(f"{output}_alpha", alpha, np.float32)], output)


_RULES: Mapping[tuple[str, str], _Rule] = {
    (DOMAIN, "Conv"): _conv,
    (DOMAIN, "MaxPool"): _pool,
    (DOMAIN, "AveragePool"): _pool,
    (DOMAIN, "GlobalMaxPool"): _pool,
    (DOMAIN, "GlobalAveragePool"): _pool,
    (DOMAIN, "Upsample"): _upsample,
    (DOMAIN, "ReorderInput"): _reorder_input,
    (DOMAIN, "ReorderOutput"): _reorder_output,
    (_FUSED, "FusedConv"): _conv,
    (_FUSED, "FusedGemm"): _gemm,
    (_FUSED, "FusedMatMul"): _matmul,
}
