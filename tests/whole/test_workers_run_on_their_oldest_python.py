"""Workers run in Pythons of users, which may be older than that of bricks."""

from __future__ import annotations

import ast
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from commands import ROOT
from syntax_trees import parsed
from test_imports_flow_one_way import MODULES, imported

from bricks.measure.worker.older_python import SUPPLIED
from bricks.system.worker_packages import OLDEST

# What came with Python 3.10 or 3.11, by the module that has it; SUPPLIED is there nevertheless.
NEWER = {
    "statistics": {"correlation", "covariance", "linear_regression"},
    "sys": {"orig_argv", "stdlib_module_names"},
    "types": {"EllipsisType"},
    "enum": {"StrEnum", "verify", "ReprEnum", "global_enum"},
    "typing": {
        "Self", "Never", "LiteralString", "assert_never", "assert_type", "Required", "NotRequired",
        "Unpack", "TypeVarTuple", "dataclass_transform", "override", "Concatenate", "ParamSpec",
        "TypeGuard", "is_typeddict",
    },
    "datetime": {"UTC"},
    "hashlib": {"file_digest"},
    "contextlib": {"aclosing", "chdir"},
    "math": {"cbrt", "exp2"},
}  # fmt: skip
SUPPLIER = "measure.worker.older_python"
MODULES_NEWER = {"tomllib", "wsgiref.types"}


def of_workers() -> Iterator[str]:
    """Modules that a worker may import, of any runtime but MXNet, which has a Python of its own."""
    waiting = [name for name in MODULES if name.startswith(("measure.worker", "backends"))]
    found = set()
    while waiting:
        name = waiting.pop()
        if name in found or name not in MODULES or name.startswith("backends.mxnet"):
            continue
        found.add(name)
        waiting += at_run_time(name)
    yield from sorted(found)


def at_run_time(module: str) -> set[str]:
    """What a module imports as it is imported, and not within a function or for annotations."""
    top = {
        f"{node.module}".removeprefix("bricks.")
        for node in parsed(MODULES[module]).body
        if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith("bricks")
    }
    return {name for name in imported(MODULES[module]) if name in top}


def executed(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module without those for annotations alone."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from executed(node)


def newer_names(module: str) -> Iterator[str]:
    for node in executed(parsed(MODULES[module])):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            yield from sorted(names & NEWER.get(node.module or "", set()))
        elif isinstance(node, ast.Import):
            yield from sorted({alias.name for alias in node.names} & MODULES_NEWER)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            newer = NEWER.get(node.value.id, set()) | SUPPLIED.get(node.value.id, set())
            if node.attr in newer and module != SUPPLIER:  # they are supplied where imported
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.TryStar | ast.Match):
            yield type(node).__name__
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "ClassVar":
            yield "ClassVar without a type"  # messages of such classes cannot be read there


def test_workers_use_nothing_newer() -> None:
    assert OLDEST == (3, 9)
    assert len([*of_workers()]) > 100
    assert {name: [*newer_names(name)] for name in of_workers() if [*newer_names(name)]} == {}


@pytest.mark.slow
def test_workers_are_compiled_by_it() -> None:
    python = shutil.which("python{}.{}".format(*OLDEST))
    if python is None or subprocess.run([python, "-c", ""], capture_output=True).returncode:
        pytest.skip("there is no such Python here")
    files = [str(MODULES[name]) for name in of_workers()]
    code = (
        "import sys\nfrom bricks.measure.worker.older_python import rewritten\n"
        "for f in sys.argv[1:]: compile(rewritten(open(f, 'rb').read()), f, 'exec')"
    )
    subprocess.run([python, "-c", code, *files], check=True, cwd=ROOT)
