"""A suite is all that measuring models elsewhere needs: the same bytes each time, no weights."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from commands import Here
from factories import conv_net, mlp, save
from onnx import numpy_helper
from refusals import refused

import bricks.session.workspace
from bricks import read_suite
from bricks.cli import main
from bricks.decompose.identity import key_of
from bricks.errors import SuiteError
from bricks.graph.types import TensorType
from bricks.reading.read import read_model
from bricks.suite import archive
from bricks.system import fingerprint


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zoo")
    save(conv_net(), folder, "conv.onnx")
    save(mlp(), folder, "mlp.onnx")
    return folder


@pytest.fixture(scope="module")
def suite(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is generated of the models, on the fake runtime."""
    folder = tmp_path_factory.mktemp("suite")
    words = ["--runtime", "fake", "--cache", f"{folder / 'cache'}"]
    assert main.run(["generate", str(models), "--out", f"{folder / 'suite.zip'}", *words]) == 0
    return folder / "suite.zip"


def generated(here: Here, path: Path, *models: object, runtime: str = "fake") -> Path:
    done = here("generate", *models, "--out", path, runtime=runtime)
    assert (done.status, done.err) == (0, "")
    return path


def content_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


def test_the_same_models_give_the_same_bytes(
    here: Here, models: Path, suite: Path, tmp_path: Path
) -> None:
    conv, mlp_file = models / "conv.onnx", models / "mlp.onnx"
    for n, order in enumerate(([models], [mlp_file, conv], [conv, models])):
        again = generated(here, tmp_path / f"{n}.zip", *order)
        assert again.read_bytes() == suite.read_bytes()
    other = generated(here, tmp_path / "other.zip", conv)
    assert other.read_bytes() != suite.read_bytes()


def test_what_the_cache_met_before_does_not_matter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models of several versions of the file format have the same bricks."""
    files = []
    for name, blocks, version in (("old", 2, 8), ("new", 4, 10)):
        net = conv_net(blocks=blocks)
        net.ir_version = version
        files.append(save(net, tmp_path, f"{name}.onnx"))
    archives = []
    for n, order in enumerate((files, files[::-1])):
        here = Here(tmp_path / f"cache{n}", capsys)
        for file in order:
            assert here("decompose", file).status == 0
        archives.append(generated(here, tmp_path / f"{n}.zip", *files).read_bytes())
        private = tmp_path / f"private{n}.zip"
        assert here("generate", *files, "--private", "--out", private).status == 0
        archives.append(private.read_bytes())
    assert archives[0] == archives[2]
    assert archives[1] == archives[3]


def test_it_says_what_it_holds(here: Here, models: Path, tmp_path: Path) -> None:
    path = tmp_path / "suite.zip"
    done = here("generate", models, "--out", path, "--json")
    facts = done.json
    union = here("decompose", models, "--json").json["union"]
    assert (facts["bricks"], facts["occurrences"]) == (union["bricks"], union["occurrences"])
    assert [m["model"] for m in facts["models"]] == ["conv", "mlp"]
    assert facts["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    files = content_of(path)
    manifest = json.loads(files["manifest.json"])
    assert manifest["format"] == {"name": "bricks-suite", "version": 1, "package": "0.1.0"}
    assert [m["name"] for m in manifest["models"]] == ["conv", "mlp"]
    assert manifest["files"] == {
        name: hashlib.sha256(content).hexdigest()
        for name, content in sorted(files.items())
        if name != "manifest.json"
    }
    assert f"{union['bricks']} different bricks" in files["README.md"].decode()
    assert json.loads(files["bricks.json"]).keys() == {
        name.removeprefix("bricks/").removesuffix(".onnx")
        for name in files
        if name.startswith("bricks/")
    }


def test_each_brick_is_a_network_by_itself(suite: Path) -> None:
    bricks = {n: c for n, c in content_of(suite).items() if n.startswith("bricks/")}
    assert len(bricks) > 5
    for name, content in bricks.items():
        assert f"bricks/{key_of(content)}.onnx" == name
        proto = onnx.ModelProto.FromString(content)
        assert proto.graph.node
        assert proto.graph.output


def test_no_weight_leaves(here: Here, tmp_path: Path) -> None:
    """Neither its values, nor where they lie."""
    marked = np.arange(4096, dtype=np.float32).reshape(64, 64) + 0.123
    net = mlp()
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 64])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(marked, "w")],
    )
    net.graph.CopyFrom(graph)
    folder = tmp_path / "secret_folder"
    folder.mkdir()
    onnx.save(
        net, folder / "marked.onnx", save_as_external_data=True, location="secret_weights.bin",
        size_threshold=0,
    )  # fmt: skip
    path = generated(here, tmp_path / "suite.zip", folder / "marked.onnx")
    for content in content_of(path).values():
        assert b"secret" not in content
        assert marked[0, :4].tobytes() not in content
    assert path.stat().st_size < marked.nbytes


def test_elsewhere_it_is_measured_as_the_models_would_be(
    here: Here,
    models: Path,
    suite: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From the suite to the estimate at home, with nothing but the archive and one file back."""
    home = fingerprint()
    there = replace(home, name="there", identity={**home.identity, "logical_cpus": 97})
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: there)
    other = Here(tmp_path / "elsewhere", capsys)
    done = other("measure", suite, "--json")
    assert done.status == 0
    assert [m["model"] for m in done.json["models"]] == ["conv", "mlp"]
    estimates = other("predict", suite, "--no-measure", "--json").json["models"]
    assert other("cache", "export", tmp_path / "back.jsonl", runtime=None).status == 0
    monkeypatch.setattr(bricks.session.workspace, "fingerprint", lambda: home)
    assert here("cache", "import", tmp_path / "back.jsonl", runtime=None).status == 0
    rows = here("predict", models, "--on", "there", "--json").json["models"]
    assert rows == estimates
    assert all(row["measured_share"] == 1.0 for row in rows)


def test_the_models_in_it_are_those_that_went_in(suite: Path, models: Path) -> None:
    contents = read_suite(suite)
    expected = [read_model(models / f"{name}.onnx") for name in ("conv", "mlp")]
    assert [(m.name, m.digest, m.inputs) for m in contents.models] == [
        (m.name, m.digest, m.inputs) for m in expected
    ]
    assert contents.granularity == "executed"


def test_shapes_and_values_that_were_given_are_fixed_in_it(
    here: Here, models: Path, tmp_path: Path
) -> None:
    path = tmp_path / "suite.zip"
    words = (models / "mlp.onnx", "--batch", 3, "--out", path)
    assert here("generate", *words).status == 0
    (model,) = read_suite(path).models
    shapes = [type_.shape for _, type_ in model.inputs if isinstance(type_, TensorType)]
    assert [shape[0] for shape in shapes] == [3]
    done = here("measure", path, "--batch", 2)
    assert done.status == 2
    assert "are fixed: leave out --batch" in done.complaint


def test_it_is_cut_as_it_was_meant(here: Here, models: Path, tmp_path: Path) -> None:
    path = tmp_path / "suite.zip"
    model = models / "mlp.onnx"
    assert here("generate", model, "--granularity", 3, "--out", path).status == 0
    refused = here("measure", path)
    assert refused.status == 2
    assert "--granularity 3" in refused.complaint
    done = here("measure", path, "--granularity", 3, "--json")
    known = here("decompose", model, "--granularity", 3, "--json").json["union"]
    assert (done.status, done.json["bricks"]) == (0, known["bricks"])
    assert known != here("decompose", model, "--json").json["union"]


def test_models_that_cannot_be_read_do_not_stop_the_others(
    here: Here, models: Path, tmp_path: Path
) -> None:
    path = tmp_path / "suite.zip"
    done = here("generate", models / "mlp.onnx", tmp_path / "none.onnx", "--out", path, "--json")
    assert done.status == 1
    assert [bool(row["error"]) for row in done.json["models"]] == [False, True]
    assert len(read_suite(path).models) == 1
    done = here("generate", tmp_path / "none.onnx", "--out", tmp_path / "no.zip")
    assert done.status == 1
    assert not (tmp_path / "no.zip").exists()


def refusal(here: Here, path: Path) -> str:
    """The line that measuring a suite is refused with."""
    done = here("measure", path)
    assert done.status == 1
    return done.complaint


def packed(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


@pytest.fixture
def other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Another cache, in which nothing of a suite that is refused is kept."""
    here = Here(tmp_path / "other", capsys)
    yield here
    stats = here("cache", "stats", "--json", runtime=None).json
    assert (stats["measurements"], stats["bricks"], stats["plans"]) == (0, 0, 0)


def test_an_archive_that_is_cut_off_is_refused(other: Here, suite: Path, tmp_path: Path) -> None:
    whole, cut = suite.read_bytes(), tmp_path / "cut.zip"
    for size in (0, 1, 30, len(whole) // 2, len(whole) - 1):
        cut.write_bytes(whole[:size])
        assert "cut.zip is cut off, or no suite" in refusal(other, cut), size


def changed(name: str, change: Callable[[bytes], bytes | None]) -> Callable[..., dict[str, bytes]]:
    def of(files: dict[str, bytes]) -> dict[str, bytes]:
        found = next(each for each in sorted(files) if each.startswith(name))
        content = change(files.pop(found))
        return files if content is None else {**files, found: content}

    return of


def told(change: Callable[[dict[str, Any]], Any]) -> Callable[..., dict[str, bytes]]:
    def of(files: dict[str, bytes]) -> dict[str, bytes]:
        manifest = json.loads(files["manifest.json"])
        change(manifest)
        return {**files, "manifest.json": json.dumps(manifest).encode()}

    return of


def swapped(files: dict[str, bytes]) -> dict[str, bytes]:
    """Two models, each under the digest of the other, with digests of files that fit."""
    one, two = sorted(name for name in files if name.startswith("models/"))
    files = {**files, one: files[two], two: files[one]}
    manifest = json.loads(files["manifest.json"])
    digests = manifest["files"]
    digests[one], digests[two] = digests[two], digests[one]
    return {**files, "manifest.json": json.dumps(manifest).encode()}


ALTERED: dict[str, tuple[Callable[[dict[str, bytes]], dict[str, bytes]], str]] = {
    "a model": (changed("models/", lambda c: c[:-1] + b"\x00"), "not as it was written"),
    "a missing model": (changed("models/", lambda c: None), "other files than its manifest"),
    "a file more": (lambda f: {**f, "more.txt": b"x"}, "other files than its manifest says (more"),
    "no manifest": (changed("manifest", lambda c: None), "manifest.json is missing"),
    "a manifest of no JSON": (changed("manifest", lambda c: b"{"), "manifest cannot be read"),
    "a manifest of no object": (changed("manifest", lambda c: b"[]"), "manifest cannot be read"),
    "a later version": (told(lambda m: m["format"].update(version=2)), "has version 2"),
    "another format": (told(lambda m: m["format"].update(name="x")), "is no suite of bricks"),
    "no granularity": (told(lambda m: m.pop("granularity")), "manifest cannot be read"),
    "a model of another digest": (swapped, "not the one that its digest stands for"),
    "an unknown model": (told(lambda m: m["models"][0].update(digest="m1-0")), "is missing"),
}


def test_an_archive_that_was_altered_is_refused(other: Here, suite: Path, tmp_path: Path) -> None:
    for name, (change, problem) in ALTERED.items():
        path = packed(tmp_path / "altered.zip", change(content_of(suite)))
        line = refusal(other, path)
        assert "altered.zip" in line, name
        assert problem in line, name


def test_one_that_is_packed_anew_holds_the_same(suite: Path, tmp_path: Path) -> None:
    """So what the others are refused for is what was changed."""
    repacked, kept = read_suite(packed(tmp_path / "anew.zip", content_of(suite))), read_suite(suite)
    assert [model.digest for model in repacked.models] == [model.digest for model in kept.models]
    assert (len(repacked.models), repacked.bricks, repacked.granularity) == (
        2,
        kept.bricks,
        "executed",
    )


def test_names_that_lead_out_are_refused(other: Here, suite: Path, tmp_path: Path) -> None:
    for name in ("../evil", "/etc/evil", "a/../../evil", "a\\evil", "c:evil", "a//b"):
        files = content_of(suite)
        manifest = json.loads(files["manifest.json"])
        manifest["files"][name] = hashlib.sha256(b"x").hexdigest()
        files = {**files, name: b"x", "manifest.json": json.dumps(manifest).encode()}
        line = refusal(other, packed(tmp_path / "out.zip", files))
        assert "not in the archive's own folder" in line, name
    assert not list(tmp_path.parent.rglob("evil"))


def test_a_bomb_is_refused_before_it_is_unpacked(
    other: Here, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert archive.MAX_FILE_BYTES <= 256 << 20
    monkeypatch.setattr(archive, "MAX_FILE_BYTES", 2 << 20)
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("manifest.json", bytes(3 << 20))
    assert path.stat().st_size < 1 << 14
    with monkeypatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "read", lambda *_: pytest.fail("it was read"))
        assert "bomb.zip holds 1 files of 3 MiB" in refusal(other, path)
    assert len(read_suite(suite).models) == 2
    monkeypatch.setattr(archive, "MAX_FILES", 3)
    with refused(SuiteError, suite):
        read_suite(suite)


def test_what_is_no_archive_is_refused(other: Here, tmp_path: Path) -> None:
    text, folder = tmp_path / "text.zip", tmp_path / "folder.zip"
    text.write_text("PK is not enough")
    folder.mkdir()
    assert "is cut off, or no suite" in refusal(other, text)
    assert "No such file" in refusal(other, tmp_path / "missing.zip")
    assert "directory" in refusal(other, folder)


def test_nothing_is_left_of_a_suite_that_cannot_be_written(
    here: Here, models: Path, tmp_path: Path
) -> None:
    before = sorted(tmp_path.iterdir())
    done = here("generate", models, "--out", tmp_path / "none" / "suite.zip")
    assert done.status == 1
    assert "cannot be written" in done.complaint
    assert sorted({*tmp_path.iterdir()} - {here.cache}) == sorted({*before} - {here.cache})


@pytest.mark.slow
def test_what_is_executed_is_decided_where_it_is_measured(
    here: Here, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The models are fixed; fusions and layouts are those of the target, here another one."""
    path = tmp_path / "suite.zip"
    words = ("squeezenet", "--threads", 1)
    done = here("generate", *words, "--out", path, runtime="onnxruntime")
    assert done.status == 0
    at_home = operators(path)
    assert any("nchwc" in name for name in at_home)
    other = Here(tmp_path / "elsewhere", capsys)
    plain = ("--optimization", "extended", "--threads", 1)
    done = other("measure", path, *plain, "--json", runtime="onnxruntime")
    assert (done.status, done.json["runtime"]["optimization"]) == (0, "extended")
    again = tmp_path / "again.zip"
    assert other("generate", path, *plain, "--out", again, runtime="onnxruntime").status == 0
    assert not any("nchwc" in name for name in operators(again))
    assert "FusedConv" in " ".join(operators(again))
    models = [{n: c for n, c in content_of(p).items() if "models/" in n} for p in (path, again)]
    assert models[0] == models[1]
    estimates = [
        here("predict", path, *more, "--threads", 1, "--json", runtime="onnxruntime").json
        for more in ((), ("--optimization", "extended"))
    ]
    known = [e["models"][0] for e in estimates]
    assert all(each["measured_share"] == 1.0 for each in known)
    assert known[0]["bricks"] != known[1]["bricks"]


def operators(path: Path) -> set[str]:
    facts = json.loads(content_of(path)["bricks.json"])
    return {name for each in facts.values() for name in each["operators"]}


def test_a_runtime_without_levels_refuses_them(here: Here, models: Path) -> None:
    done = here("decompose", models, "--optimization", "extended")
    assert done.status == 2
    assert "runtime fake has no optimisation 'extended': give one of all" in done.complaint


def test_targets_of_before_there_was_a_choice_keep_their_keys() -> None:
    usual = bricks.Runtime("onnxruntime", "1.31.1", "CPUExecutionProvider", 2, "none")
    assert "optimization" not in usual.to_json()
    other = replace(usual, optimization="basic")
    assert other.to_json() == {**usual.to_json(), "optimization": "basic"}
    system = bricks.System("lab", {"cpu": "name"}, {})
    assert bricks.Target(system, usual).key == "t1-e1e2068b3f03d519"
    assert bricks.Target(system, other).key != bricks.Target(system, usual).key
