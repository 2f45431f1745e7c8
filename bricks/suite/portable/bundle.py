"""Modules of this package in a file that other Pythons run, from 3.9 on.

A module comes with the modules of this package that it imports at its top level. Must not know what
modules are for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

_PACKAGE = "bricks"
_ROOT = Path(__file__).resolve().parents[2]

# The oldest Python whose syntax bundled modules have.
OLDEST = (3, 9)
_NEW_KEYWORDS = {"dataclass": {"slots", "kw_only"}, "zip": {"strict"}}


def bundled(modules: Sequence[str]) -> dict[str, bytes]:
    """The sources of ``modules``, and of those that they import, by their path in an archive."""
    sources: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        path = _path(module)
        name = _PACKAGE + "/" + path.relative_to(_ROOT).as_posix()
        if name in sources:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        sources[name] = compatible(tree).encode()
        waiting += _imported(tree)
    return sources | _packages(sources)


def compatible(tree: ast.Module) -> str:
    """The source of a module for :data:`OLDEST`; SyntaxError if it has newer statements."""
    changed = _Older().visit(tree)
    head = 1 if ast.get_docstring(changed) is not None else 0
    future = "annotations"
    if not any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in changed.body):
        changed.body.insert(head, ast.ImportFrom("__future__", [ast.alias(future)], 0))
    source = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
    ast.parse(source, feature_version=OLDEST)
    return source


class _Older(ast.NodeTransformer):
    """Leaves out what Python 3.9 lacks, and what it does not need."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        """Leave out new keywords; write ``isinstance(x, A | B)`` with a tuple."""
        self.generic_visit(node)
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        new = _NEW_KEYWORDS.get(called, set())
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in new]
        if called == "isinstance" and isinstance(node.args[1], ast.BinOp):
            node.args[1] = ast.Tuple([*_alternatives(node.args[1])], ast.Load())
        return node


def _alternatives(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _alternatives(node.left)
        yield from _alternatives(node.right)
    else:
        yield node


def _imported(tree: ast.Module) -> Iterator[str]:
    """Modules of the package that a module imports when it is imported itself."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(_PACKAGE):
            origin = str(node.module)
            inner = [f"{origin}.{alias.name}" for alias in node.names]
            yield from (name for name in inner if _is_module(name))
            if not all(map(_is_module, inner)):
                yield origin


def _is_module(name: str) -> bool:
    stem = _ROOT.joinpath(*name.split(".")[1:])
    return stem.with_suffix(".py").is_file() or (stem / "__init__.py").is_file()


def _path(module: str) -> Path:
    stem = _ROOT.joinpath(*module.split(".")[1:])
    return stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")


def _packages(sources: dict[str, bytes]) -> dict[str, bytes]:
    """An empty module for each folder that has none."""
    folders = {parent.as_posix() for name in sources for parent in Path(name).parents}
    inits = {f"{folder}/__init__.py" for folder in folders if folder != "."}
    return {name: b"" for name in inits if name not in sources}
