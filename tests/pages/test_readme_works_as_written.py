from __future__ import annotations

import html
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, ROOT, blocks, commands
from tiers import slow_but

from bricks.cli.main import run

README = ROOT / "README.md"
PAGES = {"README": README, "using": DOCS / "using.md", "looking": DOCS / "looking.md"}
CONSOLE = [(name, line) for name, page in PAGES.items() for line in commands(page)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Where the reader of each page is."""
    return {name: tmp_path_factory.mktemp(name) for name in PAGES}


@pytest.mark.parametrize("page, line", slow_but(lambda each: each[0] == "README", CONSOLE))
def test_each_command(
    page: str,
    line: str,
    folders: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folders[page])
    if line.startswith("bricks advise"):  # readers have what is published
        monkeypatch.setenv("BRICKS_PUBLISHED", str(ROOT / "cache" / "published"))
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


def test_the_first_picture_is_an_answer_about_a_published_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On any host, whatever it is: nothing is measured."""
    monkeypatch.setenv("BRICKS_PUBLISHED", str(ROOT / "cache" / "published"))
    monkeypatch.chdir(tmp_path)
    line = next(line for name, line in CONSOLE if name == "README")
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
    noisy = ("rounds were disturbed", "Other processes kept")
    lines = [line for line in printed.splitlines() if line.strip()][1:]
    return [_words(line) for line in lines if not any(words in line for words in noisy)]


def _words(line: str) -> list[str]:
    """A line without its figures and their units."""
    return re.findall(r"[a-z][a-z_0-9]{2,}", line)
