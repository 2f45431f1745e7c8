import os
import shutil
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, conv_net, mlp, model, node, save, value
from onnx import TensorProto, helper, numpy_helper
from refusals import refused

from bricks.errors import ModelError
from bricks.graph.model import Model
from bricks.graph.weights import has_own_weights, own_weights
from bricks.graph.wire import fields, skim
from bricks.reading.read import read_model
from bricks.suite.suite import pack_model, unpack_model


def skeleton_of(path: Path) -> onnx.ModelProto:
    return onnx.load_from_string(read_model(path).skeleton)


def tensors(proto: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    return {tensor.name: tensor for tensor in proto.graph.initializer}


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == TensorProto.EXTERNAL


def test_a_hundred_megabytes_of_inline_weights_are_skimmed_in_little_memory(tmp_path):
    path = tmp_path / "big.onnx"
    size = 25 << 20
    big = TensorProto(
        name="w", data_type=TensorProto.FLOAT, dims=[1, size], raw_data=bytes(4 * size)
    )
    proto = model([node("Mul", ["x", "w"], ["y"])], [value("x", [1])], [value("y", None)], [big])
    path.write_bytes(proto.SerializeToString())
    del proto, big
    tracemalloc.start()
    try:
        read = read_model(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20
    assert len(read.skeleton) < 1000
    assert has_own_weights(read)


def test_skimmed_weights_are_found_again_bit_for_bit(tmp_path):
    proto = conv_net(channels=32)
    read = read_model(save(proto, tmp_path))
    own = own_weights(read)
    assert "conv1.w" in own
    for name, array in own.items():
        expected = numpy_helper.to_array(tensors(proto)[name])
        assert array.dtype == expected.dtype
        np.testing.assert_array_equal(array, expected)
    assert set(own) == {t.name for t in proto.graph.initializer if len(t.raw_data) > 1024}


def test_float_data_is_referred_to_where_it_stands(tmp_path):
    values = np.arange(600, dtype=np.float32)
    weights = [
        helper.make_tensor("f", TensorProto.FLOAT, [600], values),
        helper.make_tensor("d", TensorProto.DOUBLE, [600], values.astype(np.float64)),
    ]
    nodes = [node("Mul", ["x", "f"], ["y"]), node("Cast", ["d"], ["z"], to=TensorProto.FLOAT)]
    proto = model(nodes, [value("x", [1])], [value("y", None), value("z", None)], weights)
    read = read_model(save(proto, tmp_path))
    assert all(is_external(t) for t in onnx.load_from_string(read.skeleton).graph.initializer)
    own = own_weights(read)
    np.testing.assert_array_equal(own["f"], values)
    assert own["d"].dtype == np.float64
    np.testing.assert_array_equal(own["d"], values)


def test_short_floats_written_as_integers_stay_inline(tmp_path):
    half = helper.make_tensor("h", TensorProto.FLOAT16, [2000], np.ones(2000, np.float16))
    assert not half.raw_data
    proto = model(
        [node("Mul", ["x", "h"], ["y"])], [value("x", [1], "FLOAT16")], [value("y", None)], [half]
    )
    read = read_model(save(proto, tmp_path))
    assert not is_external(tensors(onnx.load_from_string(read.skeleton))["h"])
    tensor = tensors(onnx.load_from_string(read.skeleton))["h"]
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.ones(2000, np.float16))


def test_integers_that_may_steer_stay_inline_and_long_tables_do_not(tmp_path):
    table, long = constant("table", np.arange(5000)), constant("long", np.zeros(200_000))
    bytes_ = constant("bytes", np.ones(5000), "INT8")
    nodes = [node("Gather", [name, "i"], [f"{name}.y"]) for name in ("table", "long", "bytes")]
    outputs = [value(n.output[0], None) for n in nodes]
    proto = model(nodes, [value("i", [1], "INT64")], outputs, [table, long, bytes_])
    by_name = tensors(skeleton_of(save(proto, tmp_path)))
    assert [is_external(by_name[name]) for name in ("table", "long", "bytes")] == [
        False,
        True,
        True,
    ]


def test_weights_in_subgraphs_functions_and_attributes_are_referred_to(tmp_path):
    big = np.arange(1000, dtype=np.float32)

    def branch(name: str) -> onnx.GraphProto:
        inner = node("Add", ["x", f"{name}.w"], [f"{name}.y"])
        weight = numpy_helper.from_array(big, f"{name}.w")
        return helper.make_graph([inner], name, [], [value(f"{name}.y", [1000])], [weight])

    function = helper.make_function(
        "local", "Shift", ["a"], ["b"],
        [node("Constant", [], ["k"], value=numpy_helper.from_array(big)),
         node("Add", ["a", "k"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        node("If", ["c"], ["y"], then_branch=branch("t"), else_branch=branch("e")),
        helper.make_node("Shift", ["y"], ["z"], domain="local"),
        node("Constant", [], ["k2"], value=numpy_helper.from_array(big)),
        node("Add", ["z", "k2"], ["out"]),
    ]
    inputs = [value("c", [], "BOOL"), value("x", [1000])]
    proto = model(nodes, inputs, [value("out", [1000])], domains=["local"], functions=[function])
    path = save(proto, tmp_path)
    assert path.stat().st_size > 16_000
    assert len(skim(path)) < 2000
    read = read_model(path)
    assert len(read.skeleton) < 2000
    own = own_weights(read)
    assert {"t.w:0", "e.w:0", "k2"} < set(own)
    assert len(own) == 4
    for array in own.values():
        np.testing.assert_array_equal(array, big)


def test_external_weights_need_not_be_there(tmp_path):
    path = save(mlp(), tmp_path, external="weights.bin", threshold=1024)
    with_data = read_model(path)
    assert has_own_weights(with_data)
    np.testing.assert_array_equal(
        own_weights(with_data)["w0"],
        numpy_helper.to_array(tensors(mlp())["w0"]),
    )
    (tmp_path / "weights.bin").unlink()
    without = read_model(path)
    assert without.digest == with_data.digest
    assert not has_own_weights(without)
    with refused(ModelError, "model", "weights.bin", tmp_path, 3):
        own_weights(without)


def test_an_external_file_that_is_too_short_is_told(tmp_path):
    path = save(mlp(), tmp_path, external="weights.bin", threshold=1024)
    (tmp_path / "weights.bin").write_bytes(bytes(100))
    read = read_model(path)
    assert not has_own_weights(read)
    with refused(ModelError, tmp_path / "weights.bin", "w0"):
        own_weights(read)


def test_an_external_file_that_ends_within_its_last_tensor_is_told(tmp_path):
    path = save(mlp(), tmp_path, external="weights.bin", threshold=1024)
    data = tmp_path / "weights.bin"
    data.write_bytes(data.read_bytes()[:-4])
    with refused(ModelError, data, "w2"):
        own_weights(read_model(path))


def steering_model(folder: Path) -> Path:
    proto = model(
        [node("Reshape", ["x", "shape"], ["y"])],
        [value("x", [4])],
        [value("y", [2, 2])],
        [constant("shape", [2, 2])],
    )
    return save(proto, folder, external="steer.bin")


def test_external_integers_that_steer_shapes_are_read_in(tmp_path):
    path = steering_model(tmp_path)
    assert is_external(tensors(onnx.load(path, load_external_data=False))["shape"])
    shape = tensors(skeleton_of(path))["shape"]
    assert not is_external(shape)
    assert numpy_helper.to_array(shape).tolist() == [2, 2]


def test_external_integers_that_are_missing_are_named(tmp_path):
    path = steering_model(tmp_path)
    (tmp_path / "steer.bin").unlink()
    with refused(ModelError, "model.onnx", "'shape'", "steer.bin"):
        read_model(path)


@pytest.mark.parametrize(
    ("op", "steering", "shape"),
    [
        ("Pow", constant("k", 2, "FLOAT"), [1, 1, 4, 4]),
        ("Resize", constant("k", [1, 1, 2, 2], "FLOAT"), [1, 1, 8, 8]),
        ("Gather", constant("k", [0] * 20, "UINT16"), None),
    ],
)
def test_external_numbers_that_count_are_read_in_or_missed(tmp_path, op, steering, shape):
    names = ["x", "", "k"] if op == "Resize" else ["x", "k"]
    proto = model([node(op, names, ["y"])], [value("x", [1, 1, 4, 4])], [value("y", shape)])
    proto.graph.initializer.append(steering)
    path = save(proto, tmp_path, external="steer.bin")
    assert not is_external(tensors(skeleton_of(path))["k"])
    (tmp_path / "steer.bin").unlink()
    with refused(ModelError, "model.onnx", "k", "steer.bin"):
        read_model(path)


def test_external_numbers_that_steer_inside_a_branch_are_missed_too(tmp_path):
    inner = helper.make_graph([node("Pow", ["x", "k"], ["t"])], "b", [], [value("t", [4])])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
        [value("c", [], "BOOL"), value("x", [4])],
        [value("y", [4])],
        [constant("k", 3, "FLOAT")],
    )
    path = save(proto, tmp_path, external="steer.bin")
    assert not is_external(tensors(skeleton_of(path))["k"])
    (tmp_path / "steer.bin").unlink()
    with refused(ModelError, "model.onnx", "k", "steer.bin"):
        read_model(path)


def test_external_numbers_that_count_for_nothing_may_be_missing(tmp_path):
    proto = model(
        [node("Pow", ["x", "k"], ["p"]), node("Add", ["p", "b"], ["y"])],
        [value("x", [4])],
        [value("y", [4])],
        [constant("k", [1, 2, 3, 2], "FLOAT"), constant("b", [1], "FLOAT")],
    )
    path = save(proto, tmp_path, external="weights.bin")
    (tmp_path / "weights.bin").unlink()
    by_name = tensors(skeleton_of(path))
    assert is_external(by_name["k"])
    assert is_external(by_name["b"])


@pytest.mark.parametrize(
    "location", ["../steer.bin", "{outside}/steer.bin", "a/../../steer.bin", "", "C:\\x"]
)
def test_data_outside_the_folder_of_the_model_is_refused(tmp_path, location):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "a").mkdir()
    path = steering_model(folder)
    assert read_model(path)
    # What is there could be read: nothing but its place is wrong.
    location = location.format(outside=tmp_path)
    (folder / "C:\\x").write_bytes((folder / "steer.bin").read_bytes())
    (folder / "steer.bin").rename(tmp_path / "steer.bin")
    proto = onnx.load(path, load_external_data=False)
    next(
        e for e in proto.graph.initializer[0].external_data if e.key == "location"
    ).value = location
    path.write_bytes(proto.SerializeToString())
    with refused(ModelError, "model.onnx", "'shape'", f"'{location}'"):
        read_model(path)


def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = steering_model(folder)
    assert read_model(path)  # so that nothing but the place of its data is wrong below
    (folder / "steer.bin").rename(tmp_path / "secret.bin")
    (folder / "steer.bin").symlink_to(tmp_path / "secret.bin")
    with refused(ModelError, "model.onnx", "steer.bin", folder):
        read_model(path)


def test_a_link_to_a_model_is_followed_to_its_data(tmp_path):
    folder = tmp_path / "store"
    folder.mkdir()
    save(mlp(), folder, "real.onnx", external="weights.bin", threshold=1024)
    (tmp_path / "nice.onnx").symlink_to(folder / "real.onnx")
    read = read_model(tmp_path / "nice.onnx")
    assert read.name == "nice"
    assert has_own_weights(read)


def test_the_digest_ignores_values_and_place_of_weights_only(tmp_path):
    def digest(proto: onnx.ModelProto, name: str, **options: object) -> str:
        return read_model(save(proto, tmp_path, name, **options)).digest

    base = digest(conv_net(), "a.onnx")
    assert base.startswith("m1-")
    assert len(base) == 35
    assert digest(conv_net(seed=1), "b.onnx") == base
    assert digest(conv_net(), "c.onnx", external="w.bin") == base
    assert digest(conv_net(), "d.onnx", external="w2.bin", threshold=500) == base
    documented = conv_net()
    documented.producer_name, documented.graph.doc_string = "someone", "text"
    assert digest(documented, "e.onnx") == base
    assert digest(conv_net(channels=4), "f.onnx") != base
    assert digest(conv_net(blocks=2), "g.onnx") != base
    assert digest(conv_net(batch=2), "h.onnx") != base


@pytest.mark.parametrize("external", [None, "w.bin"])
def test_weights_that_choose_a_branch_are_part_of_the_digest(
    tmp_path: Path, external: str | None
) -> None:
    """The gains choose the branch; the matrix in the branch does not."""

    def read(sign: float, seed: int) -> Model:
        matrix = np.random.default_rng(seed).standard_normal((64, 64)).astype(np.float32)
        gains = numpy_helper.from_array(np.full(64, sign, np.float32), "gains")
        branches = {
            "then_branch": [node("MatMul", ["x", "matrix"], ["a"])],
            "else_branch": [node("Identity", ["x"], ["b"])],
        }
        graphs = {
            name: helper.make_graph(nodes, name, [], [value(nodes[0].output[0], [8, 64])])
            for name, nodes in branches.items()
        }
        nodes = [
            node("Mul", ["x", "gains"], ["scaled"]),
            node("ReduceSum", ["scaled"], ["sum"], keepdims=0),
            node("Greater", ["sum", "zero"], ["condition"]),
            node("If", ["condition"], ["y"], **graphs),
        ]
        zero = numpy_helper.from_array(np.array(0, np.float32), "zero")
        constants = [gains, zero, numpy_helper.from_array(matrix, "matrix")]
        proto = model(nodes, [value("x", [8, 64])], [value("y", [8, 64])], constants)
        folder = tmp_path / f"{sign}-{seed}"
        folder.mkdir(exist_ok=True)
        return read_model(save(proto, folder, external=external, threshold=16))

    one = read(1.0, 0)
    assert read(1.0, 1).digest == one.digest
    assert read(-1.0, 0).digest != one.digest
    travelled = unpack_model("suite", one.name, one.digest, pack_model(one))
    assert travelled.digest == one.digest


def linked(folder: Path, file: Path, **links: Path) -> Path:
    """A folder of links, by name, and the link to ``file`` in it, called model.onnx."""
    folder.mkdir(parents=True)
    (folder / "model.onnx").symlink_to(file)
    for name, target in links.items():
        (folder / name).symlink_to(target)
    return folder / "model.onnx"


def with_data(folder: Path, model_name: str, data_name: str) -> Path:
    """A model and its data in ``folder``, under other names than the model was saved with."""
    folder.mkdir(parents=True)
    proto = onnx.load(save(mlp(), folder, "plain.onnx"))
    onnx.save(
        proto, folder / "m.onnx", save_as_external_data=True, location="data", size_threshold=0
    )
    (folder / "data").rename(folder / data_name)
    (folder / "m.onnx").rename(folder / model_name)
    return folder / model_name


def test_data_are_found_through_links_as_in_the_cache_of_a_hub(tmp_path: Path) -> None:
    blob = with_data(tmp_path / "blobs", "aa11", "bb22")
    link = linked(tmp_path / "snapshots" / "1", blob, data=tmp_path / "blobs" / "bb22")
    read = read_model(link)
    assert has_own_weights(read)
    plain = read_model(save(mlp(), tmp_path, "plain.onnx"))
    by_name = own_weights(read)
    for name, values in own_weights(plain).items():
        assert by_name[name].tobytes() == values.tobytes(), name


def test_data_beside_a_link_are_what_the_runtime_loads(tmp_path: Path) -> None:
    blob = with_data(tmp_path / "blobs", "aa11", "elsewhere")
    link = linked(tmp_path / "here", blob)
    shutil.copy(tmp_path / "blobs" / "elsewhere", link.parent / "data")
    assert has_own_weights(read_model(link))


def test_data_of_a_link_may_be_beside_the_file_itself(tmp_path: Path) -> None:
    link = linked(tmp_path / "here", with_data(tmp_path / "blobs", "aa11", "data"))
    assert has_own_weights(read_model(link))


def test_a_link_does_not_lead_to_data_outside_of_both_folders(tmp_path: Path) -> None:
    blob = with_data(tmp_path / "blobs", "aa11", "bb22")
    (tmp_path / "secret").write_bytes((tmp_path / "blobs" / "bb22").read_bytes())
    link = linked(tmp_path / "here", blob, data=tmp_path / "secret")
    with refused(ModelError, "data", "outside"):
        read_model(link)


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    content = save(mlp(), tmp_path, "net.onnx").read_bytes()
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(content,))
    writer.start()
    try:
        assert read_model(pipe).digest == read_model(tmp_path / "net.onnx").digest
    finally:
        writer.join()


def test_lists_of_an_attribute_are_read_whole(tmp_path):
    """Rows of 256 items are one field to the reader, whatever their lengths are."""
    count = 3 * 256 + 7
    lists = {
        "integers": [(-1) ** n * 7**n % (1 << 62) for n in range(count)],
        "floats": [float(n) for n in range(count)],
        "texts": ["x" * (n % 63) for n in range(count)] + ["y" * 70],
    }
    custom = helper.make_node("Any", ["x"], ["y"], domain="own", **lists)
    proto = model([custom], [value("x", [1])], [value("y", [1])])
    path = tmp_path / "lists.onnx"
    path.write_bytes(proto.SerializeToString())
    assert skim(path) == proto.SerializeToString()
    attributes = [each.SerializeToString() for each in custom.attribute]
    seen = [sum(1 for _ in fields(each, 0, len(each), lists=True)) for each in attributes]
    assert seen == [3 + 7 + 2, 3 + 7 + 2, 3 + 7 + 1 + 2]  # rows, items, and name and type
