import ast
import json
import tomllib
from pathlib import Path

import pytest
from refusals import refused
from zoo_folders import CLASSIFIERS, zoo_at

from bricks.errors import ModelError
from bricks.zoo import entries

REPOSITORY = Path(__file__).parents[2]


def test_the_zoo_has_the_classifiers_that_users_know() -> None:
    assert set(CLASSIFIERS) <= {entry.name for entry in entries()}
    assert [entry.name for entry in entries()] == sorted(entry.name for entry in entries())


def test_an_entry_is_written_as_the_manifest_has_it() -> None:
    manifest = json.loads((REPOSITORY / "models/manifest.json").read_text())
    assert [entry.to_json() for entry in entries()] == manifest


def test_a_damaged_manifest_is_a_model_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = (("[{", ()), ("{}", ()), ('[{"name": "x"}]', ("version",)), ("[1]", ()), ("3", ()))
    for manifest, named in damaged:
        zoo_at(monkeypatch, tmp_path, manifest)
        with refused(ModelError, tmp_path / "manifest.json", *named):
            entries()


def test_finding_a_model_does_not_need_onnx() -> None:
    for path in (REPOSITORY / "bricks/zoo").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert "onnx" not in {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] != "onnx"


def test_an_installed_package_has_the_zoo_beside_the_catalogue() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["sources"]["models"] == "bricks/zoo/models"
    assert "models" in wheel["only-include"]
