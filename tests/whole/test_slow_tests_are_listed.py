"""CONTRIBUTING names every file with tests that only `make test-all` runs, and no other."""

import re
from pathlib import Path

from commands import ROOT

TESTS = ROOT / "tests"
SLOW = re.compile(r"pytest\.mark\.slow\b|(?<!\.)\b(slow_but|one_in|slow_unless_changed)\(")


def test_what_is_slow_is_listed() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = [p for p in TESTS.rglob("test_*.py") if p != Path(__file__).resolve()]
    slow = {path.stem for path in files if SLOW.search(path.read_text(encoding="utf-8"))}
    assert len(slow) > 30
    assert set(re.findall(r"`(test_\w+)`", page)) == slow
