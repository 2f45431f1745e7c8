"""Files made to do harm: refused in one line, before anything large is allocated."""

import contextlib
import io
import os
import tracemalloc
from pathlib import Path

import onnx
import pytest
from commands import Here
from factories import constant, mlp, model, node, save, value
from hostile import peak_bytes, refusal
from onnx import TensorProto, helper
from refusals import refused

from bricks import Bench
from bricks.cli import output
from bricks.errors import BricksError, ModelError, ShapeError, WorkerError, printable
from bricks.reading.read import read_model
from bricks.report.models import decomposition_table

HARMFUL_NAMES = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "two\nlines",
    "\r",
    "\u2028",
    "\u202egnp.exe",
    "nul\x00",
    "\x9b2J",
]


# Names


@pytest.mark.parametrize("name", HARMFUL_NAMES)
def test_what_a_model_calls_its_values_cannot_move_the_cursor(
    here: Here, tmp_path: Path, name: str
) -> None:
    proto = model([node("Add", ["x", f"a{name}b"], ["y"])], [value("x", [1])], [value("y", [1])])
    done = here("decompose", save(proto, tmp_path, "x.onnx"))
    assert done.status == 1
    assert done.complaint.isprintable()
    assert printable(f"'a{name}b', which nobody produces") in done.complaint


def test_a_name_of_megabytes_leaves_what_happened_and_what_to_do() -> None:
    error = BricksError(f"x.onnx: node Relu '{'n' * 4_000_000}' is too long: give it another name")
    assert str(error).startswith("x.onnx: node Relu 'nnn")
    assert str(error).endswith("nnn' is too long: give it another name")
    assert len(str(error)) < 1100


def test_a_file_name_is_no_markup_and_no_escape_sequence(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "[bold red]loud :smile: \x1b[2J[-bold].onnx")
    done = here("decompose", path)
    assert (done.status, done.err) == (0, "")
    assert "[bold red]loud :smile: \\x1b[2J[-bold]" in done.out
    assert "\x1b" not in done.out


def test_a_terminal_gets_no_escape_sequence_from_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", screen)
    row = dict.fromkeys(("nodes", "bricks", "occurrences", "unique_share", "flops", "weight_bytes"))
    facts = {**row, "nodes": 1, "model": "[b]\x1b]0;x\x07[/b]"}
    output.show(decomposition_table([facts], facts), "[red]x[/red] \x1b[2J :warning:")
    said = screen.getvalue()
    assert "[b]\\x1b]0;x\\x07[/b]" in said
    assert "[red]x[/red] \\x1b[2J :warning:" in said
    assert "\x07" not in said
    assert "\x1b[2J" not in said


# Where data lies


def outside(folder: Path, location: str, **entries: str) -> Path:
    """A model whose weight lies at ``location``."""
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4, 4], data_location=1)
    for key, entry in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=entry)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [value("x", [1, 4])], [value("y", [1, 4])])
    proto.graph.initializer.append(weight)
    return save(proto, folder)


@pytest.mark.parametrize(
    "location",
    [
        "../secret.bin",
        "/etc/passwd",
        "inner/../../secret.bin",
        "..",
        "",
        "C:\\secret.bin",
        "..\\secret.bin",
    ],
)
def test_data_outside_the_folder_of_the_model_is_refused(tmp_path: Path, location: str) -> None:
    assert "outside the model's folder: refused" in refusal(outside(tmp_path, location))


def test_links_that_lead_outside_the_folder_of_the_model_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to("../secret.bin")
    (folder / "up").symlink_to("..")
    (folder / "absolute.bin").symlink_to("/etc/passwd")
    for location in ("link.bin", "up/secret.bin", "absolute.bin"):
        said = refusal(outside(folder, location))
        assert "is a link that leads outside the model's folder" in said
    (folder / "loop.bin").symlink_to("loop.bin")
    assert "cannot be reached" in refusal(outside(folder, "loop.bin"))
    (folder / "inside.bin").write_bytes(bytes(64))
    (folder / "good.bin").symlink_to("inside.bin")
    assert read_model(outside(folder, "good.bin")).inputs


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"offset": "-1"}, "negative data offset"),
        ({"offset": "9" * 5000}, "no valid data offset"),
        ({"length": "1e3"}, "no valid data offset"),
        ({"length": "65"}, "takes 64 bytes, its reference gives 65"),
        ({"length": str(1 << 62)}, f"its reference gives {1 << 62}"),
    ],
)
def test_offsets_and_lengths_that_make_no_sense_are_refused(
    tmp_path: Path, entries: dict[str, str], text: str
) -> None:
    assert text in refusal(outside(tmp_path, "weights.bin", **entries))


# Sizes


def weighing(weight: onnx.TensorProto) -> onnx.ModelProto:
    return model(
        [node("Add", ["x", weight.name], ["y"])], [value("x", [1])], [value("y", None)], [weight]
    )


def lying(dtype: str, *dims: int, **fields: object) -> onnx.TensorProto:
    number = onnx.TensorProto.DataType.Value(dtype)
    return onnx.TensorProto(name="w", data_type=number, dims=dims, **fields)


@pytest.mark.parametrize("shape", [[10**9, 10**9], [2**62, 2**62], [1] * 10_000, [0, 2**60]])
def test_shapes_of_billions_are_refused_before_anything_is_allocated(
    tmp_path: Path, shape: list[int]
) -> None:
    # Shapes of an input, of weights in the file and in a data file, and of a steering constant.
    declared = model([node("Relu", ["x"], ["y"])], [value("x", shape)], [value("y", None)])
    missing = lying("FLOAT", *shape, data_location=1)
    missing.external_data.add(key="location", value="weights.bin")
    steering = model(
        [node("Reshape", ["x", "w"], ["y"])],
        [value("x", [1])],
        [value("y", None)],
        [lying("INT64", *shape, raw_data=bytes(8))],
    )
    inline = weighing(lying("FLOAT", *shape, raw_data=bytes(2000)))
    for proto in (declared, weighing(missing), inline, steering):
        if 0 in shape and proto is declared:
            continue  # for inputs, zero means any number
        path = save(proto, tmp_path)
        tracemalloc.start()
        said = refusal(path)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert "larger than any host can hold" in said
        assert peak < 32 << 20


def test_a_value_in_between_of_billions_is_refused(tmp_path: Path) -> None:
    proto = model(
        [node("Expand", ["x", "shape"], ["big"]), node("Relu", ["big"], ["y"])],
        [value("x", [1])],
        [value("y", None)],
        [constant("shape", [10**9, 10**9])],
    )
    path = save(proto, tmp_path)
    for granularity in ("executed", "1"):
        with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
            hostile = bench.read(path)
            with refused(ModelError, "model", "big", 10**9):
                bench.decompose(hostile)


@pytest.mark.parametrize(
    ("weight", "text"),
    [
        (lying("FLOAT", 1000, 1000), "takes 1000000 values, has 0"),
        (lying("FLOAT", 4, raw_data=bytes(15)), "takes 16 bytes, has 15"),
        (lying("FLOAT", 4, raw_data=bytes(4000)), "takes 16 bytes"),
        (lying("FLOAT", 4, float_data=[1.0] * 3), "takes 4 values, has 3"),
        (lying("COMPLEX64", 4, float_data=[1.0] * 4), "takes 8 values, has 4"),
        (lying("INT4", 5, int32_data=[1, 2]), "takes 3 values, has 2"),
        (lying("FLOAT16", 2, int32_data=[1]), "takes 2 values, has 1"),
        (lying("STRING", 2, string_data=[b"one"]), "takes 2 values, has 1"),
    ],
)
def test_weights_that_hold_something_else_than_they_say_are_refused(
    tmp_path: Path, weight: onnx.TensorProto, text: str
) -> None:
    assert text in refusal(save(weighing(weight), tmp_path))


@pytest.mark.parametrize("dtype", ["FLOAT6E2M3", "FLOAT6E3M2"])
def test_element_types_that_nobody_can_compute_with_are_refused(tmp_path: Path, dtype: str) -> None:
    if dtype not in onnx.TensorProto.DataType.keys():
        pytest.skip("this version of onnx does not know it")
    weight = lying(dtype, 4, raw_data=bytes(3))
    assert f"is of type {dtype}: not supported" in refusal(save(weighing(weight), tmp_path))
    declared = model([node("Relu", ["x"], ["y"])], [value("x", [4], dtype)], [value("y", None)])
    assert "input 'x' has no known element type" in refusal(save(declared, tmp_path))


# Numbers of parts


def varint(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that holds ``content``."""
    return varint(number << 3 | 2) + varint(len(content)) + content


GRAPH, NODE, NAME, VALUE_INFO, ATTRIBUTE, INTS, STRINGS = 7, 1, 3, 13, 5, 8, 9
TINY = {
    "nodes": (bytes([NODE << 3 | 2, 0]) * 1_000_000, "more than 250000 nodes"),
    "attributes": (field(NODE, bytes([ATTRIBUTE << 3 | 2, 0]) * 1_000_000), "more than 250000 nod"),
    "values": (bytes([VALUE_INFO << 3 | 2, 0]) * 3_000_000, "or 2000000 parts"),
    "numbers": (
        field(NODE, field(ATTRIBUTE, bytes([INTS << 3, 1]) * 40_000_000)),
        "more than 64 MiB besides raw weights",
    ),
    "texts": (
        field(NODE, field(ATTRIBUTE, bytes([STRINGS << 3 | 2, 0]) * 5_000_000)),
        "more than 4000000 fields",
    ),
    "text": (field(NODE, field(NAME, b"n" * (70 << 20))), "more than 64 MiB besides raw weights"),
}


@pytest.mark.parametrize(("content", "text"), TINY.values(), ids=TINY)
@pytest.mark.slow
def test_files_of_millions_of_parts_are_refused_before_they_are_objects(
    tmp_path: Path, content: bytes, text: str
) -> None:
    path = save(mlp(), tmp_path)
    with path.open("ab") as file:
        file.write(field(GRAPH, content))
    before = peak_bytes(os.getpid())
    assert text in refusal(path)
    assert peak_bytes(os.getpid()) - before < 256 << 20


def test_a_graph_in_an_attribute_of_another_type_is_refused(tmp_path: Path) -> None:
    body = helper.make_graph([node("Relu", ["x"], ["z"])], "body", [], [value("z", [1])])
    hidden = node("Relu", ["x"], ["y"], then_branch=body)
    hidden.attribute[0].type = onnx.AttributeProto.INT
    proto = model([hidden], [value("x", [1])], [value("y", [1])])
    assert "holds other values than its type says" in refusal(save(proto, tmp_path))


# Depth


def nested_ifs(depth: int) -> bytes:
    """A model of an If in an If; written by hand, for protobuf itself goes no deeper than 33."""
    relu, output = node("Relu", ["x"], ["y"]), onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([relu], "b", [], [output])
    body = graph.SerializeToString()
    for _ in range(depth):
        kind = varint(20 << 3) + varint(onnx.AttributeProto.GRAPH)
        branch = field(ATTRIBUTE, field(1, b"then_branch") + field(6, body) + kind)
        choice = field(1, b"c") + field(2, b"y") + field(4, b"If") + branch
        body = field(NODE, choice) + field(2, b"b") + field(12, field(1, b"y"))
    whole = model([node("Relu", ["x"], ["y"])], [value("c", [], "BOOL"), value("x", [1])], [])
    del whole.graph.node[:]
    return whole.SerializeToString() + field(GRAPH, body)


@pytest.mark.parametrize("granularity", ["executed", "1"])
def test_ifs_in_ifs_are_read_to_the_depth_that_protobuf_knows(
    tmp_path: Path, granularity: str
) -> None:
    path = tmp_path / "deep.onnx"
    with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
        for depth in (10, 30):
            path.write_bytes(nested_ifs(depth))
            deep = bench.read(path)
            # Whether a runtime takes it is the runtime's business.
            with contextlib.suppress(WorkerError):
                assert bench.decompose(deep).plan.nodes == 1
    for depth in (60, 1000):
        path.write_bytes(nested_ifs(depth))
        assert "deep.onnx is not an ONNX model" in refusal(path)


def test_types_in_types_are_read_to_the_depth_that_protobuf_knows(tmp_path: Path) -> None:
    kind = b""
    for _ in range(5000):
        kind = field(4, field(1, kind))  # a sequence of …
    deep = field(GRAPH, field(11, field(1, b"x") + field(2, kind)))
    path = save(mlp(), tmp_path)
    path.write_bytes(path.read_bytes() + deep)
    assert "is not an ONNX model" in refusal(path)


@pytest.mark.parametrize("length", [1, 2, 2000])
def test_graphs_that_feed_themselves_are_refused(tmp_path: Path, length: int) -> None:
    nodes = [node("Add", ["x", f"v{i}"], [f"v{(i + 1) % length}"]) for i in range(length)]
    proto = model(nodes, [value("x", [1])], [value("v0", [1])])
    assert "the nodes form a cycle: Add 'Add_v" in refusal(save(proto, tmp_path))
    body = helper.make_graph(nodes, "b", [], [onnx.ValueInfoProto(name="v0")])
    choice = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    inside = model([choice], [value("c", [], "BOOL"), value("x", [1])], [value("y", [1])])
    with Bench(tmp_path / "c", granularity="1", threads=1) as bench:
        path = save(inside, tmp_path, "inside.onnx")
        with pytest.raises(BricksError):
            bench.decompose(bench.read(path))


def test_texts_in_data_files_are_refused(tmp_path: Path) -> None:
    texts = TensorProto(name="w", data_type=TensorProto.STRING, dims=[500])
    texts.data_location = TensorProto.EXTERNAL
    texts.external_data.add(key="location", value="texts.bin")
    proto = model([node("Concat", ["x", "w"], ["y"], axis=0)], [value("x", [2], "STRING")],
                  [value("y", [502], "STRING")], [texts])  # fmt: skip
    assert "has texts in a data file" in refusal(save(proto, tmp_path))


def test_containers_in_containers_do_not_grow_without_end(tmp_path: Path) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    for _ in range(40):  # two items in each would be 10^12
        kind = helper.make_sequence_type_proto(kind)
    proto = model([node("SequenceLength", ["s"], ["n"])], [helper.make_value_info("s", kind)],
                  [value("n", [], "INT64")])  # fmt: skip
    with refused(ModelError, "model.onnx", "s", "tensor(float)"):
        read_model(save(proto, tmp_path))


def test_containers_of_what_no_host_holds_are_refused(tmp_path: Path) -> None:
    declared = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1 << 40, 1 << 20])
    proto = model([node("SequenceLength", ["s"], ["n"])], [declared], [value("n", [], "INT64")])
    with refused(ShapeError, "model.onnx", "s", 1 << 40, 1 << 20):
        read_model(save(proto, tmp_path))
