import contextlib
import os
import random
from pathlib import Path

import onnx
import pytest
from factories import (
    branching_net,
    constant,
    conv_net,
    embedding_net,
    mlp,
    model,
    node,
    save,
    value,
)
from onnx import helper
from refusals import refused

from bricks.errors import ModelError
from bricks.graph.wire import skim
from bricks.reading.read import read_model


def fails(path: Path, *named: object) -> None:
    with refused(ModelError, *named):
        read_model(path)


def rejects(tmp_path: Path, proto: onnx.ModelProto, *named: object) -> None:
    path = save(proto, tmp_path)
    fails(path, path.name, *named)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", ()),
        (b"hello, this is text\n", ()),
        (b"\x00" * 100, ()),
        (b"\xff" * 100, ()),
        (b"PK\x03\x04" + bytes(60), ()),
        (b"version https://git-lfs.github.com/spec/v1\n", ("git lfs pull",)),
        (b"\x08\x07", ()),
    ],
)
def test_other_files_are_told_from_models(tmp_path, content, named):
    path = tmp_path / "x.onnx"
    path.write_bytes(content)
    fails(path, path, *named)


def test_missing_files_and_folders_are_told(tmp_path):
    fails(tmp_path / "none.onnx", tmp_path / "none.onnx")
    fails(tmp_path, tmp_path)


def test_a_file_name_that_is_no_text_is_told(tmp_path):
    path = tmp_path / os.fsdecode(b"m\xe9.onnx")
    path.write_bytes(mlp().SerializeToString())
    fails(path, r"m\xe9.onnx", "UTF-8")
    link = tmp_path / "link.onnx"
    link.symlink_to(path)
    fails(link, r"m\xe9.onnx", "UTF-8")
    # What only the name of a folder spells stays out of the model.
    folder = tmp_path / os.fsdecode(b"\xe9")
    folder.mkdir()
    assert read_model(save(mlp(), folder)).name == "model"


def test_a_download_that_stopped_is_told(tmp_path):
    data = conv_net().SerializeToString()
    path = tmp_path / "x.onnx"
    path.write_bytes(data[: len(data) // 2])
    fails(path, path, 7, len(data) // 2)  # the number of the graph's field, and the file's length


@pytest.mark.parametrize("proto", [conv_net(blocks=1), embedding_net(), branching_net()])
def test_every_truncation_gives_a_model_or_a_model_error(tmp_path, proto):
    data = proto.SerializeToString()
    path = tmp_path / "x.onnx"
    for length in range(0, len(data), 7):
        path.write_bytes(data[:length])
        with contextlib.suppress(ModelError):
            read_model(path)


def test_damaged_bytes_give_a_model_or_a_model_error(tmp_path):
    data = mlp(widths=(4, 300, 3)).SerializeToString()
    path = tmp_path / "x.onnx"
    rng = random.Random(1)
    for _ in range(400):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(damaged)
        with contextlib.suppress(ModelError):
            read_model(path)


def nested(depth: int, padding: int) -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"], name="n" * padding)], "g", [], []
    )
    for _ in range(depth):
        graph = helper.make_graph(
            [helper.make_node("If", ["c"], ["y"], then_branch=graph)], "g", [], []
        )
    return helper.make_model(graph).SerializeToString()


@pytest.mark.parametrize("padding", [1, 5000])
def test_nesting_without_end_is_refused(tmp_path, padding):
    path = tmp_path / "x.onnx"
    body = nested(25, padding)
    path.write_bytes(body)
    assert skim(path)  # a deep model, but still one
    graph = b"\x0a\x00"
    for _ in range(200):  # graph → node → attribute → graph
        for tag in (b"\x32", b"\x2a", b"\x0a"):
            graph = tag + _varint(len(graph)) + graph
    path.write_bytes(b"\x08\x07\x3a" + _varint(len(graph)) + graph)
    fails(path, path)


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_graphs_without_work_are_refused(tmp_path):
    x, y = value("x", [1]), value("y", [1])
    rejects(tmp_path, model([], [x], [y]), "y")
    rejects(tmp_path, model([node("Relu", ["x"], ["y"])], [x], []))


def test_values_without_a_single_producer_are_named(tmp_path):
    x, y = value("x", [1]), value("y", [1])
    twice = [node("Relu", ["x"], ["y"]), node("Abs", ["x"], ["y"])]
    rejects(tmp_path, model(twice, [x], [y]), "y", 2)
    dangling = [node("Add", ["x", "ghost"], ["y"], name="adder")]
    rejects(tmp_path, model(dangling, [x], [y]), "Add", "adder", "ghost")
    nothing = [node("Relu", ["x"], ["z"])]
    rejects(tmp_path, model(nothing, [x], [y]), "y")
    rejects(tmp_path, model([node("Relu", ["x"], ["y"])], [x], [y, y]), "y", 2)


def test_a_value_that_only_a_subgraph_misses_is_named(tmp_path):
    body = helper.make_graph([node("Abs", ["ghost"], ["t"])], "b", [], [value("t", [1])])
    branch = node("If", ["c"], ["y"], then_branch=body, else_branch=body, name="choice")
    proto = model([branch], [value("c", [], "BOOL")], [value("y", [1])])
    rejects(tmp_path, proto, "If", "'choice'", "ghost")


def test_cycles_are_shown(tmp_path):
    nodes = [
        node("Add", ["x", "b"], ["a"], name="one"),
        node("Relu", ["a"], ["b"], name="two"),
        node("Abs", ["b"], ["y"]),
    ]
    proto = model(nodes, [value("x", [1])], [value("y", [1])])
    rejects(tmp_path, proto, "Add 'one' → Relu 'two' → Add 'one'")


def test_unknown_operators_and_domains_are_named(tmp_path):
    x, y = value("x", [1]), value("y", [1])
    proto = model([node("Frobnicate", ["x"], ["y"], name="f")], [x], [y])
    rejects(tmp_path, proto, "Frobnicate", "f", "ai.onnx", 17)
    proto = model([node("Gelu", ["x"], ["y"], name="g")], [x], [y], opset=17)
    rejects(tmp_path, proto, "Gelu", "g", "ai.onnx", 17)
    proto = model([node("Gelu", ["x"], ["y"], name="g", domain="com.microsoft")], [x], [y])
    rejects(tmp_path, proto, "Gelu", "g", "com.microsoft")
    accepted = model([node("Gelu", ["x"], ["y"], domain="org.x")], [x], [y], domains=["org.x"])
    assert read_model(save(accepted, tmp_path)).inputs


def test_inputs_of_kinds_that_no_runtime_takes_are_named(tmp_path):
    sparse = helper.make_sparse_tensor_value_info("s", 1, [1])
    proto = model([node("Relu", ["s"], ["y"])], [sparse], [value("y", [])])
    rejects(tmp_path, proto, "s", "sparse tensor")


def test_a_payload_that_does_not_fit_its_shape_is_named(tmp_path):
    wrong = constant("shape", [1, 2])
    wrong.dims[0] = 3
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"])], [value("x", [2])], [value("y", None)], [wrong]
    )
    rejects(tmp_path, proto, "'shape'", 24, 16)


def test_a_weight_with_more_values_than_its_shape_is_named(tmp_path):
    wrong = constant("w", [1.0, 2.0, 3.0], "FLOAT")
    wrong.dims[0] = 2
    proto = model([node("Add", ["x", "w"], ["y"])], [value("x", [2])], [value("y", [2])], [wrong])
    rejects(tmp_path, proto, "'w'", 8, 12)
