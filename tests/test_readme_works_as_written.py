from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bricks.cli.main import run

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
CONSOLE = [
    line
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
]
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.mark.parametrize("line", CONSOLE)
def test_each_command(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(line)
    assert program == "bricks"
    assert run(arguments) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) >= 1
    # An environment is made once, and that takes so long that people are told.
    assert said.err == "" or arguments[:2] == ["backends", "install"]


def test_the_five_calls(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    assert len(PYTHON) == 1
    exec(compile(PYTHON[0], "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"^\d+ bricks, \d+ measured$", out, re.MULTILINE)
    assert re.search(r"^\d+\.\d\d ms, ratio \d\.\d{3}$", out, re.MULTILINE)
