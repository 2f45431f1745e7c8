"""How operators of MXNet become ONNX where its exporter has no way, or one of an older opset.

Two kinds of rules: conversions in the exporter's own registry, for the opset of the zoo; and
operators that are written in others before exporting, where that takes the shapes of values.
Knows MXNet's exporter; no networks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import mxnet as mx
import numpy as np
import onnx
from mxnet.onnx.mx2onnx._export_onnx import MXNetGraph

# The newest that this version of onnx has, and the exporter's choice. All networks have the same,
# since bricks of different opsets are different bricks.
OPSET = 19

Attributes = dict[str, str]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Declared:
    """A parameter by shape and type, in the place of its values; small ones are ``kept``."""

    shape: Shape
    dtype: np.dtype[Any]
    kept: tuple[float, ...]

    def asnumpy(self) -> Declared:
        """Itself: the exporter hands it on to :func:`declare`."""
        return self


@MXNetGraph.register("null", OPSET)
def declare(node: dict[str, Any], **exporter: Any) -> tuple[list[Any], tuple[np.dtype[Any]]]:
    """Inputs and parameters; the exporter's own rule writes weights out number by number."""
    name = node["name"]
    if exporter["is_input"]:
        type_ = exporter["in_type"]
        value = onnx.helper.make_tensor_value_info(name, type_, exporter["in_shape"])
        return [value], (onnx.helper.tensor_dtype_to_np_dtype(type_),)
    held = exporter["weights"][name]
    type_ = onnx.helper.np_dtype_to_tensor_dtype(held.dtype)
    if held.kept:
        tensor = onnx.helper.make_tensor(name, type_, held.shape, held.kept)
    else:  # the exporter checks its graph, and takes no tensor for one without values
        size = math.prod(held.shape) * held.dtype.itemsize
        tensor = onnx.helper.make_tensor(name, type_, held.shape, bytes(size), raw=True)
    exporter["initializer"].append(tensor)
    return [onnx.helper.make_tensor_value_info(name, type_, held.shape)], (held.dtype,)


def _reduce(operator: str) -> Callable[..., list[onnx.NodeProto]]:
    """A reduction, whose axes are an input since opset 18."""

    def convert(node: dict[str, Any], **exporter: Any) -> list[onnx.NodeProto]:
        name, attributes = node["name"], node.get("attrs", {})
        [(position, port, *_)] = node["inputs"]
        inputs = [exporter["outputs_lookup"][position][port].name]
        axes = numbers(attributes.get("axis", "()"))
        if attributes.get("exclude") == "True" or not axes:
            raise NotImplementedError(f"{name}: a reduction over all axes, or all but some")
        exporter["initializer"].append(
            onnx.helper.make_tensor(f"{name}_axes", onnx.TensorProto.INT64, [len(axes)], axes)
        )
        keepdims = int(attributes.get("keepdims") in ("True", "1"))
        return [
            onnx.helper.make_node(
                operator, [*inputs, f"{name}_axes"], [name], name=name, keepdims=keepdims
            )
        ]

    return convert


@MXNetGraph.register("_contrib_BilinearResize2D", OPSET)
def _bilinear(node: dict[str, Any], **exporter: Any) -> list[onnx.NodeProto]:
    """The exporter's own rule, which takes corners to be aligned whatever the network says."""
    nodes: list[onnx.NodeProto]
    nodes = MXNetGraph.registry_[12]["_contrib_BilinearResize2D"](node, **exporter)
    if node.get("attrs", {}).get("align_corners") in ("False", "0"):
        (mode,) = (a for a in nodes[-1].attribute if a.name == "coordinate_transformation_mode")
        mode.s = b"half_pixel"
    return nodes


@MXNetGraph.register("SliceChannel", OPSET)
def _split(node: dict[str, Any], **exporter: Any) -> list[onnx.NodeProto]:
    """A Split into equal parts, whose number is an attribute since opset 18."""
    name, attributes = node["name"], node.get("attrs", {})
    [(position, port, *_)] = node["inputs"]
    parts, axis = int(attributes["num_outputs"]), int(attributes.get("axis", 1))
    if attributes.get("squeeze_axis") in ("True", "1"):
        raise NotImplementedError(f"{name}: a split that drops its axis")
    outputs = [f"{name}{part}" for part in range(parts)]
    source = exporter["outputs_lookup"][position][port].name
    return [
        onnx.helper.make_node("Split", [source], outputs, name=name, axis=axis, num_outputs=parts)
    ]


for _mxnet, _onnx in (
    ("mean", "ReduceMean"),
    ("max", "ReduceMax"),
    ("min", "ReduceMin"),
    ("sum", "ReduceSum"),
):
    MXNetGraph.register(_mxnet, OPSET)(_reduce(_onnx))


def rewritten(symbol: Any, inputs: Mapping[str, Shape]) -> Any:
    """The same network in operators that the exporter knows, for ``inputs`` of these shapes."""
    graph = json.loads(symbol.tojson())
    inner = symbol.get_internals()
    _, shapes, _ = inner.infer_shape(**inputs)
    known = dict(zip(inner.list_outputs(), shapes, strict=True))

    def shape_of(position: int) -> Shape:
        node = graph["nodes"][position]
        name = node["name"]
        return tuple(known[name] if node["op"] == "null" else known[f"{name}_output"])

    changed = False
    for position, node in enumerate(graph["nodes"]):
        rule = _REWRITES.get(node["op"])
        if rule is None:
            continue
        before = shape_of(node["inputs"][0][0])
        replacement = rule(node.get("attrs", {}), before, shape_of(position))
        if replacement is not None:
            node["op"], node["attrs"] = replacement
            del node["inputs"][1:]  # where there is a second, it only gave its shape
            changed = True
    return mx.sym.load_json(json.dumps(graph)) if changed else symbol


def _adaptive_pool(given: Attributes, before: Shape, after: Shape) -> tuple[str, Attributes] | None:
    """Averages over windows that do not overlap, where the output divides the input."""
    (high, wide), (rows, columns) = before[2:], after[2:]
    if (rows, columns) == (1, 1):
        return None  # the exporter knows this one
    if high % rows or wide % columns:
        raise NotImplementedError(f"adaptive pooling of {high}x{wide} to {rows}x{columns}")
    window = f"({high // rows}, {wide // columns})"
    return "Pooling", {"kernel": window, "stride": window, "pool_type": "avg"}


def _reshape(given: Attributes, before: Shape, after: Shape) -> tuple[str, Attributes] | None:
    """A Reshape that splits or merges dimensions, by the sizes that come out."""
    if not {-3, -4} & set(numbers(given["shape"])):
        return None
    if before[0] != after[0]:
        raise NotImplementedError(f"a Reshape of {before} to {after} that changes the batch")
    return "Reshape", {"shape": str((0, *after[1:]))}


def _resize(given: Attributes, before: Shape, after: Shape) -> tuple[str, Attributes] | None:
    """A resize to the size of another value, by that size."""
    if given.get("mode", "size") == "size":
        return None
    high, wide = after[2:]
    kept = {key: value for key, value in given.items() if key == "align_corners"}
    return "_contrib_BilinearResize2D", {**kept, "height": str(high), "width": str(wide)}


def _slice_like(given: Attributes, before: Shape, after: Shape) -> tuple[str, Attributes] | None:
    """A slice to the size of another value, by that size."""
    if before == after:
        return "_copy", {}
    kept = [wide == narrow for wide, narrow in zip(before, after, strict=True)]
    begin = ["None" if same else "0" for same in kept]
    end = ["None" if same else str(size) for same, size in zip(kept, after, strict=True)]
    return "slice", {"begin": f"({', '.join(begin)})", "end": f"({', '.join(end)})"}


def _swap(given: Attributes, before: Shape, after: Shape) -> tuple[str, Attributes] | None:
    """Two axes that change places, as a transposition."""
    axes = list(range(len(before)))
    one, other = int(given.get("dim1", 0)), int(given.get("dim2", 0))
    axes[one], axes[other] = axes[other], axes[one]
    return "transpose", {"axes": str(tuple(axes))}


_REWRITES: dict[str, Callable[[Attributes, Shape, Shape], tuple[str, Attributes] | None]] = {
    "_contrib_AdaptiveAvgPooling2D": _adaptive_pool,
    "Reshape": _reshape,
    "_contrib_BilinearResize2D": _resize,
    "slice_like": _slice_like,
    "SwapAxis": _swap,
}


def numbers(text: str) -> list[int]:
    """The integers in an attribute of MXNet: ``(2, 3)``, ``2`` or ``None``."""
    parts = text.strip("()[]").replace("L", "").split(",")
    return [int(part) for part in parts if part.strip() not in ("", "None")]
