"""Tests stand on what the package offers: none imports, or replaces, a private name of a module."""

import ast
import re
from pathlib import Path

from commands import ROOT

FILES = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").glob("*.py")]
FILES = sorted(path for path in FILES if path != Path(__file__).resolve())
PRIVATE = re.compile(r"bricks(\.\w+)*\._[a-zA-Z]\w*")
PUBLIC = {"bricks._version"}


def private_names(source: str) -> list[str]:
    """Private names of the package that a program imports or patches, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bricks"):
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [name for name in whole if PRIVATE.fullmatch(name)]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found += [node.value] if PRIVATE.fullmatch(node.value) else []
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "setattr":
            given = [each.value for each in node.args[1:2] if isinstance(each, ast.Constant)]
            found += [str(name) for name in given if re.fullmatch(r"_[a-zA-Z]\w*", str(name))]
    return [name for name in found if name not in PUBLIC]


def test_no_private_name_is_imported() -> None:
    found = {path.name: private_names(path.read_text(encoding="utf-8")) for path in FILES}
    assert {name: names for name, names in found.items() if names} == {}


def test_one_that_is_imported_would_be_found() -> None:
    assert private_names("from bricks.store.rows import _row") == ["bricks.store.rows._row"]
    assert private_names("patch.setattr('bricks.store.rows._row', 1)") == ["bricks.store.rows._row"]
    assert private_names("patch.setattr(rows, '_row', 1)") == ["_row"]
    assert private_names("from bricks import __version__\nfrom bricks.store import Store") == []
