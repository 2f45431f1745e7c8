"""Lets Python 3.9 run the code of workers, which is written for 3.10 and newer.

Modules of this package are rewritten as they are imported: type unions, ``zip(strict=…)``, options
of dataclasses, and the few names of the standard library that 3.9 lacks. Neither built-ins nor
other packages change, so the user's code runs as it is. Must not import anything of bricks.
"""

from __future__ import annotations

import ast
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from importlib import metadata
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from itertools import zip_longest
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Union

# The name by which rewritten modules have this one.
_HERE = "_older_python"

# What this module has in place of names of the standard library, by their modules.
SUPPLIED = {
    "dataclasses": {"dataclass"},
    "importlib.metadata": {"entry_points"},
    "inspect": {"get_annotations"},
    "itertools": {"pairwise"},
    "types": {"NoneType", "UnionType"},
    "typing": {"TypeAlias"},
}

NoneType = type(None)
UnionType = Union
TypeAlias = Any

_ABSENT = object()


def install() -> None:
    """Rewrite the modules of this package that are imported from now on."""
    sys.meta_path.insert(0, _Finder())


def rewritten(source: str | bytes) -> ast.Module:
    """Return the syntax tree of a module's ``source`` in terms that Python 3.9 has."""
    tree = _Rewriter().visit(ast.parse(source))
    begin = next(
        (number for number, node in enumerate(tree.body) if not _is_first(node)), len(tree.body)
    )
    here = ast.ImportFrom(__package__, [ast.alias("older_python", _HERE)], 0)
    tree.body.insert(begin, here)
    fixed = ast.fix_missing_locations(tree)
    assert isinstance(fixed, ast.Module)
    return fixed


def dataclass(
    kind: Any = None, *, slots: bool = False, kw_only: bool = False, **options: bool
) -> Any:
    """As ``dataclasses.dataclass``; objects have no slots, keywords are not compulsory."""

    def made(kind: Any) -> Any:
        own: Mapping[str, Any] = vars(kind).get("__annotations__", {})
        for name in own if kw_only else ():
            if name not in vars(kind) and not str(own[name]).startswith(("ClassVar", "typing.Cl")):
                setattr(kind, name, dataclasses.field(default_factory=_required(kind, name)))
        return dataclasses.dataclass(**options)(kind)

    return made if kind is None else made(kind)


def _required(kind: type, name: str) -> Callable[[], Any]:
    """A default in the place of none, since fields without one may follow others with one."""

    def missing() -> Any:
        raise TypeError(f"{kind.__name__} lacks its argument {name!r}")

    return missing


def entry_points(*, group: str) -> Sequence[metadata.EntryPoint]:
    """As ``importlib.metadata.entry_points``."""
    every: Any = metadata.entry_points()
    return tuple(every.get(group, ()))


def get_annotations(of: Any) -> Mapping[str, Any]:
    """As ``inspect.get_annotations``, of a function or a class without those of its bases."""
    found = vars(of).get("__annotations__", {}) if isinstance(of, type) else of.__annotations__
    return dict(found)


def pairwise(items: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """As ``itertools.pairwise``."""
    rest = iter(items)
    previous = next(rest, _ABSENT)
    for item in rest:
        yield previous, item
        previous = item


def zipped(*columns: Iterable[Any], strict: bool = False) -> Iterator[tuple[Any, ...]]:
    """As ``zip``, where lengths must be equal if it is ``strict``."""
    if not strict:
        return zip(*columns)  # noqa: B905 – it has no such argument
    lengths = [len(column) for column in columns if isinstance(column, Sized)]
    if len(lengths) < len(columns):
        return _zipped_strictly(columns)
    if len({*lengths}) > 1:
        raise ValueError(f"the arguments of zip() have lengths {lengths}")
    return zip(*columns)  # noqa: B905


def _zipped_strictly(columns: Sequence[Iterable[Any]]) -> Iterator[tuple[Any, ...]]:
    for row in zip_longest(*columns, fillvalue=_ABSENT):
        if any(item is _ABSENT for item in row):
            raise ValueError("the arguments of zip() have different lengths")
        yield row


def either(first: Any, second: Any) -> Any:
    """As ``first | second``, where both may be types."""
    try:
        return first | second
    except TypeError:
        return Union.__getitem__((first, second))


def _is_first(node: ast.stmt) -> bool:
    """Whether a statement must come before all others: a docstring, or an import of a feature."""
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _own(name: str) -> ast.expr:
    return ast.Attribute(ast.Name(_HERE, ast.Load()), name, ast.Load())


class _Rewriter(ast.NodeTransformer):
    """Replaces in a module what Python 3.9 lacks."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> Any:
        """Take names that the standard library may lack from here."""
        supplied = SUPPLIED.get(node.module or "", set())
        own = [alias for alias in node.names if alias.name in supplied]
        others = [alias for alias in node.names if alias.name not in supplied]
        parts = [(__name__, own), (node.module, others)]
        return [
            ast.copy_location(ast.ImportFrom(module, names, 0), node)
            for module, names in parts
            if names
        ]

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """``zip(strict=…)``, and unions as the second argument of ``isinstance``."""
        name = node.func.id if isinstance(node.func, ast.Name) else None
        if name in ("isinstance", "issubclass") and len(node.args) == 2:
            node.args[1] = ast.Tuple([*map(_class, _members(node.args[1]))], ast.Load())
        elif name == "zip" and node.keywords:
            node.func = _own("zipped")
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A union of types, or of other things."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.BitOr):
            return node
        return ast.copy_location(ast.Call(_own("either"), [node.left, node.right], []), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = node.annotation and _Annotation().visit(node.annotation)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = _Annotation().visit(node.annotation)
        node.value = node.value and self.visit(node.value)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """The annotation of what a function returns."""
        node.returns = node.returns and _Annotation().visit(node.returns)
        return self.generic_visit(node)


class _Annotation(ast.NodeTransformer):
    """Replaces the unions in an annotation, which is kept as text and may be read as types."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        members = ast.Tuple([self.visit(member) for member in _members(node)], ast.Load())
        return ast.copy_location(ast.Subscript(_own("UnionType"), members, ast.Load()), node)


def _members(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_members(node.left), *_members(node.right)]
    return [node]


def _class(node: ast.expr) -> ast.expr:
    is_none = isinstance(node, ast.Constant) and node.value is None
    return _own("NoneType") if is_none else node


class _Loader(SourceFileLoader):
    """Loads a module of this package, rewritten."""

    def source_to_code(  # type: ignore[override]  # published as a static method, which it is not
        self, data: Any, path: Any, *, _optimize: int = -1
    ) -> CodeType:
        code = compile(rewritten(data), path, "exec", dont_inherit=True, optimize=_optimize)
        assert isinstance(code, CodeType)
        return code

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        """Facts that compiled files must have: not those of files that were not rewritten."""
        stats = super().path_stats(path)
        return {**stats, "mtime": stats["mtime"] + Path(__file__).stat().st_mtime}


class _Finder(MetaPathFinder):
    """Finds modules of this package for the loader that rewrites them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not name.startswith("bricks."):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec
