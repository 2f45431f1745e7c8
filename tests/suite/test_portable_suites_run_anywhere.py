"""A portable suite is measured by a Python with its runtime alone; its results come home."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import mlp, save
from refusals import refused

from bricks.cli import main
from bricks.errors import SuiteError
from bricks.store import Store
from bricks.suite.portable import (
    OLDEST,
    PortableContent,
    PortableVariant,
    RunResults,
    is_run,
    write_portable,
)
from bricks.suite.runner.run_log import RunLog

SUPPORT = Path(__file__).parents[1] / "support"
PATIENCE_S = 120


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A portable suite of a small ONNX model."""
    folder = tmp_path_factory.mktemp("portable")
    save(mlp(), folder, "mlp.onnx")
    words = ["--runtime", "onnxruntime", "--threads", "1", "--cache", str(folder / "cache")]
    made = ["generate", str(folder / "mlp.onnx"), "--portable", str(folder / "suite.pyz")]
    assert main.run([*made, *words]) == 0
    return folder / "suite.pyz"


def started(
    path: Path, *words: object, folder: Path, python_path: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a suite as another host would, in ``folder``."""
    environment = {**os.environ, "PYTHONPATH": python_path}
    return subprocess.run(
        [sys.executable, str(path), *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(suite: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the suite, measured in a process of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    done = started(suite, "--threads", 1, "--minutes", 1, "--name", "elsewhere", folder=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert "mlp: calls alone take" in done.stdout
    return folder / "results.jsonl"


def test_results_are_imported_and_predicted_from(here: Here, results: Path, suite: Path) -> None:
    imported = here("cache", "import", results, "--json", runtime=None)
    assert imported.status == 0
    assert imported.json["plans"] == 1
    again = here("cache", "import", results, "--json", runtime=None)
    assert again.json["rounds"] == 0
    model = suite.with_name("mlp.onnx")
    asked = here(
        "predict", model, "--on", "elsewhere", "--threads", 1, "--json", runtime="onnxruntime"
    )
    assert asked.status == 0, asked.err
    (row,) = asked.json["models"]
    assert row["measured_share"] == 1.0
    assert 0 < row["low_s"] <= row["estimate_s"] <= row["high_s"]


def test_a_second_run_goes_on_with_the_first(suite: Path, results: Path, tmp_path: Path) -> None:
    raw = results.read_bytes()
    half = raw[: len(raw) * 2 // 3]
    (tmp_path / "results.jsonl").write_bytes(half)
    words = ("--threads", 1, "--minutes", 1, "--name", "elsewhere")
    done = started(suite, *words, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    whole = (tmp_path / "results.jsonl").read_bytes()
    assert whole.startswith(half[: half.rfind(b"\n") + 1])
    assert {b["key"] for b in RunResults.read(tmp_path / "results.jsonl").of("brick")} == {
        b["key"] for b in RunResults.read(results).of("brick")
    }


def test_results_that_were_cut_off_are_read_up_to_there(results: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    raw = results.read_bytes()
    cut.write_bytes(raw[:-20])
    assert is_run(cut)
    assert len(RunResults.read(cut).lines) == len(RunResults.read(results).lines) - 1


def test_results_that_were_changed_are_refused(here: Here, results: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    rounds = [n for n, line in enumerate(lines) if line.startswith(b'["round"')]
    lines[rounds[0]] = lines[rounds[0]].replace(b"0.0", b"0.1", 1)
    changed.write_bytes(b"".join(lines))
    with refused(SuiteError, str(changed), "nothing was imported"):
        RunResults.read(changed)
    assert here("cache", "import", changed, runtime=None).status == 1
    with Store.open(here.cache) as store:
        assert store.contents.stats().measurements == 0


def test_a_suite_with_altered_bytes_is_refused(suite: Path, tmp_path: Path) -> None:
    altered = tmp_path / "altered.pyz"
    with zipfile.ZipFile(suite) as old, zipfile.ZipFile(altered, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.startswith("pieces/"):
                content = content.replace(b"0", b"1", 1)
            new.writestr(name, content)
    done = started(altered, folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pieces/" in line
    assert not (tmp_path / "results.jsonl").exists()


def test_results_of_another_suite_are_left_alone(suite: Path, tmp_path: Path) -> None:
    out = tmp_path / "mine.jsonl"
    out.write_text("of mine\n", encoding="utf-8")
    done = started(suite, "--out", out, folder=tmp_path)
    assert done.returncode == 1
    assert str(out) in done.stderr
    assert out.read_text(encoding="utf-8") == "of mine\n"


@pytest.mark.parametrize("words", [("--minutes", "0"), ("--threads", "-1"), ("--device", "tpu")])
def test_mistakes_on_the_command_line_are_wrong_usage(
    suite: Path, tmp_path: Path, words: Sequence[str]
) -> None:
    assert started(suite, *words, folder=tmp_path).returncode == 2


def test_the_same_models_give_the_same_portable_suite(
    here: Here, suite: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.pyz"
    model = suite.with_name("mlp.onnx")
    here("generate", model, "--portable", again, "--threads", 1, runtime="onnxruntime")
    assert again.read_bytes() == suite.read_bytes()


def modules_of(suite: Path) -> Mapping[str, ast.Module]:
    with zipfile.ZipFile(suite) as file:
        names = [name for name in file.namelist() if name.endswith(".py")]
        sources = {n: file.read(n).decode() for n in names if not n.startswith("code/")}
    return {n: ast.parse(source, feature_version=OLDEST) for n, source in sources.items()}


def test_its_modules_need_nothing_but_the_runtime_and_numpy(suite: Path) -> None:
    modules = modules_of(suite)
    foreign = set()
    for tree in modules.values():
        for node in tree.body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            foreign |= {name.partition(".")[0] for name in names}
    assert foreign - sys.stdlib_module_names == {"bricks", "numpy", "onnxruntime"}


def test_its_modules_call_nothing_newer_than_python_3_9(suite: Path) -> None:
    new = {"dataclass": "slots", "zip": "strict", "bisect_right": "key"}
    for name, tree in modules_of(suite).items():
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
        used = [
            keyword.arg
            for call in calls
            for keyword in call.keywords
            if isinstance(call.func, ast.Name) and (keyword.arg or "**") == new.get(call.func.id)
        ]
        assert not used, name
        kinds = [
            call.args[1] for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == "isinstance"
        ]  # fmt: skip
        assert not any(isinstance(kind, ast.BinOp) for kind in kinds), name


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--out", "a.zip", "--portable", "a.pyz"),
        ("--portable", "a.zip"),
        ("--portable", "a.pyz", "--private"),
        ("--out", "a.zip", "--code"),
    ],
)
def test_options_that_contradict_each_other_are_wrong_usage(
    here: Here, suite: Path, words: Sequence[str]
) -> None:
    assert here("generate", suite.with_name("mlp.onnx"), *words).status == 2


def test_a_runtime_without_portable_suites_says_so(here: Here, suite: Path) -> None:
    done = here("generate", suite.with_name("mlp.onnx"), "--portable", "a.pyz", runtime="fake")
    assert done.status == 2
    assert "fake" in done.complaint


def made_suite(path: Path, pieces: Mapping[str, str], **program: Any) -> Path:
    """A suite of the support's runtime, each brick in a group of its own."""
    groups = [
        {"keys": [key], "rounds": 2, "bytes": 0, "steps": [{"key": key, "timed": True}]}
        for key in pieces
    ]
    programs = [{
        "name": "program", "digest": "m1-0", "plan": "plans/m1-0.json",
        "counts": dict.fromkeys(pieces, 1), "code": None, **program,
    }]  # fmt: skip
    runtime = {"backend": "made", "brick_optimization": "none", "optimization": "all"}
    content = PortableContent(
        facts={
            "runner": "dying_runtime:DyingRuntime", "default": "none", "protocol": 4,
            "runtime": runtime, "environment": {},
        },
        variants={"none": PortableVariant(programs, groups)},
        records={key: {"key": key} for key in pieces},
        pieces=pieces,
        plans={"m1-0": {"plan": {"digest": "m1-0", "occurrences": [[key] for key in pieces]}}},
        modules=["bricks.backends.portable"],
    )  # fmt: skip
    write_portable(path, content, package="1")
    return path


def measured(path: Path) -> tuple[set[str], dict[str, str]]:
    """The bricks with rounds in results, and those that failed, with reasons."""
    found = RunResults.read(path)
    rounds = {each["brick"] for each in found.of("round")}
    return rounds, {each["brick"]: each["reason"] for each in found.of("failure")}


def test_what_ends_the_process_or_the_memory_is_one_line_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    pieces = {"a": "fine", "b": "deadly", "c": "large", "d": "wrong", "e": "fine"}
    suite = made_suite(tmp_path / "made.pyz", pieces)
    done = started(suite, "--minutes", 1, folder=tmp_path, python_path=str(SUPPORT))
    assert (done.returncode, done.stderr) == (0, "")
    rounds, failures = measured(tmp_path / "results.jsonl")
    assert rounds == {"a", "e"}
    assert set(failures) == {"b", "c", "d"}
    assert "SIGSEGV" in failures["b"]
    assert "memory" in failures["c"]
    for key in failures:
        assert sum(line.startswith(f"{key}:") for line in done.stdout.splitlines()) == 1


def test_code_that_raises_is_one_line_and_bricks_are_measured(tmp_path: Path) -> None:
    code = {"entry": "step.py:step", "options": {}}
    suite = made_suite(tmp_path / "made.pyz", {"a": "fine"}, code=code)
    done = started(suite, "--minutes", 1, folder=tmp_path, python_path=str(SUPPORT))
    assert done.returncode == 0
    rounds, failures = measured(tmp_path / "results.jsonl")
    assert (rounds, failures) == ({"a"}, {"m1-0": "its code is wrong"})


def test_a_python_without_the_runtime_is_one_line(tmp_path: Path) -> None:
    suite = made_suite(tmp_path / "made.pyz", {"a": "fine"})
    done = started(suite, folder=tmp_path)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "dying_runtime" in line


def test_results_whose_keys_are_not_of_their_content_are_refused(
    here: Here, results: Path, tmp_path: Path
) -> None:
    head = json.loads(results.read_bytes().splitlines()[0])[1]
    head["system"]["identity"]["cpu"] = "another"
    forged = tmp_path / "forged.jsonl"
    RunLog(forged, head).close()
    done = here("cache", "import", forged, runtime=None)
    assert done.status == 1
    assert str(forged) in done.complaint
