from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from commands import Here
from factories import model, node, save, value
from onnx import helper


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return save(steered(), tmp_path, "steered.onnx")


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


def test_what_steers_is_said_and_can_be_given(here: Here, path: Path) -> None:
    made_up = here("decompose", path, "--json", runtime=None)
    assert made_up.status == 1
    assert "'shape'" in made_up.complaint and "--value" in made_up.complaint
    given = here("decompose", path, "--value", "shape=2,3", "--json", runtime=None)
    assert given.status == 0
    assert given.json["models"][0]["assumed"] == [
        "input 'choice' chooses what is run: assumed true (--value says otherwise)"
    ]
    both = ("--value", "shape=2,3", "--value", "choice=false")
    verified = here("decompose", path, *both, "--verify", "--json", runtime=None)
    assert verified.status == 0
    assert verified.json["models"][0]["exact"]
    assert verified.json["models"][0]["assumed"] == []


def bricks_of(here: Here, path: Path, value: str) -> list[str]:
    """The keys of a model's bricks, which differ with what they compute."""
    words = ("predict", path, "--value", value, "--value", "choice=false", "--no-measure", "--json")
    (row,) = here(*words, runtime=None).json["models"]
    found: list[str] = [gap["brick"] for gap in row["missing"]]
    assert len(found) > 1, row
    return found


def test_values_come_from_files_of_numpy_too(here: Here, path: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "shape.npy", np.array([3, 2]))
    loaded = bricks_of(here, path, f"shape=@{tmp_path}/shape.npy")
    assert loaded == bricks_of(here, path, "shape=3,2")
    assert loaded != bricks_of(here, path, "shape=2,3")


def test_a_value_that_makes_no_sense_is_one_line(here: Here, path: Path) -> None:
    for text, status, *facts in (
        ("shape", 2, "'shape'", "NAME=2,3", "NAME=@FILE.npy"),
        ("shape=@/nowhere.npy", 2, "/nowhere.npy", "No such file or directory"),
        ("size=1", 1, "'size'", "'x', 'choice', 'shape'"),
        ("shape=a,b", 1, "'shape'", "a,b", "int64"),
        ("shape=1,2,3", 1, "'shape'", "axis 0", "2"),
        ("shape=99999999999999999999,1", 1, "'shape'", "99999999999999999999"),
        ("x=1,2,3,4,5,1e39", 1, "1e39", "float"),
        ("choice=maybe", 1, "'choice'", "maybe", "bool"),
    ):
        done = here("decompose", path, "--value", text)
        assert (done.status, done.out) == (status, ""), text
        assert all(fact in done.complaint for fact in facts), done.complaint


def test_a_value_is_given_once(here: Here, path: Path) -> None:
    done = here("decompose", path, "--value", "shape=2,3", "--value", "shape=3,2")
    assert (done.status, done.out) == (2, "")
    assert "--value" in done.complaint and "'shape'" in done.complaint
