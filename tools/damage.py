"""Damage done to ONNX files on purpose: to their bytes, and to what they say.

Every kind of damage takes a random generator, so that a seed and a number make one case, always the
same. Some leave a model that is still valid; most don't. Half of what could be damaged in a real
file is never reached by flipping its bytes, since the file is no protobuf message then: so most
kinds edit the message instead.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import onnx
from google.protobuf.message import DecodeError, EncodeError
from onnx import AttributeProto, TensorProto, helper

Random = random.Random
Edit = Callable[[Random, onnx.ModelProto], None]

SIZES = (0, 1, -1, 2, 3, 7, 255, 2**16, 2**31 - 1, 2**31, 2**33, 2**40, 2**62, 2**63 - 1, -(2**63))
NAMES = (
    "",
    " ",
    "\n",
    "two\nlines\r\n",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "[bold]loud[/bold]",
    "[/]",
    "[link=file:///etc/passwd]here[/link]",
    ":smile:",
    "nul\x00byte",
    "\u202eturned round\u2066",
    "\u2028",
    "%s%n%d{0}{name}",
    "../../etc/passwd",
    "'\"`$(true)",
    "é" * 300,
    "n" * 1_000_000,
)
LOCATIONS = (
    "", ".", "..", "/", "/etc/passwd", "../outside.bin", "folder/../../outside.bin", "C:\\x",
    "a\\..\\b", "inside.bin", "./inside.bin", "folder", "folder/inside.bin", "leads-out.bin",
    "loop.bin", "pipe", "out-folder/outside.bin", "case.onnx", "missing.bin", "nul\x00.bin",
    "x" * 5000, "~/x", "file:///etc/passwd", "\x1b[2J.bin",
)  # fmt: skip
NUMBERS_AS_TEXT = (
    "0",
    "-1",
    "1",
    "4096",
    "9" * 30,
    "9" * 5000,
    "1e9",
    "0x10",
    "",
    "none",
    str(2**62),
)
OPERATORS = sorted({(s.domain, s.name) for s in onnx.defs.get_all_schemas()})
STANDARD = [name for domain, name in OPERATORS if not domain]
DOMAINS = (
    "",
    "ai.onnx",
    "ai.onnx.ml",
    "com.microsoft",
    "com.microsoft.nchwc",
    "org.nobody",
    "local",
)
ATTRIBUTES = (
    "axis", "axes", "kernel_shape", "pads", "strides", "dilations", "group", "to", "perm",
    "keepdims", "num_outputs", "blocksize", "auto_pad", "equation", "batch_dims", "hidden_size",
    "direction", "value", "shape", "size", "epsilon", "allowzero", "transA", "activation", "mode",
)  # fmt: skip


def damaged(rng: Random, seeds: Mapping[str, bytes]) -> tuple[str, bytes]:
    """What was done, in a few words, and the bytes of the file."""
    names = sorted(seeds)
    name = rng.choice(names)
    if rng.random() < 0.3:
        other = seeds[rng.choice(names)]
        kind = rng.choice(BYTES)
        return f"{name}: {kind.__name__}", kind(rng, seeds[name], other)
    proto = onnx.ModelProto.FromString(seeds[name])
    done = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        edit = rng.choice(EDITS)
        # What protobuf does not take (an enum that is none, say) is no damage.
        with suppress(ValueError, TypeError, IndexError, DecodeError):
            edit(rng, proto)
            done.append(edit.__name__)
    try:
        data = proto.SerializeToString()
    except (EncodeError, ValueError):  # nested deeper than protobuf itself writes
        return f"{name}: nothing", seeds[name]
    if rng.random() < 0.1:
        kind = rng.choice(BYTES)
        done.append(kind.__name__)
        data = kind(rng, data, seeds[rng.choice(names)])
    return f"{name}: {', '.join(done)}", data


# Bytes


def flip_bits(rng: Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 8, 64))):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def set_bytes(rng: Random, data: bytes, _: bytes) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        out[rng.randrange(len(out))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    return bytes(out)


def insert_bytes(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 16, 1000))) + data[at:]


def delete_bytes(rng: Random, data: bytes, _: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.choice((1, 2, 16, 1000)) :]


def repeat_bytes(rng: Random, data: bytes, _: bytes) -> bytes:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.choice((1, 8, 100, 5000))]
    at = rng.choice((start, rng.randrange(len(data) + 1)))
    return data[:at] + piece * rng.choice((1, 2, 50)) + data[at:]


def cut_off(rng: Random, data: bytes, _: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def spliced(rng: Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one and the end of another; as messages, two in a row are merged."""
    if rng.random() < 0.4:
        return data + other
    return data[: rng.randrange(len(data))] + other[rng.randrange(len(other)) :]


def overlong_number(rng: Random, data: bytes, _: bytes) -> bytes:
    """A length or a number becomes a huge one."""
    at = rng.randrange(len(data))
    huge = rng.choice(
        (b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x00", b"\xff" * 12)
    )
    return data[:at] + huge + data[at + 1 :]


def changed_length(rng: Random, data: bytes, _: bytes) -> bytes:
    """One more or less, where a length is likely: after the tag of a field that has one."""
    places = [i + 1 for i in range(len(data) - 1) if data[i] & 7 == 2 and data[i] < 0x80]
    out = bytearray(data)
    for at in rng.sample(places, min(len(places), rng.choice((1, 3)))):
        out[at] = (out[at] + rng.choice((-2, -1, 1, 2, 100))) % 256
    return bytes(out)


BYTES: tuple[Callable[[Random, bytes, bytes], bytes], ...] = (
    flip_bits, set_bytes, insert_bytes, delete_bytes, repeat_bytes, cut_off, spliced,
    overlong_number, changed_length,
)  # fmt: skip


# What a model says


def graphs(proto: onnx.ModelProto) -> list[onnx.GraphProto]:
    """The graph, and those in its nodes."""
    found = [proto.graph]
    for graph in found:  # grows meanwhile
        for node in graph.node:
            for attribute in node.attribute:
                found += [attribute.g] if attribute.HasField("g") else []
                found += attribute.graphs
    return found


def a_graph(rng: Random, proto: onnx.ModelProto) -> onnx.GraphProto:
    return rng.choice(graphs(proto)) if rng.random() < 0.5 else proto.graph


def a_node(rng: Random, proto: onnx.ModelProto) -> onnx.NodeProto:
    return rng.choice(a_graph(rng, proto).node)


def a_value(rng: Random, graph: onnx.GraphProto) -> str:
    names = [n for node in graph.node for n in (*node.input, *node.output)]
    return rng.choice(
        [*names, *(i.name for i in graph.input), *(t.name for t in graph.initializer)]
    )


def operator(rng: Random, proto: onnx.ModelProto) -> None:
    node = a_node(rng, proto)
    node.op_type = rng.choice(
        (*rng.sample(STANDARD, 20), rng.choice(NAMES), "Constant", "If", "Loop")
    )


def foreign_operator(rng: Random, proto: onnx.ModelProto) -> None:
    node = a_node(rng, proto)
    node.domain, node.op_type = rng.choice(OPERATORS)
    proto.opset_import.add(domain=node.domain, version=rng.choice((1, 2, 3, 4, 5)))


def domain(rng: Random, proto: onnx.ModelProto) -> None:
    a_node(rng, proto).domain = rng.choice((*DOMAINS, rng.choice(NAMES)))
    if rng.random() < 0.5:
        proto.opset_import.add(domain=rng.choice(DOMAINS), version=1)


def opset(rng: Random, proto: onnx.ModelProto) -> None:
    entry = rng.choice(proto.opset_import)
    entry.version = rng.choice((*SIZES, *range(1, 30)))
    if rng.random() < 0.2:
        del proto.opset_import[:]
    if rng.random() < 0.2:
        proto.opset_import.add(domain=entry.domain, version=rng.choice((1, 9, 13, 21)))


def file_version(rng: Random, proto: onnx.ModelProto) -> None:
    proto.ir_version = rng.choice((*SIZES, *range(1, 14)))


def attribute_value(rng: Random, proto: onnx.ModelProto) -> None:
    node = rng.choice([n for g in graphs(proto) for n in g.node if n.attribute])
    attribute = rng.choice(node.attribute)
    if rng.random() < 0.3:
        attribute.i = rng.choice(SIZES)
    elif attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(SIZES)
        if rng.random() < 0.3:
            attribute.ints.extend(rng.choices(SIZES, k=rng.choice((1, 3, 1000))))
    elif rng.random() < 0.5:
        attribute.f = rng.choice((0.0, -1.0, 1e38, float("nan"), float("inf"), 1e-45))
    else:
        attribute.s = rng.choice((b"", b"\xff\xfe", b"SAME_UPPER", b"a" * 1_000_000, b"\x1b[2J\n"))


def attribute_kind(rng: Random, proto: onnx.ModelProto) -> None:
    node = rng.choice([n for g in graphs(proto) for n in g.node if n.attribute])
    attribute = rng.choice(node.attribute)
    attribute.type = rng.choice(list(AttributeProto.AttributeType.values()))
    if rng.random() < 0.3:
        attribute.name = rng.choice((*ATTRIBUTES, *NAMES))
    if rng.random() < 0.2:
        attribute.ref_attr_name = rng.choice(("axis", "nothing", ""))


def new_attribute(rng: Random, proto: onnx.ModelProto) -> None:
    values: tuple[object, ...] = (
        rng.choice(SIZES),
        rng.choices(SIZES, k=rng.choice((1, 2, 4, 1000))),
        rng.choice((0.5, float("nan"))),
        rng.choice(NAMES),
        tensor(rng, "t"),
        helper.make_graph([], "empty", [], []),
    )
    node, name = a_node(rng, proto), rng.choice(ATTRIBUTES)
    if rng.random() < 0.8:
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)
    node.attribute.append(helper.make_attribute(name, rng.choice(values)))


def no_attribute(rng: Random, proto: onnx.ModelProto) -> None:
    node = rng.choice([n for n in proto.graph.node if n.attribute])
    del node.attribute[rng.randrange(len(node.attribute))]


def wiring(rng: Random, proto: onnx.ModelProto) -> None:
    """An input comes from elsewhere: from later (a cycle), from nowhere, from the node itself."""
    graph = a_graph(rng, proto)
    node = rng.choice(graph.node)
    sources = (a_value(rng, graph), a_value(rng, graph), "ghost", "", *node.output)
    if node.input and rng.random() < 0.8:
        node.input[rng.randrange(len(node.input))] = rng.choice(sources)
    else:
        node.input.append(rng.choice(sources))


def producers(rng: Random, proto: onnx.ModelProto) -> None:
    """A value is made twice, or by nobody."""
    graph = a_graph(rng, proto)
    node = rng.choice(graph.node)
    names = (a_value(rng, graph), "", "fresh", *node.input)
    if node.output and rng.random() < 0.7:
        node.output[rng.randrange(len(node.output))] = rng.choice(names)
    else:
        node.output.append(rng.choice(names))


def ports(rng: Random, proto: onnx.ModelProto) -> None:
    node = a_node(rng, proto)
    names = rng.choice((node.input, node.output))
    if rng.random() < 0.5:
        del names[rng.randrange(len(names)) :]
    else:
        names.extend([rng.choice(list(names) or ["x"])] * rng.choice((1, 5, 500)))


def node_order(rng: Random, proto: onnx.ModelProto) -> None:
    graph = a_graph(rng, proto)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    change = rng.choice(("shuffle", "repeat", "drop"))
    if change == "shuffle":
        rng.shuffle(nodes)
    elif change == "repeat":
        nodes.append(rng.choice(nodes))
    else:
        del nodes[rng.randrange(len(nodes))]
    del graph.node[:]
    graph.node.extend(nodes)


def shapes(proto: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto]:
    for graph in graphs(proto):
        for value in (*graph.input, *graph.output, *graph.value_info):
            if value.type.HasField("tensor_type"):
                yield value.type.tensor_type.shape


def dimension(rng: Random, proto: onnx.ModelProto) -> None:
    shape = rng.choice([s for s in shapes(proto) if s.dim])
    for _ in range(rng.choice((1, 1, 2, 4))):
        shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice(SIZES)


def weight_dimension(rng: Random, proto: onnx.ModelProto) -> None:
    weight = rng.choice([t for t in proto.graph.initializer if t.dims])
    weight.dims[rng.randrange(len(weight.dims))] = rng.choice(SIZES)


def rank(rng: Random, proto: onnx.ModelProto) -> None:
    if rng.random() < 0.5:
        shape = rng.choice(list(shapes(proto)))
        for _ in range(rng.choice((1, 10, 70, 5000))):
            shape.dim.add(dim_value=rng.choice((1, 1, 2)))
        if rng.random() < 0.3:
            del shape.dim[:]
    else:
        rng.choice(proto.graph.initializer).dims.extend([1] * rng.choice((1, 10, 70, 5000)))


def symbol(rng: Random, proto: onnx.ModelProto) -> None:
    rng.choice(rng.choice([s for s in shapes(proto) if s.dim]).dim).dim_param = rng.choice(NAMES)


def element_type(rng: Random, proto: onnx.ModelProto) -> None:
    number = rng.choice((*range(30), -1, 99, 2**31 - 1))
    if rng.random() < 0.5:
        values = [v for g in graphs(proto) for v in (*g.input, *g.output, *g.value_info)]
        rng.choice(values).type.tensor_type.elem_type = number
    else:
        rng.choice(proto.graph.initializer).data_type = number


def value_kind(rng: Random, proto: onnx.ModelProto) -> None:
    """A value that is no tensor, of a type that is nested, or of none."""
    graph = a_graph(rng, proto)
    kind = rng.choice([*graph.input, *graph.output]).type
    kind.Clear()
    for _ in range(rng.choice((0, 1, 3, 30))):
        kind = rng.choice((kind.sequence_type, kind.optional_type)).elem_type
    if rng.random() < 0.7:
        kind.tensor_type.elem_type = 1
    elif rng.random() < 0.5:
        kind.sparse_tensor_type.elem_type = 1


def value_name(rng: Random, proto: onnx.ModelProto) -> None:
    """A value is called something else, wherever it stands."""
    old, new = a_value(rng, proto.graph), rng.choice(NAMES)
    for graph in graphs(proto):
        for node in graph.node:
            for names in (node.input, node.output):
                for i, name in enumerate(names):
                    if name == old:
                        names[i] = new
        for named in (*graph.input, *graph.output, *graph.value_info, *graph.initializer):
            if named.name == old:
                named.name = new


def node_name(rng: Random, proto: onnx.ModelProto) -> None:
    a_node(rng, proto).name = rng.choice(NAMES)
    proto.graph.name = rng.choice(NAMES)


def nested(rng: Random, proto: onnx.ModelProto) -> None:
    """The last node stands in an If in an If in an If."""
    graph = proto.graph
    node = onnx.NodeProto.FromString(graph.node[-1].SerializeToString())
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output]
    for depth in range(rng.choice((1, 3, 10, 25, 30, 31, 32, 33, 60))):
        body = helper.make_graph([node], "body", [], outputs)
        node = helper.make_node("If", ["choice"], [o.name for o in outputs])
        # Both branches at every depth would be 2^60 nodes, in memory before any file is written.
        for branch in ("then_branch", "else_branch")[: 2 if depth < 3 else 1]:
            node.attribute.append(helper.make_attribute(branch, body))
    graph.node[-1].CopyFrom(node)
    graph.initializer.append(helper.make_tensor("choice", TensorProto.BOOL, [], [True]))


def loop(rng: Random, proto: onnx.ModelProto) -> None:
    """A value goes through a loop of any number of turns."""
    graph = proto.graph
    reader = rng.choice([n for n in graph.node if n.input])
    old = reader.input[0]
    go, on = (helper.make_tensor_value_info(n, TensorProto.BOOL, []) for n in ("go", "on"))
    turn = helper.make_tensor_value_info("turn", TensorProto.INT64, [])
    body = helper.make_graph(
        [helper.make_node("Identity", [a], [b]) for a, b in (("go", "on"), ("in", "out"))],
        "body",
        [turn, go, onnx.ValueInfoProto(name="in")],
        [on, onnx.ValueInfoProto(name="out")],
    )
    turns = rng.choice((0, 1, 3, 10, 100, 1000, -1, 2**40, 2**63 - 1))
    graph.initializer.append(helper.make_tensor("turns", TensorProto.INT64, [], [turns]))
    new = helper.make_node("Loop", ["turns", "", old], ["looped"], body=body)
    reader.input[0] = "looped"
    graph.node.insert(0, new)


def inflated(rng: Random, proto: onnx.ModelProto) -> None:
    """A few bytes that ask for very large values."""
    sizes = rng.choice(
        ([2**20, 2**14], [2**31], [2**40], [2**62], [2**62, 4], [100_000] * 2, [2**29])
    )
    reader = rng.choice([n for n in proto.graph.node if n.input])
    proto.graph.initializer.append(
        helper.make_tensor("sizes", TensorProto.INT64, [len(sizes)], sizes)
    )
    old = reader.input[0]
    one = helper.make_tensor("one", TensorProto.INT64, [], [1])
    zero = helper.make_tensor("none", TensorProto.INT64, [], [0])
    many = helper.make_tensor("many", TensorProto.INT64, [], [sizes[0]])
    node = rng.choice(
        (
            helper.make_node("ConstantOfShape", ["sizes"], ["inflated"]),
            helper.make_node("Expand", [old, "sizes"], ["inflated"]),
            helper.make_node("Tile", [old, "sizes"], ["inflated"]),
            helper.make_node("Reshape", [old, "sizes"], ["inflated"]),
            helper.make_node("RandomNormal", [], ["inflated"], shape=sizes),
            helper.make_node("Range", ["none", "many", "one"], ["inflated"]),
            helper.make_node("EyeLike", [old], ["inflated"]),
        )
    )
    proto.graph.initializer.extend((one, zero, many))
    reader.input[0] = "inflated"
    proto.graph.node.insert(0, node)


def functions(rng: Random, proto: onnx.ModelProto) -> None:
    """Local functions: plain ones, some that call themselves, some that call others twice."""
    kind = rng.choice(("plain", "self", "circle", "double", "double", "chain", "nested", "twins"))
    count = {"plain": 1, "self": 1, "circle": 3}.get(kind, rng.choice((2, 8, 16, 30, 60, 300)))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    for i in range(count):
        last = i == count - 1
        callee = {"self": 0, "circle": (i + 1) % count}.get(kind, i + 1)
        calls = [helper.make_node(f"f{callee}", ["a"], ["b"], domain="local")]
        if kind == "double":
            calls.append(helper.make_node(f"f{callee}", ["b"], ["c"], domain="local"))
        if kind == "nested":
            body = helper.make_graph(calls, "body", [], [onnx.ValueInfoProto(name="b")])
            choose = helper.make_node("Constant", [], ["choice"], value_int=1)
            calls = [
                choose,
                helper.make_node("If", ["choice"], ["b"], then_branch=body, else_branch=body),
            ]
        if kind == "plain" or (last and kind not in ("self", "circle")):
            calls = [helper.make_node("Relu", ["a"], ["b"])]
        name = "f0" if kind == "twins" else f"f{i}"
        out = "c" if kind == "double" and not last else "b"
        proto.functions.append(helper.make_function("local", name, ["a"], [out], calls, imports))
    proto.opset_import.add(domain="local", version=1)
    node = rng.choice([n for n in proto.graph.node if n.input])
    node.op_type, node.domain = "f0", "local"
    if rng.random() < 0.7:
        del node.input[1:], node.output[1:], node.attribute[:]


def external_data(rng: Random, proto: onnx.ModelProto) -> None:
    weights = [t for t in proto.graph.initializer] or [tensor(rng, "w")]
    for weight in rng.sample(weights, min(len(weights), rng.choice((1, 1, 3)))):
        del weight.external_data[:]
        weight.data_location = TensorProto.EXTERNAL
        if rng.random() < 0.7:
            weight.ClearField("raw_data")
        for key, values in (
            ("location", LOCATIONS),
            ("offset", NUMBERS_AS_TEXT),
            ("length", NUMBERS_AS_TEXT),
            (rng.choice(NAMES), NAMES),
        ):
            for _ in range(rng.choice((0, 1, 1, 1, 2))):
                weight.external_data.add(key=key, value=rng.choice(values))


def payload(rng: Random, proto: onnx.ModelProto) -> None:
    """What an initializer holds is not what its type says."""
    weight = rng.choice(proto.graph.initializer)
    if rng.random() < 0.5:
        weight.data_location = TensorProto.DEFAULT
        del weight.external_data[:]
        weight.raw_data = rng.randbytes(rng.choice((0, 1, 3, 4, 8, 1000, 100_000)))
    else:
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.DEFAULT
        values = rng.choice((weight.int32_data, weight.int64_data, weight.float_data))
        values.extend([rng.choice((0, 1, 1000))] * rng.choice((1, 2, 1000, 100_000)))
    if rng.random() < 0.2:
        weight.string_data.append(b"\xff text")
        weight.data_type = TensorProto.STRING


def constants(rng: Random, proto: onnx.ModelProto) -> None:
    """Small integers, which steer shapes, become extreme."""
    steering = [
        t for t in proto.graph.initializer if t.data_type == TensorProto.INT64 and len(t.dims) < 2
    ]
    chosen = rng.choice(steering)
    count = max(1, chosen.dims[0] if chosen.dims else 1)
    if count < 1000:
        chosen.ClearField("int64_data")
        chosen.raw_data = b"".join(
            rng.choice(SIZES).to_bytes(8, "little", signed=True) for _ in range(count)
        )


def sparse(rng: Random, proto: onnx.ModelProto) -> None:
    indices = helper.make_tensor("", TensorProto.INT64, [2], [rng.choice(SIZES), 1])
    values = helper.make_tensor(
        rng.choice(("sparse", a_value(rng, proto.graph))), 1, [2], [1.0, 2.0]
    )
    made = helper.make_sparse_tensor(values, indices, [rng.choice(SIZES[3:])])
    if rng.random() < 0.5:
        a_graph(rng, proto).sparse_initializer.append(made)
    else:
        node = helper.make_node("Constant", [], ["sparse"], sparse_value=made)
        proto.graph.node.append(node)
    a_node(rng, proto).input.append("sparse")


def many_nodes(rng: Random, proto: onnx.ModelProto) -> None:
    reader = rng.choice([n for n in proto.graph.node if n.input])
    at = reader.input[0]
    count = rng.choice((10, 200, 2000))
    wide = rng.random() < 0.3
    for i in range(count):
        source = at if wide or not i else f"many{i - 1}"
        proto.graph.node.append(helper.make_node("Identity", [source], [f"many{i}"]))
    reader.input[0] = f"many{count - 1}"


def grafted(rng: Random, proto: onnx.ModelProto) -> None:
    """All of the graph once more, in a node."""
    body = onnx.GraphProto.FromString(proto.graph.SerializeToString())
    if len(proto.SerializeToString()) < 200_000:
        a_node(rng, proto).attribute.append(helper.make_attribute("then_branch", body))


def cleared(rng: Random, proto: onnx.ModelProto) -> None:
    message = rng.choice((proto, proto.graph, a_node(rng, proto), *proto.graph.input[:1]))
    fields = [field for field, _ in message.ListFields()]
    message.ClearField(rng.choice(fields).name)


def aside(rng: Random, proto: onnx.ModelProto) -> None:
    """Fields that hardly anybody reads."""
    proto.metadata_props.add(key=rng.choice(NAMES), value=rng.choice(NAMES))
    proto.doc_string = rng.choice(NAMES)
    training = proto.training_info.add()
    training.algorithm.CopyFrom(proto.graph)
    note = proto.graph.quantization_annotation.add(tensor_name=rng.choice(NAMES))
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="ghost")


def interface(rng: Random, proto: onnx.ModelProto) -> None:
    """Inputs and outputs that are not there, twice, or the same."""
    graph = a_graph(rng, proto)
    values = rng.choice((graph.input, graph.output))
    name = rng.choice((a_value(rng, graph), "ghost", "", *(v.name for v in values)))
    change = rng.choice(("add", "drop", "rename"))
    if change == "add":
        values.append(helper.make_tensor_value_info(name, 1, [1, 2]))
    elif change == "drop":
        del values[rng.randrange(len(values))]
    else:
        rng.choice(values).name = name


def tensor(rng: Random, name: str) -> onnx.TensorProto:
    """A small tensor that may lie about what it holds."""
    made = onnx.TensorProto(name=name, data_type=rng.choice((1, 6, 7, 9, 10, 22)))
    made.dims.extend(rng.choices(SIZES, k=rng.choice((0, 1, 2))))
    made.raw_data = rng.randbytes(rng.choice((0, 4, 8, 64)))
    return made


EDITS: Sequence[Edit] = (
    operator, operator, foreign_operator, domain, opset, file_version, attribute_value,
    attribute_value, attribute_kind, new_attribute, no_attribute, wiring, wiring, producers, ports,
    node_order, dimension, dimension, weight_dimension, rank, symbol, element_type, value_kind,
    value_name, node_name, nested, loop, inflated, inflated, functions, functions, external_data,
    external_data, payload, constants, constants, sparse, many_nodes, grafted, cleared, aside,
    interface,
)  # fmt: skip
