"""The tour of the code quotes it, and the picture of the architecture follows from its table."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOUR = (ROOT / "docs" / "a-tour.md").read_text(encoding="utf-8")
STOPS = re.findall(
    r"^## \d+\. .*?\n.*?`(bricks/[\w/]+\.py)`.*?```python\n(.*?)```", TOUR, re.M | re.S
)


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def test_there_are_twelve_stops() -> None:
    assert len(STOPS) == len(re.findall(r"^## \d+\. ", TOUR, re.M)) == 12


@pytest.mark.parametrize(("file", "quote"), STOPS, ids=[file for file, _ in STOPS])
def test_a_stop_quotes_its_file(file: str, quote: str) -> None:
    source = lines((ROOT / file).read_text(encoding="utf-8"))
    parts = [lines(part) for part in quote.split("# …\n")]
    assert sum(map(len, parts)) <= 14
    for part in parts:
        assert any(source[at : at + len(part)] == part for at in range(len(source))), part


def test_the_picture_is_up_to_date() -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "draw_architecture.py"))
    assert drawing["FIGURE"].read_text(encoding="utf-8") == drawing["picture"]()
