from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, ROOT, blocks, commands

from bricks.cli.main import run

README = ROOT / "README.md"
PAGES = {"README": README, "using": DOCS / "using.md", "looking": DOCS / "looking.md"}
CONSOLE = [(name, line) for name, page in PAGES.items() for line in commands(page)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the reader of each page is."""
    return {name: tmp_path_factory.mktemp(name) for name in PAGES}


@pytest.mark.parametrize("page, line", CONSOLE)
def test_each_command(
    page: str,
    line: str,
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folders[page])
    program, *arguments = shlex.split(line)
    assert program == "bricks"
    assert run(arguments) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) >= 1
    # An environment is made once, and that takes so long that people are told.
    assert said.err == "" or arguments[:2] == ["backends", "install"]


def test_the_five_calls(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folders["README"])
    (python,) = (block.text for block in blocks(README) if block.language == "python")
    exec(compile(python, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"^\d+ bricks, \d+ measured$", out, re.MULTILINE)
    assert re.search(r"^\d+\.\d\d ms, ratio \d\.\d{3}$", out, re.MULTILINE)


def test_the_table_has_what_the_demo_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its models and its columns, but how many bricks are new; the figures are those of a page."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    models = re.findall(r"^DEMO_MODELS \?= (.*)$", makefile, re.MULTILINE)[0].split()
    assert "$(BIN)/bricks compare $(DEMO_MODELS)\n" in makefile
    assert run(["compare", *models, "--runtime", "fake", "--cache", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    (columns,) = (line.split() for line in printed if line.startswith("model "))
    columns.remove("new")
    demo = README.read_text(encoding="utf-8").partition("<!-- demo: ")[2].partition("<!-- /")[0]
    heading, _, *rows = [line for line in demo.splitlines() if line.startswith("|")]
    assert _cells(heading) == columns
    assert [_cells(row)[0] for row in rows] == models
    page = (DOCS / "accuracy.md").read_text(encoding="utf-8")
    assert all(" | ".join(_cells(row)[2:]) in page for row in rows)


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split("|")]
