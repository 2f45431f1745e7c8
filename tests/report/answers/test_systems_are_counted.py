"""The first line about systems: which one this host is, and how many are known."""

from __future__ import annotations

from typing import Any

import pytest

from bricks.report.systems import systems_text


def row(name: str, *, here: bool = False, published: bool = False) -> dict[str, Any]:
    return {"name": name, "this_host": here, "published": published}


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "This host is lab; no system is known yet: 'bricks measure MODEL' makes it known."),
        (
            [row("lab", here=True), row("farm", published=True), row("desk", published=True)],
            "This host is lab, which is known; 3 systems are known, 2 of them published.",
        ),
        (
            [row("farm", published=True), row("desk", published=True)],
            "This host is lab, which is not measured yet; 2 systems are known, all of them"
            " published.",
        ),
        (
            [row("lab", here=True)],
            "This host is lab, which is known; 1 system is known, not published.",
        ),
    ],
)
def test_this_host_is_named_and_systems_are_counted(rows: list[dict[str, Any]], text: str) -> None:
    assert systems_text("lab", rows) == text
