from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, GUIDES, ROOT, blocks, commands, lines, shown, slow_unless_changed

from bricks.cli.main import run
from bricks.system import fingerprint

README = ROOT / "README.md"
OF_ITS_OWN = DOCS / "guides" / "versions.md"  # another test runs it
PAGES = (README, DOCS / "accuracy.md", DOCS / "published.md", *GUIDES)
PUBLISHED = str(ROOT / "cache" / "published")


def named_here(answer: list[str]) -> bool:
    """Whether an answer calls this host by another name than it does on others."""
    words = " ".join(answer)
    return " here " in words or fingerprint().name in words


def graph_is_another(complaint: str) -> bool:
    """Whether published processors execute another graph, since this one has shorter vectors."""
    return "was never decomposed on" in complaint and "avx512f" not in fingerprint().vectors


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader of the README is."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(p, marks=slow_unless_changed(p), id=p.stem)
        for p in PAGES
        if commands(p) and p != OF_ITS_OWN
    ],
)
def test_each_command(
    page: Path,
    reader: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(reader if page == README else tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    answers = shown(page)
    for line in commands(page):
        program, *arguments = shlex.split(line)
        assert program == "bricks"
        published = arguments[0] == "advise" or "--on" in arguments
        with monkeypatch.context() as patch:
            if published:
                patch.setenv("BRICKS_PUBLISHED", PUBLISHED)
            status = run(arguments)
        said = capsys.readouterr()
        if status and graph_is_another(said.err):
            continue
        assert status == 0, (line, said.err)
        assert said.out.strip(), line
        if published and line in answers and not named_here(answers[line]):
            assert lines(said.out) == answers[line]
        assert said.err == "" or page != README, line  # guides have commands that take long


@slow_unless_changed(README)
def test_the_five_calls(
    reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader)
    (python,) = (block.text for block in blocks(README) if block.language == "python")
    exec(compile(python, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"^\d+ bricks, \d+ measured$", out, re.MULTILINE)
    assert re.search(r"^\d+\.\d\d ms, ratio \d\.\d{3}$", out, re.MULTILINE)


@pytest.mark.slow
def test_the_first_picture_is_an_answer_about_a_published_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On any host, whatever it is: nothing is measured; at the width of a terminal."""
    monkeypatch.setenv("BRICKS_PUBLISHED", PUBLISHED)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    line = commands(README)[0]
    assert run(shlex.split(line)[1:]) == 0
    picture = (DOCS / "figures" / "advise.svg").read_text(encoding="utf-8")
    prompt, *lines = map(html.unescape, re.findall(r"<text[^>]*>(.*?)</text>", picture))
    assert prompt == f"$ {line}"
    assert lines == [line for line in capsys.readouterr().out.splitlines() if line]
