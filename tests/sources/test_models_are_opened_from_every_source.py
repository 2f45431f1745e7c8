from __future__ import annotations

from pathlib import Path

import pytest
from factories import conv_net, mlp, save
from hypothesis import given
from hypothesis import strategies as st
from recorded_programs import training_step
from refusals import refused

from bricks import sources
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition
from bricks.errors import ModelError, OpenDimensions, UsageError
from bricks.graph.call import TRAINING
from bricks.graph.model import Model
from bricks.graph.view import source_graph
from bricks.reading.read import read_model
from bricks.sources import (
    Function,
    InMemory,
    OnnxFile,
    PrivateBricks,
    ReadOptions,
    RecordedProgram,
    SuiteFile,
    Unread,
    find,
    find_files,
)
from bricks.suite import write_private_suite, write_suite
from bricks.system import Runtime
from bricks.zoo import programs

PLAIN = ReadOptions()
RUNTIME = Runtime("fake", "1", "cpu", 1, "none")


def opened(reference: object, options: ReadOptions = PLAIN) -> list[Model | Unread | PrivateBricks]:
    return [result.content for result in sources.open(str(reference), options)]


def cut(path: Path) -> tuple[Model, Decomposition]:
    model = read_model(path)
    return model, build(model, source_graph(model), Granularity.parse("executed"))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "suite.zip"
    decomposed = [cut(save(mlp(), tmp_path, "mlp.onnx"))]
    write_suite(path, decomposed, runtime=RUNTIME, granularity="executed", package="0")
    return path


@pytest.fixture
def private(tmp_path: Path) -> Path:
    path = tmp_path / "private.zip"
    _, made = cut(save(mlp(), tmp_path, "mlp.onnx"))
    write_private_suite(path, made.bricks, runtime=RUNTIME, granularity="executed", package="0")
    return path


def test_a_reference_names_the_source_that_it_looks_like(tmp_path: Path, suite: Path) -> None:
    assert find("nets.py:small") == (Function("nets.py:small"),)
    assert find("package.nets:small") == (Function("package.nets:small"),)
    assert find(str(suite)) == (SuiteFile(str(suite)),)
    (of_zoo,) = find("squeezenet")
    assert isinstance(of_zoo, OnnxFile) and of_zoo.path.is_file()
    for entry in programs():
        assert find(entry.name) == (RecordedProgram(entry),)


def test_a_file_is_read_with_the_inputs_that_the_reader_chooses(tmp_path: Path) -> None:
    path = save(mlp(batch="n"), tmp_path, "net.onnx")
    (wrong,) = opened(path)
    assert isinstance(wrong, Unread) and isinstance(wrong.cause, OpenDimensions)
    (model,) = opened(path, ReadOptions(batch=3))
    assert isinstance(model, Model)
    assert model.name == "net"
    assert model.inputs[0][1].shape[0] == 3
    assert sources.read(str(path), ReadOptions(batch=3, name="other")).name == "other"


def test_a_model_that_cannot_be_read_does_not_stop_the_others(tmp_path: Path) -> None:
    save(mlp(), tmp_path, "a.onnx")
    (tmp_path / "b.onnx").write_bytes(b"no model")
    save(conv_net(), tmp_path, "c.onnx")
    first, second, third = opened(tmp_path)
    assert isinstance(first, Model) and isinstance(third, Model)
    assert isinstance(second, Unread)
    assert second.name == "b" and "not an ONNX model" in second.error


def test_what_names_nothing_is_unread(tmp_path: Path) -> None:
    (unread,) = opened("resnet5O")
    assert isinstance(unread, Unread)
    assert unread.name == "resnet5O" and "did you mean resnet50" in unread.error


@given(names=st.sets(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=5))
def test_the_word_of_a_model_names_it_alone(
    tmp_path_factory: pytest.TempPathFactory, names: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("models")
    for name in names:
        (folder / f"{name}.onnx").write_bytes(b"")
    files = find_files(str(folder))
    assert [file.title for file in files] == sorted(names)
    for file in files:
        (again,) = find_files(file.word)
        assert again.path == file.path


def test_a_suite_holds_its_models_as_they_were(suite: Path, tmp_path: Path) -> None:
    (model,) = opened(suite)
    assert isinstance(model, Model) and model.name == "mlp"
    assert sources.read(str(suite), PLAIN).digest == read_model(tmp_path / "mlp.onnx").digest
    for options in (ReadOptions(batch=2), ReadOptions(values={"x": 1})):
        with refused(UsageError, suite, "--batch"):
            opened(suite, options)
    with refused(UsageError, suite, "--granularity"):
        opened(suite, ReadOptions(granularity="2"))


def test_a_private_suite_holds_bricks_and_no_models(private: Path) -> None:
    (content,) = opened(private)
    assert isinstance(content, PrivateBricks) and content.bricks
    with refused(UsageError, private, "private"):
        sources.read(str(private), PLAIN)


def test_a_file_that_is_no_suite_is_unread(tmp_path: Path) -> None:
    path = tmp_path / "other.zip"
    path.write_bytes(b"nothing")
    (unread,) = opened(path)
    assert isinstance(unread, Unread) and str(path) in unread.error


def test_a_recorded_program_is_read_as_it_was_recorded() -> None:
    entry = next(each for each in programs())
    (model,) = opened(entry.name)
    assert isinstance(model, Model)
    assert (model.name, model.digest) == (entry.name, read_model(entry.path).digest)


def test_a_program_makes_its_own_inputs() -> None:
    for reference in ("nets.py:small", programs()[0].name):
        (unread,) = opened(reference, ReadOptions(shapes={"x": (1,)}))
        assert isinstance(unread, Unread) and "makes its own inputs" in unread.error


def test_a_worker_is_asked_for_a_function_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    step = Function("nets.py:small", arguments={"tokens": 1})
    assert step.request(batch=2) == {
        "entry": "nets.py:small",
        "folder": str(tmp_path),
        "options": {"batch": 2, "tokens": 1},
    }
    of_zoo = sources.function_of(next(each.name for each in programs() if each.code is not None))
    assert of_zoo.request()["folder"] == "" and of_zoo.request()["options"] == {}


def test_a_model_in_memory_is_a_source(tmp_path: Path) -> None:
    model = sources.read(InMemory(mlp(), lambda: tmp_path), ReadOptions(name="held"))
    assert model.name == "held"
    recorded = sources.read(InMemory(training_step(), lambda: tmp_path), PLAIN)
    assert recorded.inputs


def test_only_one_of_several_can_be_read(tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).write_bytes(b"")
    with refused(UsageError, tmp_path, "2 models"):
        sources.read(str(tmp_path), PLAIN)
    with refused(ModelError, tmp_path / "c.onnx"):
        sources.read(str(tmp_path / "c.onnx"), PLAIN)


def test_a_training_step_is_a_function_or_a_recorded_one() -> None:
    step = next(each for each in programs() if each.kind == TRAINING)
    assert sources.find_training_step(step.name) == RecordedProgram(step)
    assert sources.find_training_step("nets.py:step") == Function("nets.py:step")
    other = next(each for each in programs() if each.kind != TRAINING)
    for name in (other.name, step.name + "x"):
        with refused(UsageError, "no training step", f"'{name}'"):
            sources.find_training_step(name)
