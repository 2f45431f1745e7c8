"""The snippet for CI of the guide to versions, and the figures of research/differences.md."""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path

import pytest
from pages import DOCS, RESEARCH, ROOT, blocks, commands, lines, shown, slow_unless_changed

from bricks.analysis.difference import CommonChange
from bricks.analysis.significance import (
    BRICK_DRIFT,
    FALSE_DISCOVERY_RATE,
    MACHINE_DRIFT,
    LogRatio,
    judge,
)
from bricks.backends.catalogue import RuntimeVersion
from bricks.cli.main import run
from bricks.units.interval import Interval

PAGE = (RESEARCH / "differences.md").read_text(encoding="utf-8")
GUIDE = DOCS / "guides" / "versions.md"
(CI,) = (block.text for block in blocks(GUIDE) if block.language == "bash")


@slow_unless_changed(GUIDE)
def test_each_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BRICKS_PUBLISHED", str(ROOT / "cache" / "published"))
    monkeypatch.setenv("COLUMNS", "80")
    answers = shown(GUIDE)
    for line in commands(GUIDE):
        program, *arguments = shlex.split(line)
        assert program == "bricks"
        assert run(arguments) == 0, line
        said = capsys.readouterr()
        assert said.err == "", line
        assert lines(said.out) == answers[line]


def test_the_ci_snippet_compares_two_versions() -> None:
    old, new = map(RuntimeVersion.parse, re.findall(r"\S+==\S+", CI))
    assert old.name == new.name and old != new


def test_the_figures_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"by {100 * BRICK_DRIFT:g} % a session for each brick" in text
    assert f"by {100 * MACHINE_DRIFT:g} % for all together" in text
    assert f"{100 * FALSE_DISCOVERY_RATE:g} % may be wrong" in text
    assert not CommonChange(Interval(1.054, 1, 2), 9).unusual
    assert CommonChange(Interval(1.058, 1, 2), 9).unusual
    assert "Where it is more than 5.5 %" in text
    least = [
        judge([LogRatio(math.log(r), math.sqrt(2) * MACHINE_DRIFT)])[0] for r in (1.055, 1.058)
    ]
    assert [ratio.slower for ratio in least] == [False, True]
    assert "no slowdown of less than 5.5 % is found" in text
