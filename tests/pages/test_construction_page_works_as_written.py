from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from pages import RESEARCH, blocks, commands, slow_unless_changed

from bricks.cli.main import run

PAGE = RESEARCH / "construction.md"
(PYTHON,) = (block.text for block in blocks(PAGE) if block.language == "python")

pytestmark = slow_unless_changed(PAGE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("construction")
    rule = PYTHON.partition("\n\nestimates = ")[0]
    (folder / "rules.py").write_text(rule, encoding="utf-8")
    return folder


def test_each_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    for line in commands(PAGE):
        program, *arguments = shlex.split(line)
        assert program == "bricks"
        assert run([*arguments, "--runtime", "fake"]) == 0, line
        said = capsys.readouterr()
        assert "inception_v1" in said.out, line
        assert said.err == "", line


def test_the_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule forbids more than the first does, and nothing more is measured for it."""
    monkeypatch.chdir(folder)
    names: dict[str, dict[str, float]] = {}
    exec(compile(PYTHON.replace("threads=1", 'threads=1, runtime="fake"'), "page", "exec"), names)
    anything, *stricter = names["estimates"].values()
    assert anything < min(stricter)
