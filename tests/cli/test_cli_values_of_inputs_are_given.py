from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here
from factories import model, node, save, value
from onnx import helper


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(tmp_path / "cache", capsys)


def steered() -> onnx.ModelProto:
    """What to do, and into which shape, are inputs."""
    then = helper.make_graph([node("Tanh", ["x"], ["t"])], "then", [], [value("t", [6])])
    other = helper.make_graph([node("Neg", ["x"], ["t"])], "else", [], [value("t", [6])])
    nodes = [
        node("If", ["choice"], ["a"], then_branch=then, else_branch=other),
        node("Reshape", ["a", "shape"], ["y"]),
    ]
    inputs = [value("x", [6]), value("choice", [], "BOOL"), value("shape", [2], "INT64")]
    return model(nodes, inputs, [value("y", None)])


def test_what_steers_is_said_and_can_be_given(here: Here, tmp_path: Path) -> None:
    path = save(steered(), tmp_path, "steered.onnx")
    made_up = here("decompose", path, "--json", runtime=None)
    assert made_up.status == 1
    assert made_up.complaint.endswith("(made up was 'shape': say with --value what it holds)")
    given = here("decompose", path, "--value", "shape=2,3", "--json", runtime=None)
    assert given.status == 0
    assert given.json["models"][0]["assumed"] == [
        "input 'choice' chooses what is run: assumed true (--value says otherwise)"
    ]
    both = ("--value", "shape=2,3", "--value", "choice=false")
    verified = here("decompose", path, *both, "--verify", "--json", runtime=None)
    assert verified.json["models"][0]["exact"]
    assert verified.json["models"][0]["assumed"] == []


def test_values_come_from_files_of_numpy_too(here: Here, tmp_path: Path) -> None:
    path = save(steered(), tmp_path, "steered.onnx")
    np.save(tmp_path / "shape.npy", np.array([3, 2]))
    outcome = here("decompose", path, "--value", f"shape=@{tmp_path}/shape.npy", runtime=None)
    assert outcome.status == 0


@pytest.mark.parametrize(
    ("text", "status", "complaint"),
    [
        ("shape", 2, "not a value: 'shape': give NAME=2,3 or NAME=@FILE.npy"),
        ("shape=@/nowhere.npy", 2, "/nowhere.npy cannot be read: No such file or directory"),
        ("size=1", 1, "steered.onnx: there is no input 'size'; inputs are: 'x', 'choice', 'shape'"),
        ("shape=a,b", 1, "the value given for input 'shape', a,b, is no int64"),
        ("shape=1,2,3", 1, "contradicts input 'shape', whose axis 0 is fixed at 2"),
        ("shape=99999999999999999999,1", 1, "the value given for input 'shape', 9"),
        ("x=1,2,3,4,5,1e39", 1, "1e39, is no float"),
        ("choice=maybe", 1, "the value given for input 'choice', maybe, is no bool"),
    ],
)
def test_a_value_that_makes_no_sense_is_one_line(
    here: Here, tmp_path: Path, text: str, status: int, complaint: str
) -> None:
    path = save(steered(), tmp_path, "steered.onnx")
    outcome = here("decompose", path, "--value", text, runtime=None)
    assert outcome.status == status
    assert complaint in outcome.complaint


def test_a_value_is_given_once(here: Here, tmp_path: Path) -> None:
    path = save(steered(), tmp_path, "steered.onnx")
    outcome = here("decompose", path, "--value", "shape=2,3", "--value", "shape=3,2")
    assert outcome.status == 2
    assert "--value gives input 'shape' twice" in outcome.complaint
