"""Models with what real files hold beyond plain layers; each function makes one, small.

Apart from the tests, which try each of them at several granularities.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from factories import constant, conv_net, mlp, model, node, value
from onnx import TensorProto, helper, numpy_helper

X = value("x", [2, 4])
Y = value("y", [2, 4])
WEIGHT = constant("w", np.linspace(-1, 1, 16).reshape(4, 4), "FLOAT")


def optional_inputs() -> onnx.ModelProto:
    """Clip without a lower bound, and Resize without what comes before its scales."""
    nodes = [
        node("Clip", ["x", "", "most"], ["a"]),
        node("Resize", ["a", "", "scales"], ["y"], mode="nearest"),
    ]
    constants = [constant("most", 0.5, "FLOAT"), constant("scales", [1.0, 2.0], "FLOAT")]
    return model(nodes, [X], [value("y", [2, 8])], constants)


def initializers_everywhere() -> onnx.ModelProto:
    """A weight that is listed as an input too, one that is an output, and an input that is one."""
    nodes = [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])]
    inputs = [X, value("w", [4, 4])]
    outputs = [Y, value("w", [4, 4]), value("x", [2, 4])]
    return model(nodes, inputs, outputs, [WEIGHT])


def duplicate_names() -> onnx.ModelProto:
    """All nodes are called the same."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], name="layer"),
        node("Relu", ["a"], ["b"], name="layer"),
        node("MatMul", ["b", "w"], ["y"], name="layer"),
    ]
    return model(nodes, [X], [Y], [WEIGHT])


def local_functions() -> onnx.ModelProto:
    """A function that calls a function, with an attribute handed through."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leak = helper.make_node("LeakyRelu", ["a"], ["b"])
    leak.attribute.append(
        onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    )
    inner = helper.make_function("local", "Leak", ["a"], ["b"], [leak], opsets, ["slope"])
    call = helper.make_node("Leak", ["c"], ["d"], domain="local")
    call.attribute.append(
        onnx.AttributeProto(name="slope", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope")
    )
    body = [helper.make_node("MatMul", ["x", "k"], ["c"]), call]
    outer = helper.make_function("local", "Dense", ["x", "k"], ["d"], body, opsets, ["slope"])
    nodes = [
        node("Dense", ["x", "w"], ["a"], domain="local", slope=0.1),
        node("Dense", ["a", "w"], ["y"], domain="local", slope=0.2),
    ]
    return model(nodes, [X], [Y], [WEIGHT], domains=["local"], functions=[inner, outer])


def nested_control_flow() -> onnx.ModelProto:
    """A Loop in an If in a Loop, each of which reads what is outside of all."""
    innermost = helper.make_graph(
        [
            node("MatMul", ["v", "w"], ["v2"]),
            node("Add", ["v2", "shift"], ["v3"]),
            node("Identity", ["c"], ["c2"]),
        ],
        "innermost",
        [value("i2", [], "INT64"), value("c", [], "BOOL"), value("v", [2, 4])],
        [value("c2", [], "BOOL"), value("v3", [2, 4])],
    )
    then = helper.make_graph(
        [node("Loop", ["two", "yes", "u"], ["t"], body=innermost)], "then", [], [value("t", [2, 4])]
    )
    other = helper.make_graph([node("Neg", ["u"], ["e"])], "else", [], [value("e", [2, 4])])
    outer = helper.make_graph(
        [
            node("Less", ["i", "one"], ["first"]),
            node("If", ["first"], ["u2"], then_branch=then, else_branch=other),
            node("Identity", ["go"], ["still"]),
        ],
        "outer",
        [value("i", [], "INT64"), value("go", [], "BOOL"), value("u", [2, 4])],
        [value("still", [], "BOOL"), value("u2", [2, 4])],
    )
    nodes = [
        node("Tanh", ["x"], ["shift"]),
        node("Loop", ["three", "yes", "x"], ["y"], body=outer),
    ]
    constants = [
        WEIGHT, constant("one", 1), constant("two", 2), constant("three", 3),
        constant("yes", True, "BOOL"),
    ]  # fmt: skip
    return model(nodes, [X], [Y], constants)


def scan() -> onnx.ModelProto:
    """Scan over rows, with a state and a captured weight."""
    body = helper.make_graph(
        [
            node("MatMul", ["row", "w"], ["m"]),
            node("Add", ["state", "m"], ["next"]),
            node("Identity", ["next"], ["out"]),
        ],
        "body",
        [value("state", [4]), value("row", [4])],
        [value("next", [4]), value("out", [4])],
    )
    nodes = [
        node("ReduceSum", ["x", "zero"], ["start"], keepdims=0),
        node("Scan", ["start", "x"], ["last", "y"], body=body, num_scan_inputs=1),
    ]
    return model(nodes, [X], [value("last", [4]), Y], [WEIGHT, constant("zero", [0])])


def sequences() -> onnx.ModelProto:
    """Parts of a tensor in a sequence, one taken out, one put in, and all together again."""
    nodes = [
        node("SplitToSequence", ["x", "parts"], ["s"], axis=1),
        node("SequenceAt", ["s", "zero"], ["first"]),
        node("Relu", ["first"], ["r"]),
        node("SequenceInsert", ["s", "r"], ["t"]),
        node("SequenceErase", ["t", "zero"], ["u"]),
        node("ConcatFromSequence", ["u"], ["y"], axis=1),
        node("SequenceLength", ["u"], ["n"]),
    ]
    constants = [constant("parts", [1, 3]), constant("zero", 0)]
    return model(nodes, [X], [Y, value("n", [], "INT64")], constants)


def sequence_in_and_out() -> onnx.ModelProto:
    """A sequence is fed, and another given back."""
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, None])
    made = helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None)
    nodes = [
        node("ConcatFromSequence", ["s"], ["a"], axis=1),
        node("Relu", ["a"], ["b"]),
        node("SequenceInsert", ["s", "b"], ["t"]),
    ]
    return model(nodes, [given], [made])


def optionals() -> onnx.ModelProto:
    """A tensor becomes an optional, and one again."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Optional", ["a"], ["o"]),
        node("OptionalHasElement", ["o"], ["has"]),
        node("OptionalGetElement", ["o"], ["b"]),
        node("Neg", ["b"], ["y"]),
    ]
    return model(nodes, [X], [Y, value("has", [], "BOOL")], opset=18)


def texts() -> onnx.ModelProto:
    """Texts come in, and become numbers of a vocabulary."""
    nodes = [
        node("StringConcat", ["words", "mark"], ["marked"]),
        node(
            "LabelEncoder", ["marked"], ["ids"], domain="ai.onnx.ml",
            keys_strings=["word0!", "word1!"], values_int64s=[1, 2], default_int64=0,
        ),
        node("Gather", ["table", "ids"], ["y"]),
    ]  # fmt: skip
    table = constant("table", np.linspace(-1, 1, 12).reshape(3, 4), "FLOAT")
    mark = onnx.TensorProto(name="mark", data_type=TensorProto.STRING, string_data=[b"!"])
    words = [value("words", [3], "STRING")]
    proto = model(nodes, words, [value("y", [3, 4])], [table, mark], opset=20, ir_version=9)
    proto.opset_import.add(domain="ai.onnx.ml", version=2)
    return proto


def maps() -> onnx.ModelProto:
    """A classifier as scikit-learn's are exported: probabilities by label, in maps."""
    nodes = [
        node("LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml",
             coefficients=np.linspace(-1, 1, 8).tolist(), intercepts=[0.1, -0.1],
             classlabels_ints=[0, 1], post_transform="SOFTMAX"),
        node("ZipMap", ["scores"], ["p"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]  # fmt: skip
    held = helper.make_tensor_type_proto(TensorProto.FLOAT, [])
    kind = helper.make_sequence_type_proto(helper.make_map_type_proto(TensorProto.INT64, held))
    proto = model(nodes, [X], [value("label", [2], "INT64"), helper.make_value_info("p", kind)])
    proto.opset_import.add(domain="ai.onnx.ml", version=1)
    return proto


def sparse_weight() -> onnx.ModelProto:
    """A weight that is stored as the few numbers that are not zero."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], [X], [Y])
    sparse = proto.graph.sparse_initializer.add(dims=[4, 4])
    sparse.values.CopyFrom(numpy_helper.from_array(np.array([1.0, -2.0, 3.0], np.float32), "w"))
    sparse.indices.CopyFrom(numpy_helper.from_array(np.array([0, 6, 13]), "where"))
    return proto


def _cast_through(dtype: str, opset: int = 19) -> onnx.ModelProto:
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Cast", ["a"], ["b"], to=getattr(TensorProto, dtype)),
        node("Identity", ["b"], ["c"]),
        node("Cast", ["c"], ["y"], to=TensorProto.FLOAT),
    ]
    return model(nodes, [X], [Y], [WEIGHT], opset=opset, ir_version=10)


def bfloat16() -> onnx.ModelProto:
    """Values of bfloat16 in between."""
    return _cast_through("BFLOAT16")


def float8() -> onnx.ModelProto:
    """Values of float8 in between."""
    return _cast_through("FLOAT8E4M3FN")


def int4() -> onnx.ModelProto:
    """A weight of 4 bits, in blocks that have a scale each."""
    weight = helper.make_tensor("q", TensorProto.INT4, [32, 4], np.arange(128) % 15 - 7)
    scales = constant("scales", np.linspace(0.1, 0.2, 8).reshape(2, 4), "FLOAT")
    nodes = [
        node("DequantizeLinear", ["q", "scales"], ["w"], axis=0, block_size=16),
        node("MatMul", ["x", "w"], ["y"]),
    ]
    inputs = [value("x", [2, 32])]
    return model(nodes, inputs, [Y], [weight, scales], opset=21, ir_version=10)


def contrib() -> onnx.ModelProto:
    """Operators of the runtime's own domain."""
    gain, bias = constant("g", np.ones(4), "FLOAT"), constant("b", np.zeros(4), "FLOAT")
    nodes = [
        node("SkipLayerNormalization", ["x", "x", "g", "b"], ["a"], domain="com.microsoft"),
        node("FusedMatMul", ["a", "w"], ["c"], domain="com.microsoft", transB=1),
        node("BiasGelu", ["c", "b"], ["y"], domain="com.microsoft"),
    ]
    return model(nodes, [value("x", [1, 2, 4])], [value("y", [1, 2, 4])],
                 [gain, bias, WEIGHT], domains=["com.microsoft"])  # fmt: skip


def tied_weights() -> onnx.ModelProto:
    """One table that embeds tokens and scores them."""
    table = constant("table", np.linspace(-1, 1, 40).reshape(10, 4), "FLOAT")
    nodes = [
        node("Gather", ["table", "ids"], ["a"]),
        node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        node("MatMul", ["a", "turned"], ["y"]),
    ]
    return model(nodes, [value("ids", [1, 6], "INT64")], [value("y", [1, 6, 10])], [table])


def detections() -> onnx.ModelProto:
    """The head of a detector: what is left after suppression, and the best of it."""
    nodes = [
        node("Sigmoid", ["x"], ["scores"]),
        node("Add", ["corner", "size"], ["far"]),
        node("Concat", ["corner", "far"], ["boxes"], axis=2),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["kept"]),
        node("Slice", ["kept", "two", "three", "one"], ["third"]),
        node("Squeeze", ["third", "one"], ["which"]),
        node("Gather", ["boxes", "which"], ["found"], axis=1),
        node("ReduceSum", ["found", "two"], ["sums"], keepdims=0),
        node("Shape", ["sums"], ["shape"]),
        node("Slice", ["shape", "one", "two"], ["count"]),
        node("Min", ["count", "five"], ["k"]),
        node("TopK", ["sums", "k"], ["y", "order"]),
    ]
    constants = [
        constant("size", np.full((1, 20, 2), 0.3), "FLOAT"), constant("most", [10]),
        constant("iou", [0.5], "FLOAT"), constant("least", [0.3], "FLOAT"),
        constant("one", [1]), constant("two", [2]), constant("three", [3]), constant("five", [5]),
    ]  # fmt: skip
    inputs = [value("x", [1, 3, 20]), value("corner", [1, 20, 2])]
    outputs = [value("y", [1, "k"]), value("order", [1, "k"], "INT64")]
    return model(nodes, inputs, outputs, constants)


def nothing_but_a_constant() -> onnx.ModelProto:
    """No work at all."""
    given = node("Constant", [], ["y"], value=constant("", [1.0, 2.0], "FLOAT"))
    return model([given], [], [value("y", [2])])


def old_opset() -> onnx.ModelProto:
    """Operators as they were in opset 7, weights listed as inputs, file format 3."""
    proto = conv_net(opset=7, blocks=1)
    for each in proto.graph.initializer:
        dtype = TensorProto.DataType.Name(each.data_type)
        proto.graph.input.append(value(each.name, list(each.dims), dtype))
    proto.ir_version = 3
    return proto


def new_opset() -> onnx.ModelProto:
    """The newest opset that the installed runtime takes without a warning."""
    return mlp(opset=26)


MODELS: list[Callable[[], onnx.ModelProto]] = [
    optional_inputs, initializers_everywhere, duplicate_names, local_functions,
    nested_control_flow, scan, sequences, sequence_in_and_out, optionals, texts, maps,
    sparse_weight, bfloat16, float8, int4, contrib, tied_weights, detections,
    nothing_but_a_constant, old_opset, new_opset,
]  # fmt: skip
