from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, ROOT, blocks, commands, slow_unless_changed

from bricks.cli.main import run

README = ROOT / "README.md"
PAGES = (README, DOCS / "using.md", DOCS / "looking.md")
PUBLISHED = str(ROOT / "cache" / "published")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the reader of the README is."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.parametrize(
    "page", [pytest.param(p, marks=slow_unless_changed(p), id=p.stem) for p in PAGES]
)
def test_each_command(
    page: Path,
    reader: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(reader if page == README else tmp_path)
    assert commands(page)
    for line in commands(page):
        program, *arguments = shlex.split(line)
        assert program == "bricks"
        with monkeypatch.context() as patch:
            if arguments[0] == "advise":  # readers have what is published
                patch.setenv("BRICKS_PUBLISHED", PUBLISHED)
            assert run(arguments) == 0, line
        said = capsys.readouterr()
        assert said.out.strip(), line
        # An environment is made once, and that takes so long that people are told.
        assert said.err == "" or arguments[:2] == ["backends", "install"], line


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
def test_the_picture_is_what_the_demo_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of it but the figures, and what is said of a host that was not quiet."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    models = re.findall(r"^DEMO_MODELS \?= (.*)$", makefile, re.MULTILINE)[0].split()
    assert "$(BIN)/bricks compare $(DEMO_MODELS)\n" in makefile
    assert run(["compare", *models, "--runtime", "fake", "--cache", str(tmp_path)]) == 0
    assert "](docs/figures/demo.svg)" in README.read_text(encoding="utf-8")
    assert _told(_drawn(DOCS / "figures" / "demo.svg")) == _told(capsys.readouterr().out)


@pytest.mark.slow
def test_the_first_picture_is_an_answer_about_a_published_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On any host, whatever it is: nothing is measured."""
    monkeypatch.setenv("BRICKS_PUBLISHED", PUBLISHED)
    monkeypatch.chdir(tmp_path)
    line = commands(README)[0]
    assert run(shlex.split(line)[1:]) == 0
    picture = (DOCS / "figures" / "advise.svg").read_text(encoding="utf-8")
    prompt, *lines = map(html.unescape, re.findall(r"<text[^>]*>(.*?)</text>", picture))
    assert prompt == f"$ {line}"
    assert lines == capsys.readouterr().out.splitlines()


def _drawn(picture: Path) -> str:
    """The text of the picture below its prompt; a line that goes on indented is one."""
    _, *lines = re.findall(r"<text[^>]*>(.*?)</text>", picture.read_text(encoding="utf-8"))
    return html.unescape("\n".join(lines)).replace("\n  ", " ")


def _told(printed: str) -> list[list[str]]:
    """The words of each line below the host's, but of those on how quiet it was."""
    noisy = ("rounds were disturbed", "were measured again", "Other processes kept")
    lines = [line for line in printed.splitlines() if line.strip()][1:]
    return [_words(line) for line in lines if not any(words in line for words in noisy)]


def _words(line: str) -> list[str]:
    """A line without its figures and their units."""
    return re.findall(r"[a-z][a-z_0-9]{2,}", line)
