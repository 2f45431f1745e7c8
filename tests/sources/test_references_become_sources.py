import json
from pathlib import Path

import pytest
from refusals import refused
from zoo_folders import CLASSIFIERS, zoo_at

from bricks.errors import ModelError
from bricks.sources import find_files
from bricks.zoo import decoders, entries, entry, programs

REPOSITORY = Path(__file__).parents[2]


def found(reference: str) -> list[tuple[str, Path]]:
    return [(file.title, file.path) for file in find_files(reference)]


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_a_zoo_name_is_found() -> None:
    for name in CLASSIFIERS:
        [file] = find_files(name)
        assert file.title == name
        assert file.path.is_file(), name


def sources_at(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """A zoo of models with these names, all with files."""
    example = json.loads((REPOSITORY / "models/manifest.json").read_text())[0]
    items = [{**example, "name": name, "file": f"{name}.onnx"} for name in names]
    zoo_at(monkeypatch, folder, json.dumps(items))
    for name in names:
        touch(folder / f"{name}.onnx")


def test_a_name_may_lack_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources_at(monkeypatch, tmp_path, "gluon_a", "mx_b", "c", "gluon_c", "mx_c")
    for name, meant in {"a": "gluon_a", "b": "mx_b", "c": "c", "mx_c": "mx_c"}.items():
        assert found(name) == [(meant, tmp_path / f"{meant}.onnx")]
        assert entry(name).name == meant
    for name in ("x_b", "luon_a", "_b", "b.onnx", "A"):
        with refused(ModelError, f"'{name}'"):
            find_files(name)


def test_a_name_that_several_sources_have_is_ambiguous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources_at(monkeypatch, tmp_path, "gluon_a", "mx_a")
    for asked in (find_files, entry):
        with refused(ModelError, "'a'", "gluon_a", "mx_a"):
            asked("a")


def test_models_of_the_zoo_are_found_without_their_source() -> None:
    names = {each.name for each in entries()}
    for name in names:
        short = name.removeprefix("gluon_").removeprefix("mx_")
        twins = names & {f"gluon_{short}", f"mx_{short}"}
        if short not in names and len(twins) == 1:
            assert found(short) == found(name)


def test_a_file_is_called_after_its_stem_and_a_folder_is_all_its_models(tmp_path: Path) -> None:
    for name in ("b.onnx", "a.onnx", "notes.txt", "sub/c.onnx"):
        touch(tmp_path / name)
    assert found(str(tmp_path / "b.onnx")) == [("b", tmp_path / "b.onnx")]
    assert [name for name, _ in found(str(tmp_path))] == ["a", "b"]


def test_a_folder_of_folders_names_models_after_their_folder(tmp_path: Path) -> None:
    for name in ("b/model.onnx", "a/model.onnx", "c/one.onnx", "c/two.onnx", "d/e/deep.onnx"):
        touch(tmp_path / name)
    assert [name for name, _ in found(str(tmp_path))] == ["a", "b", "c/one", "c/two"]


def test_an_empty_name_is_not_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "a.onnx")
    monkeypatch.chdir(tmp_path)
    assert [name for name, _ in found(".")] == ["a"]
    with refused(ModelError):
        find_files("")


def test_what_holds_no_model_is_an_error(tmp_path: Path) -> None:
    """Neither a folder without one, nor a file of another kind."""
    for path in (tmp_path, touch(tmp_path / "weights.bin")):
        with refused(ModelError, path, ".onnx"):
            find_files(str(path))


def test_a_name_that_means_nothing_gets_an_answer_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for typed, answer in (
        ("resnet5O", "resnet50"),
        ("VGG19", "vgg19"),
        ("qqqq", f"{len([*entries(), *programs(), *decoders()])} models"),
        ("qqqq", "'bricks zoo list'"),
        ("no/such/model.onnx", "'no/such/model.onnx'"),
        ("resnet50.onnx", "'resnet50.onnx'"),
    ):
        with refused(ModelError, answer):
            find_files(typed)


def test_a_missing_manifest_and_a_missing_file_are_model_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_ZOO", str(tmp_path))
    with refused(ModelError, tmp_path / "manifest.json", "BRICKS_ZOO"):
        find_files("resnet50")
    zoo_at(monkeypatch, tmp_path, (REPOSITORY / "models/manifest.json").read_text())
    with refused(ModelError, "resnet50", tmp_path / "resnet50.onnx"):
        find_files("resnet50")
