from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from commands import CommandResult, bricks
from pages import DOCS, blocks, commands, slow_unless_changed

PAGE = DOCS / "backends.md"
FILES = {block.file: block.text for block in blocks(PAGE) if block.file}
MODULES = {name for name in FILES if name.endswith(".py")}
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's package, installed in a folder of its own as pip does it."""
    package, folder = tmp_path_factory.mktemp("package"), tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (package / name).write_text(text, encoding="utf-8")
    offline = ["--no-index", "--no-build-isolation", "--no-deps"]
    subprocess.run([*PIP, "install", *offline, "--target", folder, package], check=True)
    return folder


@pytest.fixture(scope="module")
def said(site: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CommandResult]:
    """What each command of the page says, in order, on one cache."""
    cache = tmp_path_factory.mktemp("cache")
    paths = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return {
        line: bricks(*shlex.split(line)[1:], PYTHONPATH=paths, BRICKS_CACHE=str(cache))
        for line in commands(PAGE)
    }


def test_the_page_has_all_that_a_package_needs() -> None:
    assert set(FILES) == {"pyproject.toml", "bricks_pretend.py", "bricks_numpy.py"}


def test_each_backend_is_as_short_as_the_page_says() -> None:
    assert max(len(FILES[name].splitlines()) for name in MODULES) < 100


@slow_unless_changed(PAGE)
def test_each_command(said: dict[str, CommandResult]) -> None:
    assert len(said) == len(commands(PAGE)) > 0
    for line, outcome in said.items():
        assert line.startswith("bricks ")
        assert (outcome.status, outcome.err) == (0, ""), line


@slow_unless_changed(PAGE)
def test_both_are_listed(said: dict[str, CommandResult]) -> None:
    listed = said["bricks backends list"].out
    for name in ("numpy", "pretend"):
        assert re.search(rf"^{name} .* installed$", listed, re.MULTILINE), name


@slow_unless_changed(PAGE)
def test_bricks_of_the_one_that_computes_nothing_add_up(said: dict[str, CommandResult]) -> None:
    (line,) = (line for line in said if "pretend" in line)
    (row,) = re.findall(
        r"^gluon_cifar_resnet20_v1 .* (\d\.\d+) +yes$", said[line].out, re.MULTILINE
    )
    assert float(row) == pytest.approx(1, abs=0.01)


@slow_unless_changed(PAGE)
def test_bricks_of_the_one_that_computes_are_exact(said: dict[str, CommandResult]) -> None:
    (line,) = (line for line in said if "--verify" in line)
    assert "chained bricks equal the model bit by bit" in said[line].out


@slow_unless_changed(PAGE)
def test_what_the_page_shows_has_the_columns_of_today(said: dict[str, CommandResult]) -> None:
    shown = [block.text for block in blocks(PAGE) if block.language == "text"]
    compared = [outcome.out for line, outcome in said.items() if " compare " in line]
    for page, out in zip(shown, compared, strict=True):
        assert _heading(page) == _heading(out)
        assert _answer(page) == _answer(out)


@slow_unless_changed(PAGE)
def test_a_model_that_it_cannot_tell_the_types_of_is_refused_by_name(
    site: Path, tmp_path: Path
) -> None:
    """As the page's table says."""
    arguments = ("decompose", "squeezenet", "--runtime", "pretend", "--cache", tmp_path)
    done = bricks(*arguments, PYTHONPATH=str(site))
    assert done.status == 1
    assert re.search(r"the runtime tells no type of .*, which Dropout .* makes: ", done.complaint)


def _answer(text: str) -> str:
    """The first line without its figures; noise decides on which side of a run an estimate is."""
    line = re.sub(r"\(.*?\)|\d[\d.]* (ms|µs|s|%)", "#", text.splitlines()[0])
    return line.replace("above", "below").replace("outside", "inside")


def _heading(text: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.startswith("model "))
