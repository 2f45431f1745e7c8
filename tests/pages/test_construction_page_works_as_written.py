from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bricks.cli.main import run

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "construction.md").read_text(encoding="utf-8")
CONSOLE = [
    line
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]
(PYTHON,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("construction")
    rule = PYTHON.partition("\n\nestimates = ")[0]
    (folder / "rules.py").write_text(rule, encoding="utf-8")
    return folder


@pytest.mark.parametrize("line", CONSOLE)
def test_each_command(
    line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    program, *arguments = shlex.split(line)
    assert program == "bricks"
    assert run([*arguments, "--runtime", "fake"]) == 0
    out = capsys.readouterr()
    assert "inception_v1" in out.out
    assert out.err == ""


def test_the_rules(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rule forbids more than the first does, and nothing more is measured for it."""
    monkeypatch.chdir(folder)
    names: dict[str, dict[str, float]] = {}
    exec(compile(PYTHON.replace("threads=1", 'threads=1, runtime="fake"'), "page", "exec"), names)
    anything, *stricter = names["estimates"].values()
    assert anything < min(stricter)
