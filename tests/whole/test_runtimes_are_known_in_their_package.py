"""Names of runtimes stand in their packages, and what a backend can do is asked by type."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from syntax_trees import parsed

from bricks.backends import built_in

PACKAGE = Path(__file__).parents[2] / "bricks"
NAMES = set(built_in())
WITHIN = re.compile(rf"(bricks\.backends\.)?({'|'.join(map(re.escape, NAMES))})[.:]\w")

# What is no name of a runtime, though it is spelt like one.
OTHER = {
    "zoo/catalogue.py": {"torch"},  # the folder of the zoo's recorded programs
    "zoo/recipes.py": {"mxnet", "torch"},  # how names of recipes begin: by what they export from
}
# Objects of other libraries, of which versions differ, and of Python's own.
FOREIGN = {"os", "psutil", "sys"}


@cache
def modules() -> dict[str, ast.Module]:
    """All modules but those in the packages of runtimes, by their paths."""
    backends = PACKAGE / "backends"
    return {
        str(path.relative_to(PACKAGE)): parsed(path)
        for path in sorted(PACKAGE.rglob("*.py"))
        if backends not in path.parents[1:]
    }


def named(tree: ast.AST) -> Iterator[str]:
    """The texts of a module that are the name of a runtime, or begin with its package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node.value in NAMES or WITHIN.match(node.value):
                yield node.value


def probed(tree: ast.AST) -> Iterator[str]:
    """The objects of which a module asks by name whether they have something."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) > 2)
            if asks:
                yield ast.unparse(node.args[0])


def test_no_runtime_is_named_outside_its_package() -> None:
    found = {path: set(named(tree)) - OTHER.get(path, set()) for path, tree in modules().items()}
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_what_is_spelt_like_a_runtime_is_still_there() -> None:
    assert {path: set(named(modules()[path])) for path in OTHER} == OTHER


def test_backends_are_asked_by_type() -> None:
    asking = ("backends/", "measure/")
    others = "measure/protocol/"  # of types, which are written as JSON
    found = {
        path: set(probed(tree)) - FOREIGN
        for path, tree in modules().items()
        if path.startswith(asking) and not path.startswith(others)
    }
    assert {path: texts for path, texts in found.items() if texts} == {}


def test_names_and_questions_would_be_found() -> None:
    tree = ast.parse(
        "runtime = 'onnxruntime'\nmodule = 'bricks.backends.torch.operators'\n"
        "hasattr(backend, 'profiled')\ngetattr(backend, 'derived', False)\ngetattr(a, name)\n"
    )
    assert set(named(tree)) == {"onnxruntime", "bricks.backends.torch.operators"}
    assert list(probed(tree)) == ["backend", "backend"]
