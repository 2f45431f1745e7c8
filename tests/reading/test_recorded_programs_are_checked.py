from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper
from recorded_programs import ENTRY, FOLDER, training_step
from refusals import refused

from bricks import ModelError
from bricks.errors import ShapeError
from bricks.graph.program import Call, Origin, Port, State, call_of, origin_of, state_of
from bricks.graph.view import parse_model
from bricks.reading.read import read_model


def read(proto: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    path = folder / "program.onnx"
    path.write_bytes(proto.SerializeToString())
    return parse_model(read_model(path).skeleton)


def test_a_program_is_read_as_it_was_recorded(tmp_path: Path) -> None:
    proto = training_step()
    found = read(proto, tmp_path)
    assert list(found.graph.node) == list(proto.graph.node)
    assert list(found.graph.value_info) == list(proto.graph.value_info)
    assert origin_of(found) == Origin(ENTRY, FOLDER, "training step", "2.13.0", {"batch": 2})
    assert state_of(found) == State(
        {"inputs": 64, "parameters": 128, "buffers": 0, "optimizer": 0}, ["dw"]
    )


def test_where_its_code_lies_is_no_part_of_its_digest(tmp_path: Path) -> None:
    one, other = training_step(), training_step()
    del other.metadata_props[:]
    Origin("elsewhere.py:step", "/", "training step", "2.13.0").note(other)
    digests = []
    for number, proto in enumerate((one, other)):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(proto.SerializeToString())
        digests.append(read_model(path).digest)
    assert digests[0] == digests[1]


def test_other_shapes_need_another_recording(tmp_path: Path) -> None:
    path = tmp_path / "program.onnx"
    path.write_bytes(training_step().SerializeToString())
    with refused(ShapeError, "program.onnx"):
        read_model(path, batch=4)


def _no_call(proto: onnx.ModelProto) -> None:
    proto.graph.node.append(helper.make_node("Relu", ["dw"], ["r"]))
    proto.graph.value_info.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [1]))


def _without_arguments(proto: onnx.ModelProto) -> None:
    del proto.graph.node[0].attribute[:]


def _untyped(proto: onnx.ModelProto) -> None:
    del proto.graph.value_info[:]


def _out_of_order(proto: onnx.ModelProto) -> None:
    first = onnx.NodeProto.FromString(proto.graph.node[0].SerializeToString())
    del proto.graph.node[0]
    proto.graph.node.append(first)


def _no_such_input(proto: onnx.ModelProto) -> None:
    call = Call("aten", "relu", ([{"t": 7}], {}))
    proto.graph.node[1].CopyFrom(call.node(["y"], ["z"]))


def _too_many_ports(proto: onnx.ModelProto) -> None:
    call = Call("aten", "relu", ([{"t": 0}], {}), ports=(Port(0, 0, (1,)), Port(1, 0, (1,))))
    proto.graph.node[1].CopyFrom(call.node(["y"], ["z"]))


def _with_weights(proto: onnx.ModelProto) -> None:
    held = helper.make_tensor("w", TensorProto.FLOAT, [8, 4], [1.0] * 32)
    proto.graph.initializer[0].CopyFrom(held)


def _without_origin(proto: onnx.ModelProto) -> None:
    del proto.metadata_props[:]


def _unreadable_origin(proto: onnx.ModelProto) -> None:
    for entry in proto.metadata_props:
        entry.value = "[]"


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (_no_call, "is no call, in a recorded program"),
        (_without_arguments, "is no call"),
        (_untyped, "has a value without a type: 'y'"),
        (_out_of_order, "which no call before it makes: record the program again"),
        (_no_such_input, "has an argument that is none of its inputs"),
        (_too_many_ports, "lays out more tensors than it has"),
        (_with_weights, "a recorded program holds no weights, but 'w' has values"),
        (_without_origin, "says of itself neither what it is nor who recorded it"),
        (_unreadable_origin, "what a recorded program says of itself cannot be read"),
    ],
)
def test_a_damaged_program_is_refused_in_one_line(
    damage: Callable[[onnx.ModelProto], None], told: str, tmp_path: Path
) -> None:
    proto = training_step()
    damage(proto)
    with pytest.raises(ModelError) as caught:
        read(proto, tmp_path)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_calls_are_written_and_read_the_same() -> None:
    call = Call("aten", "add_.Tensor", ([{"t": 0}, {"t": 1}], {"alpha": 3}),
                (Port(0, 4, (8, 1)), Port(1, 0, (1, 2))), (0,))  # fmt: skip
    assert call_of(call.node(["a", "b"], ["c"])) == call
