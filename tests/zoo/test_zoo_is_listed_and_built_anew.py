"""`bricks zoo list` and `zoo build`, on a zoo of a few models and recipes of a few lines."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from commands import CommandResult

from bricks.cli import main
from bricks.zoo import decoders, entries, programs
from bricks.zoo.recipes import PYTHONS, environment_of, recipes

MODELS = Path(__file__).parents[2] / "models"
PAPER_TASKS = {
    "image classification", "image processing", "object detection", "regression",
    "semantic segmentation",
}  # fmt: skip
SCRIPT = """
import hashlib, json, pathlib, sys
out = pathlib.Path(sys.argv[2])
for name in sys.argv[3:] or ["squeezenet"]:
    {body}
"""
COPIES = """
    content = pathlib.Path({source!r}).read_bytes() + {more!r}
    entry = {entry!r} | {{"name": name, "version": {version}}}
    (out / (name + ".onnx")).write_bytes(content)
    entry["file"], entry["sha256"] = name + ".onnx", hashlib.sha256(content).hexdigest()
    (out / (name + ".json")).write_text(json.dumps(entry))
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*words: object) -> CommandResult:
        capsys.readouterr()
        status = main.run([str(word) for word in words])
        return CommandResult(status, *capsys.readouterr())

    return call


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one model, with a recipe that copies it."""
    folder = tmp_path / "zoo"
    (folder / "recipes").mkdir(parents=True)
    shutil.copy(MODELS / "squeezenet.onnx", folder)
    manifest = [e.to_json() for e in entries() if e.name == "squeezenet"]
    manifest[0]["recipe"] = "onnx_copy"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    monkeypatch.setenv("BRICKS_ZOO", str(folder))
    write_recipe(folder)
    return folder


def write_recipe(folder: Path, more: bytes = b"", version: int = 1, body: str = COPIES) -> None:
    source = str(MODELS / "squeezenet.onnx")
    [known] = [e.to_json() for e in entries() if e.name == "squeezenet"]
    filled = body.format(source=source, more=more, version=version, entry=known)
    (folder / "recipes" / "onnx_copy.py").write_text(SCRIPT.format(body=filled.strip()))


def test_the_zoo_stands_for_the_paper_and_for_what_came_after() -> None:
    zoo = entries()
    frameworks, tasks = Counter(e.framework for e in zoo), Counter(e.task for e in zoo)
    assert len(zoo) >= 100
    assert frameworks["mxnet"] >= 50 and frameworks["pytorch"] >= 25
    paper = Counter(e.task for e in zoo if e.framework == "mxnet")
    assert set(paper) == PAPER_TASKS and min(paper.values()) >= 8
    assert tasks["text"] and tasks["speech"]
    assert sum(e.path.stat().st_size for e in zoo) <= 40_000_000
    assert all(e.flops is not None and e.flops > 0 for e in zoo)


def test_every_recipe_that_the_manifest_names_is_there_with_what_it_runs_in() -> None:
    named = {entry.recipe for entry in (*entries(), *decoders())}
    assert named == set(recipes(MODELS))
    here = {"onnx_light", "onnx_decoders"}
    for recipe in named - here:
        made = environment_of(MODELS, recipe)
        assert made is not None
        pins = [line for line in made.lock.read_text().splitlines() if line and line[0] not in " #"]
        assert all("==" in line for line in pins)
        assert "--hash=sha256:" in made.lock.read_text() and "index" not in made.lock.read_text()
    assert all(environment_of(MODELS, recipe) is None for recipe in here)


def test_the_list_names_every_model(run: Any) -> None:
    shown = run("zoo", "list")
    assert shown.status == 0
    assert all(entry.name in shown.out for entry in entries())
    listed = run("zoo", "list", "--json").json
    zoo = sorted([*entries(), *programs(), *decoders()], key=lambda entry: entry.name)
    assert listed == {
        "models": [{**entry.to_json(), "kind": entry.kind, "code": entry.code} for entry in zoo]
    }


def test_programs_are_listed_with_what_a_run_of_them_is(run: Any) -> None:
    listed = run("zoo", "list", "--framework", "pytorch", "--json").json["models"]
    kinds = {model["name"]: model["kind"] for model in listed}
    assert kinds["torch_resnet44"] == kinds["albert"] == "inference"
    assert kinds["torch_resnet44_training"] == "training step"
    assert Counter(entry.kind for entry in programs())["training step"] >= 20
    for entry in programs():
        assert entry.code is not None
        file, _, function = entry.code.partition(":")
        assert f"def {function}(batch: int" in (MODELS / file).read_text(encoding="utf-8")
        assert hashlib.sha256(entry.path.read_bytes()).hexdigest() == entry.sha256


def test_a_program_is_built_by_no_recipe(run: Any) -> None:
    refused = run("zoo", "build", "torch_vit")
    assert refused.status == 2
    assert "torch_vit is recorded from torch/vision_transformers.py:vit" in refused.complaint


def test_the_list_can_be_narrowed(run: Any) -> None:
    listed = run("zoo", "list", "--task", "object detection", "--framework", "mxnet", "--json").json
    assert {(m["task"], m["framework"]) for m in listed["models"]} == {
        ("object detection", "mxnet")
    }
    wrong = run("zoo", "list", "--task", "cooking")
    assert wrong.status == 2
    assert "'cooking' fits no model: choose one of graphs, image classification," in wrong.complaint


def test_a_model_is_built_anew_to_the_same_bytes(run: Any, tmp_path: Path) -> None:
    built = run("zoo", "build", "squeezenet", "--out", tmp_path, "--json")
    assert built.status == 0
    [row] = built.json["models"]
    assert (row["same"], row["recipe"], row["error"]) == (True, "onnx_light", None)
    content = (tmp_path / "squeezenet.onnx").read_bytes()
    assert hashlib.sha256(content).hexdigest() == row["sha256"] == row["expected_sha256"]
    [shipped] = [e.to_json() for e in entries() if e.name == "squeezenet"]
    assert json.loads((tmp_path / "manifest.json").read_text()) == [shipped]


def test_a_file_that_differs_is_refused_unless_its_version_is_newer(run: Any, zoo: Path) -> None:
    before = (zoo / "manifest.json").read_bytes()
    write_recipe(zoo, more=b"\x32\x00")  # an empty doc_string
    refused = run("zoo", "build", "squeezenet")
    assert refused.status == 1
    assert "is not the file of the manifest" in refused.err
    assert (zoo / "manifest.json").read_bytes() == before
    assert (zoo / "squeezenet.onnx").read_bytes() == (MODELS / "squeezenet.onnx").read_bytes()
    write_recipe(zoo, more=b"\x32\x00", version=2)
    assert run("zoo", "build", "squeezenet").status == 0
    [entry] = json.loads((zoo / "manifest.json").read_text())
    assert (entry["version"], entry["recipe"]) == (2, "onnx_copy")
    assert (zoo / "squeezenet.onnx").read_bytes().endswith(b"\x32\x00")


def test_a_recipe_adds_models_that_are_new(run: Any, zoo: Path, tmp_path: Path) -> None:
    body = COPIES.replace("name = name", "name").replace('"name": name', '"name": name')
    write_recipe(zoo, body='name = "another"\n' + body)
    built = run("zoo", "build", "--recipe", "onnx_copy", "--json")
    assert built.status == 0
    assert [(m["name"], m["same"]) for m in built.json["models"]] == [("another", False)]
    names = [entry["name"] for entry in json.loads((zoo / "manifest.json").read_text())]
    assert names == ["another", "squeezenet"]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('(out / (name + ".json")).write_text(\'{"name": "squeezenet", "error": "no\\\\nway"}\')',
         "squeezenet: no way"),
        ('raise KeyError("nothing of the kind")',
         "squeezenet: the recipe 'onnx_copy' failed: KeyError: 'nothing of the kind'"),
    ],
)  # fmt: skip
def test_a_recipe_that_fails_is_one_line(run: Any, zoo: Path, body: str, reason: str) -> None:
    (zoo / "recipes" / "onnx_copy.py").write_text(SCRIPT.format(body=body))
    failed = run("zoo", "build", "squeezenet")
    assert failed.status == 1
    assert failed.err.splitlines()[-1] == f"bricks: {reason}"


@pytest.mark.parametrize(
    ("words", "status", "answer"),
    [
        (["squeezenett"], 1, "no zoo model is called 'squeezenett': did you mean squeezenet?"),
        ([], 2, "name models of the zoo, or give --all, or --recipe RECIPE"),
        (["--recipe", "onnx_none"], 1, "there is no recipe 'onnx_none': did you mean onnx_copy?"),
    ],
)
def test_what_cannot_be_meant_is_one_line(
    run: Any, zoo: Path, words: list[str], status: int, answer: str
) -> None:
    outcome = run("zoo", "build", *words)
    assert outcome.status == status
    assert answer in outcome.complaint


def test_an_installed_zoo_has_no_recipes(run: Any, zoo: Path) -> None:
    shutil.rmtree(zoo / "recipes")
    outcome = run("zoo", "build", "squeezenet")
    assert outcome.status == 1
    assert "they are in the source repository only" in outcome.complaint


def test_a_python_that_is_not_there_is_one_line(
    run: Any, zoo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (zoo / "recipes" / "onnx_copy.py").rename(zoo / "recipes" / "mxnet_copy.py")
    (zoo / "recipes" / "requirements-mxnet.lock").write_text("")
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setitem(PYTHONS, "mxnet", "3.4")
    outcome = run("zoo", "build", "--recipe", "mxnet_copy")
    assert outcome.status == 1
    assert "needs Python 3.4, and there is no python3.4 on the path" in outcome.err
