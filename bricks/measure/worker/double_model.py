"""A model in which all floating-point numbers are doubles, for the reference of its accuracy.

Models that would differ in double, and nodes that the onnx package's evaluator computes otherwise
than the specification says, are refused by name; values that differ in each run are found. Must not
know who evaluates the model.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from bricks.errors import BackendError
from bricks.graph.model import Graph
from bricks.graph.payload import is_referenced
from bricks.graph.topology import all_nodes, inner_nodes, label, used_values

# The domain of operators that stand in place of earlier versions of the evaluator's own; see
# ``reference_operators``.
DOMAIN = "bricks.reference"

# Element types that are widened to doubles, and those whose numbers stay as they are.
_WIDENED = (TensorProto.FLOAT, TensorProto.FLOAT16)
_KEPT = frozenset(
    (
        TensorProto.DOUBLE, TensorProto.BOOL, TensorProto.INT8, TensorProto.INT16,
        TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16,
        TensorProto.UINT32, TensorProto.UINT64,
    )
)  # fmt: skip

_DOMAINS = frozenset(("", "ai.onnx.ml", "ai.onnx.preview.training", DOMAIN))

# Activations of recurrent layers: the evaluator ignores others silently.
_USUAL_ACTIVATIONS = {"GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}


def in_double(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model in which all floating-point numbers are doubles.

    Weights that the model only refers to become inputs. Raises :class:`BackendError`, which names
    the node or value, for a model that would differ in double.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(proto)
    graph = wide.graph
    del graph.value_info[:]
    _remove_dropout(graph)
    _flatten_old_softmax(wide)
    for node in all_nodes(graph):
        _refuse_unfaithful(node)
        for attribute in node.attribute:
            what = f"attribute {attribute.name!r} of {label(node)}"
            if attribute.type == AttributeProto.TENSOR:
                attribute.t.CopyFrom(_widened(attribute.t, what))
            elif (
                attribute.name in ("to", "dtype", "output_dtype")
                and attribute.type == AttributeProto.INT
            ):
                attribute.i = _wide_type(attribute.i, what) if attribute.i else attribute.i
    stored = []
    for tensor in graph.initializer:
        number = _wide_type(tensor.data_type, f"weight {tensor.name!r}")
        if is_referenced(tensor):
            graph.input.append(helper.make_tensor_value_info(tensor.name, number, tensor.dims))
        else:
            stored.append(_widened(tensor))
    del graph.initializer[:]
    graph.initializer.extend(stored)
    for info in (*graph.input, *graph.output):
        kind = info.type.tensor_type
        if kind.elem_type:
            kind.elem_type = _wide_type(kind.elem_type, f"value {info.name!r}")
    return wide


def _remove_dropout(graph: onnx.GraphProto) -> None:
    """Make each Dropout of inference an Identity: the evaluator drops elements in some versions.

    A Dropout whose mask is read is unchanged.
    """
    read = {name for node in all_nodes(graph) for name in used_values(node)}
    read.update(info.name for info in graph.output)
    for node in all_nodes(graph):
        masked = any(name in read for name in node.output[1:])
        if node.op_type == "Dropout" and not node.domain and len(node.input) <= 2 and not masked:
            node.op_type = "Identity"
            del node.input[1:], node.output[1:], node.attribute[:]


def _flatten_old_softmax(proto: onnx.ModelProto) -> None:
    """Give softmax before version 13 an operator of its own: the evaluator has only later versions.

    It normalises all axes from ``axis`` on together, which is 1 by default.
    """
    versions = {entry.domain: entry.version for entry in proto.opset_import}
    if versions.get("", versions.get("ai.onnx", 13)) >= 13:
        return
    for node in all_nodes(proto.graph):
        if node.op_type in ("Softmax", "LogSoftmax") and not node.domain:
            if not any(attribute.name == "axis" for attribute in node.attribute):
                node.attribute.append(helper.make_attribute("axis", 1))
            node.domain = DOMAIN
        elif node.op_type == "Hardmax" and not node.domain:
            raise BackendError(f"onnx's reference knows only later versions of {label(node)}")
    if any(node.domain == DOMAIN for node in all_nodes(proto.graph)):
        proto.opset_import.append(helper.make_opsetid(DOMAIN, 1))


def _refuse_unfaithful(node: onnx.NodeProto) -> None:
    """Raise for nodes that the evaluator lacks, or computes otherwise than the specification."""
    if node.domain not in _DOMAINS:
        raise BackendError(f"there is no reference of {label(node)} of domain {node.domain}")
    if node.op_type in RANDOM_OPERATORS or node.op_type == "Dropout":
        raise BackendError(f"{label(node)} draws random numbers")
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "BatchNormalization":
        training = "training_mode" in attributes and attributes["training_mode"].i
        if training or any(node.output[1:]):
            raise BackendError(f"{label(node)} normalises by its batch, as in training")
    if node.op_type not in ("GRU", "LSTM", "RNN"):
        return
    usual = _USUAL_ACTIVATIONS.get(node.op_type)
    if usual is not None and "activations" in attributes:
        names = tuple(name.decode() for name in attributes["activations"].strings)
        if names != usual * (len(names) // len(usual)):
            raise BackendError(f"onnx's reference knows no other activations of {label(node)}")
    if "clip" in attributes or ("input_forget" in attributes and attributes["input_forget"].i):
        raise BackendError(f"onnx's reference knows no clip or input_forget of {label(node)}")
    if len(node.input) > 4 and node.input[4]:
        raise BackendError(f"onnx's reference knows no lengths of sequences of {label(node)}")


def _widened(tensor: onnx.TensorProto, what: str = "") -> onnx.TensorProto:
    number = _wide_type(tensor.data_type, what or f"weight {tensor.name!r}")
    if number == tensor.data_type:
        return tensor
    return numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name)


def _wide_type(number: int, what: str) -> int:
    if number in _WIDENED:
        return int(TensorProto.DOUBLE)
    if number not in _KEPT:
        dtype = TensorProto.DataType.Name(number)
        raise BackendError(f"{what} is of type {dtype}, which the reference does not widen")
    return number


# Operators whose outputs differ in each run.
RANDOM_OPERATORS = frozenset(
    (
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli",
        "Multinomial",
    )
)  # fmt: skip


def random_values(graph: Graph) -> set[str]:
    """The names of values that differ in each run: random numbers, and values that read them."""
    random: set[str] = set()
    for node in graph.nodes:
        operators = {inner.op_type for inner in (node, *inner_nodes(node))}
        if operators & RANDOM_OPERATORS or random.intersection(used_values(node)):
            random.update(name for name in node.output if name)
    return random


def read_by_random(graph: Graph, random: set[str]) -> list[str]:
    """Names of computed, not random values that are read by nodes with random outputs."""
    read = (
        n for node in graph.nodes if random.intersection(node.output) for n in used_values(node)
    )
    made = {name for node in graph.nodes for name in node.output} - random
    return [name for name in dict.fromkeys(read) if name in made]
