"""Suites in one file, with the program that measures them: nothing of this package is installed.

Written are data, the modules of the program and what starts it; read is what the program measured,
as records of a results file. A module comes with the modules of this package that it imports at its
top level, in syntax that Python 3.9 runs. A file of results whose last line is cut off is read up
to that line: its process was ended. Must not know any runtime, nor how bricks are chosen.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bricks.errors import SuiteError, later_format
from bricks.suite.archive import write
from bricks.suite.runner import run_log
from bricks.suite.runner.suite_run import CONTENT

_PACKAGE = "bricks"
_ROOT = Path(__file__).resolve().parents[1]

# The oldest Python whose syntax bundled modules have.
OLDEST = (3, 9)
_NEW_KEYWORDS = {"dataclass": {"slots", "kw_only"}, "zip": {"strict"}}


def bundled(modules: Sequence[str]) -> dict[str, bytes]:
    """The sources of ``modules``, and of those that they import, by their path in an archive."""
    sources: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        module = waiting.pop()
        stem = _ROOT.joinpath(*module.split(".")[1:])
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
        name = _PACKAGE + "/" + path.relative_to(_ROOT).as_posix()
        if name in sources:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        sources[name] = compatible(tree).encode()
        waiting += _imported(tree)
    # Each folder that has no module gets an empty one.
    folders = {parent.as_posix() for name in sources for parent in Path(name).parents}
    inits = {f"{folder}/__init__.py" for folder in folders if folder != "."}
    return sources | {name: b"" for name in inits if name not in sources}


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


FORMAT, VERSION = "bricks-portable", 1

_MAIN = f"""\
import sys

if sys.version_info < {OLDEST}:
    sys.exit("this suite needs Python {OLDEST[0]}.{OLDEST[1]} or later")

from bricks.suite.runner.main import main

sys.exit(main())
"""

_PROGRAM = "bricks.suite.runner.main"


@dataclass(frozen=True, slots=True)
class PortableVariant:
    """What hosts of one provider measure: ``programs`` and ``groups`` of bricks, as JSON."""

    programs: Sequence[Mapping[str, Any]]
    groups: Sequence[Mapping[str, Any]]
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PortableContent:
    """A suite: ``facts`` for its program, variants by provider, and JSON by key.

    ``records`` are bricks as in results files, ``pieces`` the same as the runtime measures them,
    ``plans`` as in results files by digest. ``code`` are files by path. ``modules`` are those of
    the runtime.
    """

    facts: Mapping[str, Any]
    variants: Mapping[str, PortableVariant]
    records: Mapping[str, Any]
    pieces: Mapping[str, Any]
    plans: Mapping[str, Any]
    modules: Sequence[str]
    code: Mapping[str, bytes] = field(default_factory=dict)


def write_portable(path: Path, content: PortableContent, *, package: str) -> None:
    """Write a suite that Python runs; the same content gives the same bytes."""
    files = bundled([_PROGRAM, *content.modules]) | {"__main__.py": _MAIN.encode()}
    variants = {}
    for provider, variant in content.variants.items():
        names = [f"groups/{provider}/{number}.json" for number in range(len(variant.groups))]
        files |= {n: _json(group) for n, group in zip(names, variant.groups, strict=True)}
        variants[provider] = {
            "programs": variant.programs, "groups": names, "notes": variant.notes,
        }  # fmt: skip
    for folder, data in (
        ("records", content.records), ("pieces", content.pieces), ("plans", content.plans),
    ):  # fmt: skip
        files |= {f"{folder}/{key}.json": _json(data[key]) for key in data}
    files |= {f"code/{name}": source for name, source in content.code.items()}
    form = {"name": FORMAT, "version": VERSION, "package": package}
    files[CONTENT] = _json({"format": form, **content.facts, "variants": variants})
    write(path, {"format": form}, files)


def _json(data: object) -> bytes:
    return json.dumps(data, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


Record = tuple[str, dict[str, Any]]


def is_run(path: Path) -> bool:
    """Whether a file begins as the program of a portable suite begins it."""
    try:
        with path.open("rb") as file:
            line = file.read(64)
    except OSError:
        return False
    return line.startswith(f'["{run_log.HEAD}",{{"name":"{run_log.FORMAT}"'.encode())


@dataclass(frozen=True, slots=True)
class RunResults:
    """The ``head`` of a file, and its other lines."""

    head: Mapping[str, Any]
    lines: tuple[run_log.Line, ...]

    @classmethod
    def read(cls, path: Path) -> RunResults:
        """Read a file; :class:`SuiteError` for one that was changed, or is of a later version."""
        try:
            raw = path.read_bytes()
        except OSError as exc:
            raise SuiteError(f"{path} cannot be read ({exc.strerror}): give another file") from exc
        whole = raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)
        known = [run_log.read(line) for line in whole]
        lines = tuple(line for line in known if line is not None)
        if not lines or len(lines) < len(known):
            raise SuiteError(
                f"{path} was changed after it was written, nothing was imported: copy it again"
            )
        (_, head), *rest = lines
        if head["version"] > run_log.VERSION:
            raise SuiteError(later_format(path, head["version"], run_log.VERSION))
        return cls(head, tuple(rest))

    def of(self, kind: str) -> Iterator[Any]:
        """The data of all lines of a kind."""
        return (data for own, data in self.lines if own == kind)

    def records(self) -> Iterator[Record]:
        """The records of a results file, in their order there."""
        target = self.head["target"]
        yield "system", self.head["system"]
        yield "target", target
        for brick in self.of(run_log.BRICK):
            yield "brick", brick
        for plan in self.of(run_log.PLAN):
            yield "plan", {**plan, "target": target["key"]}
        rounds: dict[str, list[Any]] = {}
        for each in self.of(run_log.ROUND):
            rounds.setdefault(each["brick"], []).append(each["round"])
        reasons = {each["brick"]: each["reason"] for each in self.of(run_log.FAILURE)}
        common = {"target": self.head["target"]["key"], "protocol": self.head["protocol"]}
        for key in sorted({*rounds, *reasons}):
            own = {"rounds": rounds[key]} if key in rounds else {"reason": reasons[key]}
            samples = (sample for one in rounds.get(key, ()) for sample in one[0])
            hosts_s = (sample[0] if isinstance(sample, list) else sample for sample in samples)
            wall_s = float(sum(hosts_s))
            yield "measurement", {**common, "brick": key, "wall_s": wall_s, **own}
