import re
from pathlib import Path

import onnx
import pytest
from factories import constant, conv_net, embedding_net, mlp, model, node, save, value
from refusals import refused

from bricks.errors import OpenDimensions, ShapeError, UsageError
from bricks.graph.types import TensorType
from bricks.graph.view import OpenShapes, source_graph
from bricks.reading.read import parse_shape, read_model


def shapes_of(path: Path, **options: object) -> dict[str, tuple[int, ...]]:
    return {name: type.shape for name, type in read_model(path, **options).inputs}


def fails(path: Path, text: str, **options: object) -> None:
    with pytest.raises(ShapeError) as caught:
        read_model(path, **options)
    assert re.search(text, str(caught.value)), str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_open_dimension_is_named_with_the_option_that_sets_it(tmp_path):
    path = save(conv_net(batch="N"), tmp_path, "resnet.onnx")
    with pytest.raises(ShapeError) as caught:
        read_model(path)
    assert str(caught.value) == (
        "resnet.onnx: input 'data' has an open dimension 'N' (axis 0):"
        " give --batch 1, or other sizes"
    )
    path = save(embedding_net(tokens="T"), tmp_path, "bert.onnx")
    with pytest.raises(ShapeError) as caught:
        read_model(path)
    assert str(caught.value) == (
        "bert.onnx: input 'ids' has an open dimension 'T' (axis 1);"
        " input 'mask' has an open dimension 'T' (axis 1):"
        " give --shape ids=1x128 --shape mask=1x128, or other sizes"
    )


def test_the_options_that_an_error_suggests_open_the_model(tmp_path):
    for proto in (
        conv_net(batch="N"),
        embedding_net(batch="B", tokens="T"),
        model([node("Relu", ["x"], ["y"])], [value("x", ["?", 3, "H", "?"])], [value("y", None)]),
        model([node("Relu", ["a b"], ["y"])], [value("a b", None)], [value("y", None)]),
    ):
        path = save(proto, tmp_path)
        with pytest.raises(OpenDimensions) as caught:
            read_model(path)
        options = caught.value.options
        if options[0] == "--batch":
            read_model(path, batch=int(options[1]))
        else:
            read_model(path, shapes=dict(map(parse_shape, options[1::2])))


@pytest.mark.parametrize("name", ["", "?", "*", "-1", "None", " "])
def test_two_dimensions_without_a_real_name_are_two_sizes(tmp_path, name):
    proto = model(
        [node("Relu", ["x"], ["y"])], [value("x", [1, 3, name, name])], [value("y", None)]
    )
    path = save(proto, tmp_path)
    assert shapes_of(path, shapes={"x": (1, 3, 48, 320)}) == {"x": (1, 3, 48, 320)}


def test_one_axis_of_one_input_can_be_set(tmp_path):
    nodes = [node("Concat", ["x", "z"], ["y"], axis=0)]
    inputs = [value("x", [1, "C", "?"]), value("z", [1, "C", "?"])]
    path = save(model(nodes, inputs, [value("y", None)]), tmp_path)
    assert parse_shape("x=?x?x5") == ("x", (None, None, 5))
    fails(path, r"'x' has an open dimension 'C' \(axis 1\)", shapes={"x": (None, None, 5)})
    sizes = {"x": (None, None, 5), "z": (None, 4, 6)}
    assert shapes_of(path, shapes=sizes) == {"x": (1, 4, 5), "z": (1, 4, 6)}


def test_dimensions_that_files_do_not_give_or_give_as_negative_are_open(tmp_path):
    for dim in (None, -1):
        fails(save(mlp(batch=dim), tmp_path), r"'x' has an open dimension \(axis 0\)")
        assert shapes_of(save(mlp(batch=dim), tmp_path), batch=3) == {"x": (3, 32)}


def test_a_dimension_of_0_is_0_unless_options_say_otherwise(tmp_path):
    path = save(mlp(batch=0), tmp_path)
    assert shapes_of(path) == {"x": (0, 32)}
    assert read_model(path).empty_inputs == ("x",)
    assert shapes_of(path, batch=3) == {"x": (3, 32)}
    assert read_model(path, batch=3).rebatched
    assert shapes_of(path, shapes={"x": (4, 32)}) == {"x": (4, 32)}
    opened = save(embedding_net(batch="B", tokens="T"), tmp_path)
    assert shapes_of(opened, shapes={"ids": (2, 0)}) == {"ids": (2, 0), "mask": (2, 0)}


def test_an_input_without_a_rank_takes_a_whole_shape(tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], [value("x", None)], [value("y", None)])
    path = save(proto, tmp_path)
    fails(path, "input 'x' has no shape, not even a rank: give --shape x=1")
    assert shapes_of(path, shapes={"x": (2, 3)}) == {"x": (2, 3)}
    assert shapes_of(path, shapes={"x": ()}) == {"x": ()}
    assert source_graph(read_model(path, shapes={"x": ()})).types["y"] == TensorType("FLOAT", ())


def test_batch_sets_open_and_single_first_dimensions(tmp_path):
    assert shapes_of(save(conv_net(batch="N"), tmp_path), batch=4)["data"] == (4, 3, 16, 16)
    assert shapes_of(save(conv_net(batch=1), tmp_path), batch=4)["data"] == (4, 3, 16, 16)
    path = save(conv_net(batch="N"), tmp_path)
    assert shapes_of(path, batch=4, shapes={"data": (None, None, 16, 16)})["data"][0] == 4
    fails(path, "--batch 4 fits no input", batch=4, shapes={"data": (2, None, 16, 16)})
    path = save(conv_net(batch=2), tmp_path)
    assert shapes_of(path, batch=2)["data"] == (2, 3, 16, 16)
    fails(path, "--batch 4 fits no input: 'data' is 2x3x16x16", batch=4)


def test_a_changed_batch_reaches_every_value(tmp_path):
    proto = onnx.shape_inference.infer_shapes(conv_net(batch=1))
    assert proto.graph.value_info
    graph = source_graph(read_model(save(proto, tmp_path), batch=5))
    assert graph.types["scores"] == TensorType("FLOAT", (5, 10))
    assert graph.types["r2"] == TensorType("FLOAT", (5, 8, 16, 16))
    assert graph.types["conv0.w"] == TensorType("FLOAT", (8, 3, 3, 3))


def test_a_model_knows_whether_its_fixed_batch_was_replaced(tmp_path):
    fixed = save(conv_net(batch=1), tmp_path, "fixed.onnx")
    assert read_model(fixed, batch=4).rebatched
    assert not read_model(fixed, batch=1).rebatched
    assert not read_model(fixed).rebatched
    assert not read_model(save(conv_net(batch="N"), tmp_path, "open.onnx"), batch=4).rebatched


def test_hints_can_be_pasted_into_a_shell(tmp_path):
    def suggestion(name: str, dims: list[object] | None) -> str:
        proto = model([node("Relu", [name], ["y"])], [value(name, dims)], [value("y", None)])
        with pytest.raises(ShapeError) as caught:
            read_model(save(proto, tmp_path))
        return str(caught.value)

    assert suggestion("a b", ["N", 4]).endswith("give --batch 1, or other sizes")
    assert suggestion("a b", None).endswith("give --shape 'a b=16000', or other sizes")
    assert suggestion("$(x)", [1, "T"]).endswith("give --shape '$(x)=1x16000', or other sizes")
    assert suggestion("a.b/c:0", [1, "T"]).endswith("give --shape a.b/c:0=1x16000, or other sizes")


def test_an_input_without_a_name_gets_no_hint_that_cannot_work(tmp_path):
    def hint(dims: list[object] | None) -> str:
        nodes = [node("Relu", ["x"], ["y"])]
        inputs = [value("x", [1]), value("", dims)]
        with pytest.raises(ShapeError) as caught:
            read_model(save(model(nodes, inputs, [value("y", None)]), tmp_path))
        return str(caught.value)

    assert hint(["N", 4]).endswith("(axis 0): give --batch 1, or other sizes")
    assert hint([1, "T"]).endswith("(axis 1): give the input a name in the file, then --shape")
    assert hint(None).endswith("a rank: give the input a name in the file, then --shape")


def test_one_symbol_is_one_number(tmp_path):
    path = save(embedding_net(batch="B", tokens="T"), tmp_path)
    assert shapes_of(path, shapes={"ids": (2, 7)}) == {"ids": (2, 7), "mask": (2, 7)}
    assert shapes_of(path, batch=3, shapes={"ids": (3, 7)}) == {"ids": (3, 7), "mask": (3, 7)}
    fails(
        path,
        "dimension 'T' is 7 by --shape ids=2x7, but 8 by --shape mask=2x8",
        shapes={"ids": (2, 7), "mask": (2, 8)},
    )
    fails(path, "dimension 'B' is 2 by .* but 4 by --batch 4", batch=4, shapes={"ids": (2, 7)})


def test_shapes_that_do_not_fit_are_told(tmp_path):
    path = save(embedding_net(), tmp_path)
    fails(path, "there is no input 'data'; inputs are: 'ids', 'mask'", shapes={"data": (1,)})
    fails(path, "--shape ids=1 has 1 dimensions, input 'ids' has 2", shapes={"ids": (1,)})
    fails(path, "contradicts input 'ids', whose axis 1 is fixed at 8", shapes={"ids": (1, 9)})
    fails(path, "fixed at 1; give --batch 2 to change it", shapes={"ids": (2, 8)})
    fails(path, "--shape ids=0x8 contradicts input 'ids', whose axis 0", shapes={"ids": (0, 8)})
    fails(path, "shape 1x-8 for input 'ids' makes no sense", shapes={"ids": (1, -8)})
    fails(path, "batch 0 makes no sense", batch=0)
    fails(path, "batch -3 makes no sense", batch=-3)
    fails(path, "batch 2147483648 makes no sense: give 1 to 2147483647", batch=2**31)
    fails(path, "batch 9+ makes no sense", batch=10**22 - 1)
    fails(path, "shape 1x2147483648 for input 'ids' makes no sense", shapes={"ids": (1, 2**31)})
    fails(path, "shape 9+x8 for input 'ids' makes no sense", shapes={"ids": (10**22 - 1, 8)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data=1x3x224x224", ("data", (1, 3, 224, 224))),
        ("x=7", ("x", (7,))),
        ("past=1x4x0x8", ("past", (1, 4, 0, 8))),
        ("x=", ("x", ())),
        ("a=b:0/c=2X3", ("a=b:0/c", (2, 3))),
        ("x=2147483647", ("x", (2**31 - 1,))),
    ],
)
def test_shape_options_are_parsed(text, expected):
    assert parse_shape(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "=1x2",
        "x=1x",
        "x=ax2",
        "x=-1",
        "x=1,2",
        "x=1_0",
        "x=²",
        "x=2147483648",
        "x=" + "9" * 99,
    ],
)
def test_texts_that_are_no_shape_options_are_refused(text):
    with refused(UsageError, f"'{text}'"):
        parse_shape(text)


def test_values_that_stay_open_are_listed_and_can_be_told(tmp_path):
    nodes = [
        node("NonZero", ["x"], ["where"]),
        node("Custom", ["x"], ["own"], domain="com.microsoft"),
        node("Relu", ["own"], ["y"]),
    ]
    outputs = [value("where", None, "INT64"), value("y", None)]
    proto = model(nodes, [value("x", [2, 3])], outputs, domains=["com.microsoft"])
    read = read_model(save(proto, tmp_path))
    with refused(OpenShapes, "'where'", "NonZero", 2) as caught:
        source_graph(read)
    assert caught.value.open_values == ("where", "own", "y")
    known = {"where": TensorType("INT64", (2, 0)), "own": TensorType("FLOAT", (5,))}
    graph = source_graph(read, known)
    assert graph.types["y"] == TensorType("FLOAT", (5,))
    assert graph.types["where"].shape == (2, 0)


def test_shapes_follow_from_constants_and_from_other_shapes(tmp_path):
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Concat", ["n", "rest"], ["target"], axis=0),
        node("Reshape", ["x", "target"], ["y"]),
    ]
    initializers = [constant("zero", [0]), constant("rest", [-1])]
    proto = model(nodes, [value("x", ["N", 3, 4])], [value("y", None)], initializers)
    graph = source_graph(read_model(save(proto, tmp_path), batch=6))
    assert graph.types["y"] == TensorType("FLOAT", (6, 12))
    assert graph.inputs == ("x",)
    assert graph.outputs == ("y",)
    assert graph.opsets == {"": 17}


def test_optional_outputs_that_nobody_uses_need_no_type(tmp_path):
    nodes = [node("Dropout", ["x"], ["h", "mask"]), node("Relu", ["h"], ["y"])]
    proto = model(nodes, [value("x", [2])], [value("y", None)], opset=9)
    graph = source_graph(read_model(save(proto, tmp_path)))
    assert list(graph.nodes[0].output) == ["h"]


def test_subgraphs_follow_a_changed_batch(tmp_path):
    def branch(op: str) -> onnx.GraphProto:
        out = f"{op}.y"
        return onnx.helper.make_graph([node(op, ["x"], [out])], op, [], [value(out, [1, 4])])

    choice = node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Abs"))
    proto = model([choice], [value("c", [], "BOOL"), value("x", [1, 4])], [value("y", [1, 4])])
    graph = source_graph(read_model(save(proto, tmp_path), batch=3))
    assert graph.types["y"] == TensorType("FLOAT", (3, 4))
