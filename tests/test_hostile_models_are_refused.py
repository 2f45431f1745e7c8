"""Files made to do harm: refused in one line, before anything large is allocated."""

import contextlib
import io
import os
import sys
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import psutil
import pytest
from commands import Here
from factories import constant, mlp, model, node, save, value
from graphs import Maker
from onnx import TensorProto, helper

from bricks import Bench
from bricks.cli import output
from bricks.decompose import canonical
from bricks.decompose.identity import Cutter
from bricks.decompose.work import flops
from bricks.errors import BricksError, ModelError, ShapeError, WorkerError, printable
from bricks.graph import domains
from bricks.graph.domains import integer_ranges
from bricks.graph.read import read_model
from bricks.graph.subgraphs import hoist
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.measure import allowance
from bricks.measure.supervisor import Supervisor, WorkerDied, WorkerSettings
from bricks.report.tables import decomposition_table

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


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever held; 0 where nothing tells."""
    with contextlib.suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) << 10 for line in status.splitlines() if "VmHWM" in line)
    return 0


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path)
    return str(caught.value)


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
    screen.isatty = lambda: True  # type: ignore[method-assign]
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


@pytest.mark.parametrize("shape", [[10**9, 10**9], [2**62, 2**62], [1] * 100_000, [0, 2**60]])
def test_shapes_of_billions_are_refused_before_anything_is_allocated(
    tmp_path: Path, shape: list[int]
) -> None:
    # Of the input, of a weight in the file, of one beside it, and of a constant that steers.
    given = model([node("Relu", ["x"], ["y"])], [value("x", shape)], [value("y", None)])
    missing = lying("FLOAT", *shape, data_location=1)
    missing.external_data.add(key="location", value="weights.bin")
    steering = model(
        [node("Reshape", ["x", "w"], ["y"])],
        [value("x", [1])],
        [value("y", None)],
        [lying("INT64", *shape, raw_data=bytes(8))],
    )
    held = weighing(lying("FLOAT", *shape, raw_data=bytes(2000)))
    for proto in (given, weighing(missing), held, steering):
        if 0 in shape and proto is given:
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
            with pytest.raises(BricksError, match=r"larger than any host|allocate|memory|overflow"):
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
    given = model([node("Relu", ["x"], ["y"])], [value("x", [4], dtype)], [value("y", None)])
    assert "input 'x' has no known element type" in refusal(save(given, tmp_path))


# Numbers of parts


def varint(number: int) -> bytes:
    if number < 128:
        return bytes([number])
    return bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, content: bytes) -> bytes:
    """A field of a protobuf message that holds ``content``."""
    return varint(number << 3 | 2) + varint(len(content)) + content


GRAPH, NODE, NAME, VALUE_INFO, ATTRIBUTE, INTS = 7, 1, 3, 13, 5, 8
TINY = {
    "nodes": (bytes([NODE << 3 | 2, 0]) * 1_000_000, "more than 250000 nodes"),
    "attributes": (field(NODE, bytes([ATTRIBUTE << 3 | 2, 0]) * 1_000_000), "more than 250000 nod"),
    "values": (bytes([VALUE_INFO << 3 | 2, 0]) * 3_000_000, "or 2000000 parts"),
    "numbers": (
        field(NODE, field(ATTRIBUTE, bytes([INTS << 3, 1]) * 5_000_000)),
        "more than 4000000 fields",
    ),
    "text": (field(NODE, field(NAME, b"n" * (70 << 20))), "more than 64 MiB besides raw weights"),
}


@pytest.mark.parametrize(("content", "text"), TINY.values(), ids=TINY)
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


# Graphs that take long to understand


def test_following_integers_through_a_graph_ends(tmp_path: Path) -> None:
    """Sums and products of integers, whose bounds multiply on the way."""
    maker, ints = Maker(), TensorType("INT64", (4,))
    at = maker.input("x", ints)
    one, two = (maker.initializer(f"k{i}", np.array([i])) for i in (1, 2))
    for i in range(400):
        added = maker.node("Add", [at, one], [f"a{i}"], [ints])
        doubled = maker.node("Mul", [at, two], [f"b{i}"], [ints])
        at = maker.node("Max", [added, doubled], [f"v{i}"], [ints])
    follower = domains._Follower(maker.graph())
    for name in maker.types:
        follower.range_of(name, ints)
    followed = domains._ALL_STEPS - follower._steps_left
    assert followed < domains._ALL_STEPS + domains._MAX_STEPS + 1200 * domains._FEW_STEPS


def ring(size: int) -> onnx.GraphProto:
    """Nodes of which each looks like every other."""
    nodes = [node("Relu", ["x"], [f"r{i}"]) for i in range(size)]
    nodes += [node("Add", [f"r{i}", f"r{(i + 1) % size}"], [f"s{i}"]) for i in range(size)]
    return helper.make_graph(nodes, "ring", [], [onnx.ValueInfoProto(name="s0")])


def test_telling_equal_nodes_apart_ends(tmp_path: Path) -> None:
    maker, one = Maker(), TensorType("FLOAT", (1,))
    maker.input("x", one)
    maker.input("c", TensorType("BOOL", ()))
    for i in range(12):
        maker.node("If", ["c"], [f"y{i}"], [one], then_branch=ring(100 + i))
    cutter = Cutter(maker.graph())
    spent = [cutter._visits_left]
    for i in range(12):
        cutter.cut((i,))
        spent.append(cutter._visits_left)
    assert all(a - b < 2 * canonical.VISITS for a, b in pairwise(spent))
    assert spent[-1] > -canonical.VISITS


def test_constants_of_many_branches_are_named_without_trying_all_names() -> None:
    branch = helper.make_graph(
        [node("Add", ["x", "k"], ["z"])], "b", [], [value("z", [1])], [constant("k", [1])]
    )
    nodes = [node("If", ["c"], [f"y{i}"], then_branch=branch) for i in range(500)]
    inputs = [value("c", [], "BOOL"), value("x", [1], "INT64")]
    graph = model(nodes, inputs, [value("y0", [1], "INT64")], [constant("k:3", [1])]).graph
    hoist(graph)
    names = [tensor.name for tensor in graph.initializer]
    assert names == ["k:3", *(f"k:{i}" for i in range(501) if i != 3)]


@pytest.mark.parametrize(
    ("op", "ports", "attributes"),
    [
        ("Mul", 1, {}),
        ("Sub", 3, {}),
        ("ReverseSequence", 2, {"time_axis": 1}),
        ("ReverseSequence", 2, {"time_axis": -7}),
        ("Gather", 2, {"axis": 2**62}),
        ("OneHot", 2, {}),
        ("LSTM", 5, {}),
        ("GatherND", 2, {"batch_dims": -(2**62)}),
    ],
)
def test_integers_at_ports_that_do_not_fit_the_operator_are_no_error(
    op: str, ports: int, attributes: dict[str, int]
) -> None:
    names = [f"x{i}" for i in range(ports)]
    inputs = [value(name, [3], "INT64") for name in names]
    proto = model([node(op, names, ["y"], **attributes)], inputs, [value("y", None)])
    assert integer_ranges(graph_of(proto), names).keys() <= set(names)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [2**62, 2**62]}),
        ("MaxPool", {"kernel_shape": [-3]}),
        ("LRN", {"size": 2**62}),
        ("Einsum", {"equation": "abc->"}),
        ("Einsum", {"equation": b"\xff"}),
        ("LSTM", {}),
    ],
)
def test_work_that_attributes_make_senseless_is_unknown(
    op: str, attributes: dict[str, object]
) -> None:
    four = TensorType("FLOAT", (4, 4))
    maker = Maker()
    inputs = [maker.input("x", four), maker.input("w", four)]
    maker.node(op, inputs, ["y"], [four], **attributes)
    assert flops(maker.graph(), [0]) is None


# Functions


def calling(*bodies: list[onnx.NodeProto], output: str = "b") -> onnx.ModelProto:
    """A model of one call, and functions f0, f1, … from a to b with these nodes."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    functions = [
        helper.make_function("local", f"f{i}", ["a"], [output], body, imports)
        for i, body in enumerate(bodies)
    ]
    return model(
        [call(0, "x", "y")],
        [value("x", [1])],
        [value("y", [1])],
        domains=["local"],
        functions=functions,
    )


def call(number: int, source: str, target: str, **attributes: object) -> onnx.NodeProto:
    return node(f"f{number}", [source], [target], domain="local", **attributes)


def in_an_if(inner: onnx.NodeProto) -> list[onnx.NodeProto]:
    body = helper.make_graph([inner], "body", [], [onnx.ValueInfoProto(name="b")])
    choice = node("Constant", [], ["c"], value_int=1)
    return [choice, node("If", ["c"], ["b"], then_branch=body, else_branch=body)]


def twice(number: int) -> list[onnx.NodeProto]:
    return [call(number, "a", "t"), call(number, "t", "b")]


RELU = [node("Relu", ["a"], ["b"])]


def test_functions_that_call_themselves_are_refused(tmp_path: Path) -> None:
    for proto in (
        calling([call(0, "a", "b")]),
        calling([call(1, "a", "b")], [call(2, "a", "b")], [call(0, "a", "b")]),
        calling(in_an_if(call(0, "a", "b"))),
    ):
        assert "calls itself: refused" in refusal(save(proto, tmp_path))


@pytest.mark.parametrize("levels", [15, 20, 50])
def test_functions_that_grow_without_end_are_refused(tmp_path: Path, levels: int) -> None:
    proto = calling(*(twice(i + 1) for i in range(levels)), RELU)
    assert f"would make {3 * 2**levels - 2} nodes" in refusal(save(proto, tmp_path))


def test_functions_that_make_graphs_too_deep_are_refused(tmp_path: Path) -> None:
    chain = [[call(i + 1, "a", "b")] for i in range(3000)]
    assert "nested too deep" in refusal(save(calling(*chain, RELU), tmp_path))
    deep = [in_an_if(call(i + 1, "a", "b")) for i in range(40)]
    assert "nested too deep" in refusal(save(calling(*deep, RELU), tmp_path))


def test_functions_that_repeat_what_they_are_given_are_refused(tmp_path: Path) -> None:
    many = calling([node("Sum", ["a"] * 5000, ["b"])])
    many.graph.input[0].name = many.graph.node[0].input[0] = "x" * 100_000
    assert "(476 MiB) of 2: refused" in refusal(save(many, tmp_path))
    graph = helper.make_graph(RELU, "body", [], [onnx.ValueInfoProto(name="b")])
    passing = calling(RELU)
    passing.graph.node[0].CopyFrom(call(0, "x", "y", body=graph))
    assert "passes a graph to a function" in refusal(save(passing, tmp_path))


def test_a_function_that_is_defined_twice_is_refused(tmp_path: Path) -> None:
    proto = calling(RELU)
    proto.functions.append(proto.functions[0])
    assert "function f0 is defined more than once" in refusal(save(proto, tmp_path))


def test_functions_as_exporters_write_them_are_inlined(tmp_path: Path) -> None:
    proto = calling(twice(1), twice(2), in_an_if(call(3, "a", "b")), RELU)
    read = onnx.ModelProto.FromString(read_model(save(proto, tmp_path)).skeleton)
    assert [n.op_type for n in read.graph.node] == ["If"] * 4


# Time and memory of what runs in the worker


def test_an_answer_that_would_fill_the_memory_is_not_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bricks.measure.supervisor.MOST_ANSWER_BYTES", 1 << 20)
    program = "print('x' * (4 << 20), flush=True); input()"
    with (
        Supervisor(WorkerSettings("fake", 1, 0, command=(sys.executable, "-c", program))) as one,
        pytest.raises(WorkerDied, match="it said more than 1 MiB at once"),
    ):
        one.ask("unload", timeout_s=30)


def endless(turns: int) -> onnx.ModelProto:
    """A Loop whose result is of a shape that only running it tells."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["on"]), node("Concat", ["a", "a"], ["b"], axis=0)]
        if turns < 100
        else [node("Identity", ["go"], ["on"]), node("NonZero", ["a"], ["b"])],
        "body",
        [value("turn", [], "INT64"), value("go", [], "BOOL"), value("a", None, "INT64")],
        [value("on", [], "BOOL"), value("b", None, "INT64")],
    )
    loop = node("Loop", ["turns", "", "x"], ["y"], body=body)
    inputs, outputs = [value("x", [2], "INT64")], [value("y", None, "INT64")]
    return model([loop], inputs, outputs, [constant("turns", turns)])


@pytest.mark.parametrize("granularity", ["executed", "1"])
def test_a_loop_without_end_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, granularity: str
) -> None:
    path = save(endless(2**62), tmp_path)
    with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
        hostile = bench.read(path)
        with monkeypatch.context() as impatient:
            impatient.setattr(allowance, "_LEAST_S", 1.0)
            with pytest.raises(WorkerError, match="model: it did not finish within 1 s"):
                bench.decompose(hostile)
        bench.decompose(bench.read(save(mlp(), tmp_path, "next.onnx")))


def test_what_work_on_a_graph_may_take_grows_with_the_model() -> None:
    def allowed(*widths: int, batch: int = 1) -> tuple[float, int]:
        proto = mlp(widths=widths, batch=batch)
        for tensor in proto.graph.initializer:
            tensor.data_location = onnx.TensorProto.EXTERNAL
        return allowance.allowed_s(proto), allowance.allowed_bytes(proto)

    tiny, deep = allowed(1, 1), allowed(*[1] * 200)
    wide, batched = allowed(1024, 4096, 1024), allowed(1024, 4096, 1024, batch=4096)
    assert tiny[0] < 6
    assert tiny[1] < 1.1 * 2**30
    assert tiny[0] < deep[0]
    assert tiny < wide < batched
    assert allowed(1 << 10, 1 << 14, batch=1 << 30)[0] == allowance.MOST_S


INFLATING = {
    "a loop that doubles": endless(40),
    "a constant of a shape": model(
        [node("ConstantOfShape", ["shape"], ["y"])],
        [value("x", [1])],
        [value("y", None)],
        [constant("shape", [1 << 20, 1 << 10])],
    ),
    "a long range": model(
        [node("Range", ["none", "many", "one"], ["r"]), node("Add", ["x", "r"], ["y"])],
        [value("x", [1], "INT64")],
        [value("y", None, "INT64")],
        [constant("none", 0), constant("many", 1 << 30), constant("one", 1)],
    ),
    "an expansion": model(
        [node("Expand", ["x", "shape"], ["e"]), node("NonZero", ["e"], ["y"])],
        [value("x", [1])],
        [value("y", None, "INT64")],
        [constant("shape", [1 << 30])],
    ),
}


@pytest.mark.parametrize("proto", INFLATING.values(), ids=INFLATING)
@pytest.mark.parametrize("granularity", ["executed", "1"])
def test_a_few_bytes_cannot_ask_for_gigabytes(
    tmp_path: Path, proto: onnx.ModelProto, granularity: str
) -> None:
    with Bench(tmp_path / "c", granularity=granularity, threads=1) as bench:
        bench.decompose(bench.read(save(mlp(), tmp_path, "first.onnx")))
        (worker,) = psutil.Process().children()
        with contextlib.suppress(BricksError):
            bench.decompose(bench.read(save(proto, tmp_path)))
        if worker.is_running():
            assert peak_bytes(worker.pid) < 2 << 30
        assert peak_bytes(os.getpid()) < 2 << 30


def test_containers_in_containers_do_not_grow_without_end(tmp_path: Path) -> None:
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [1])
    for _ in range(40):  # two items in each would be 10^12
        kind = helper.make_sequence_type_proto(kind)
    proto = model([node("SequenceLength", ["s"], ["n"])], [helper.make_value_info("s", kind)],
                  [value("n", [], "INT64")])  # fmt: skip
    with pytest.raises(ModelError, match=r"input 's': seq.* with more around it is not supported"):
        read_model(save(proto, tmp_path))


def test_containers_of_what_no_host_holds_are_refused(tmp_path: Path) -> None:
    given = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [1 << 40, 1 << 20])
    proto = model([node("SequenceLength", ["s"], ["n"])], [given], [value("n", [], "INT64")])
    with pytest.raises(ShapeError, match="larger than any host can hold"):
        read_model(save(proto, tmp_path))
