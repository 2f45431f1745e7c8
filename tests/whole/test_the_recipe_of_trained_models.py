"""The recipe of trained models is complete, and only the archives that it names are taken."""

import io
import json
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

import exports
import pytest
import wild
from refusals import refused

from bricks.zoo import entries


def test_it_names_enough_packages_models_and_exporters_each_with_a_digest() -> None:
    models = wild.catalogue()
    assert len(models) == len({model.name for model in models}) >= 25
    assert len({model.package for model in models}) >= 15
    exporters = {model.exporter.split()[0] for model in models} - {"not"}
    assert len(exporters) >= 6
    for package in json.loads(wild.RECIPE.read_text())["packages"]:
        digests = [package["sha256"], *(model["sha256"] for model in package["models"])]
        assert all(len(digest) == 64 for digest in digests)


def recipe_of(data: bytes, archive: bytes, name: str) -> dict[str, object]:
    model = {"name": "tiny", "member": "p/tiny.onnx", "sha256": sha256(data).hexdigest()}
    package = {"package": "p", "version": "1", "archive": name, "models": [model]}
    return {"packages": [package | {"sha256": sha256(archive).hexdigest()}]}


def packed(data: bytes, kind: str) -> bytes:
    out = io.BytesIO()
    if kind == "whl":
        with zipfile.ZipFile(out, "w") as archive:
            archive.writestr("p/tiny.onnx", data)
    else:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            member = tarfile.TarInfo("p/tiny.onnx")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_models_are_taken_out_of_archives_that_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    archive = packed(b"model", kind)
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps(recipe_of(b"model", archive, f"p.{kind}")))
    monkeypatch.setattr(wild, "RECIPE", recipe)
    (tmp_path / "archives").mkdir()
    (tmp_path / "archives" / f"p.{kind}").write_bytes(archive)
    wild.fetch(tmp_path)
    assert (tmp_path / "tiny.onnx").read_bytes() == b"model"

    other = packed(b"other", kind)
    (tmp_path / "archives" / f"p.{kind}").write_bytes(other)
    digests = [sha256(each).hexdigest() for each in (other, archive)]
    with refused(SystemExit, f"p.{kind}", *digests):
        wild.fetch(tmp_path)


def test_the_page_shows_what_was_found() -> None:
    rows = json.loads(wild.FOUND.read_text(encoding="utf-8"))["models"]
    assert {model.name for model in wild.catalogue()} == {row["name"] for row in rows}
    assert "\n".join(wild.section()) in wild.PAGE.read_text(encoding="utf-8")


def test_the_page_shows_how_exported_models_compared() -> None:
    rows = json.loads(exports.FOUND.read_text(encoding="utf-8"))["models"]
    assert len(rows) >= 13
    assert "\n".join(exports.section()) in wild.PAGE.read_text(encoding="utf-8")
    assert not {row["name"] for row in rows} & {entry.name for entry in entries()}


def test_a_failed_comparison_shows_its_error_in_the_table() -> None:
    row = {"1 threads": {"error": "no such kernel"}, "2 threads": {"error": "no such kernel"}}
    assert wild.cells(row) == ["no such kernel", "–"] * 2
