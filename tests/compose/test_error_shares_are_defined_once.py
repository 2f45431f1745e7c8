"""A share of an error has one value wherever its name stands."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

from syntax_trees import parsed

PACKAGE = Path(__file__).parents[2] / "bricks"


def test_no_share_of_an_error_is_defined_twice() -> None:
    defined = Counter(
        node.id
        for path in PACKAGE.rglob("*.py")
        for statement in parsed(path).body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id.endswith("_SHARE")
        and not node.id.startswith("_")
    )
    assert defined["OTHER_HOST_SHARE"] == 1
    assert [name for name, times in defined.items() if times > 1] == []
