"""Names of the package: a class name means one thing, and none is of a vocabulary of our own."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from syntax_trees import parsed

PACKAGE = Path(__file__).resolve().parents[2] / "bricks"
TREES = {path: parsed(path) for path in PACKAGE.rglob("*.py")}

# Words that say nothing to a reader from the field, by those that do.
BETTER = {
    "alike": "equal",
    "asleep": "idle",
    "ballast": "eviction read",
    "belief": "posterior",
    "bury": "release",
    "companion": "reference workload",
    "complain": "warn",
    "desk": "queue",
    "familiar": "in distribution",
    "foretold": "predicted",
    "hole": "missing interval",
    "joiner": "fused runner",
    "lone": "isolated",
    "look": "inspection result",
    "luck": "noise",
    "panel": "probe set",
    "parting": "divergence",
    "remark": "note",
    "situation": "context",
    "standin": "surrogate",
    "strange": "out of distribution",
    "teachers": "training points",
    "told": "specified",
    "traits": "features",
    "waking": "idle-state penalty",
    "whoever": "the caller",
}


def words(name: str) -> list[str]:
    """The words of an identifier in snake case or in camel case, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)]


def defined(tree: ast.Module) -> Iterator[str]:
    """Names of classes, functions, parameters, variables and fields that a module defines."""
    for node in ast.walk(tree):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr


def test_a_class_name_stands_for_one_class() -> None:
    modules = defaultdict(list)
    for path, tree in TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                modules[node.name].append(str(path.relative_to(PACKAGE)))
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


def test_identifiers_are_words_of_the_field() -> None:
    debts = {
        f"{path.relative_to(PACKAGE)}: {name}: say {BETTER[word]}"
        for path, tree in TREES.items()
        for name in (*defined(tree), *path.relative_to(PACKAGE).with_suffix("").parts)
        for word in words(name)
        if word in BETTER
    }
    assert debts == set()


@pytest.mark.parametrize(
    ("name", "expected"),
    [("lead_in_bytes", ["lead", "in", "bytes"]), ("LoneHTTPCall", ["lone", "http", "call"])],
)
def test_words_of_an_identifier(name: str, expected: list[str]) -> None:
    assert words(name) == expected
