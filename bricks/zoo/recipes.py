"""Rebuild models of the zoo from their recipes, in separate environments.

Recipes are programs in ``recipes/`` next to the manifest; only a source checkout has them. This
module runs them and never imports them, because the requirements of exporters conflict with those
of bricks and with each other. Must not know what a recipe does, nor what is inside a model file.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bricks.errors import ModelError, first_line, suggestion
from bricks.system.environments import Environment, install

# Python versions of the environments that recipes run in, by the first word of the recipe's name;
# other recipes run in this environment. MXNet's last release requires 3.11.
PYTHONS = {"mxnet": "3.11", "torch": "3.11"}
_HERE = "onnx"
_NEEDED_HERE = "onnx_graphsurgeon"


@dataclass(frozen=True, slots=True)
class Built:
    """A model that a recipe has built: its file, and its manifest entry without FLOPs."""

    name: str
    recipe: str
    path: Path
    sha256: str
    entry: dict[str, Any]


@dataclass(frozen=True, slots=True)
class NotBuilt:
    """A model that its recipe could not build, and why, in one line."""

    name: str
    recipe: str
    error: str


def recipes(zoo: Path) -> list[str]:
    """Names of the recipes beside a zoo, sorted; raises :class:`ModelError` if there are none."""
    kinds = (*PYTHONS, _HERE)
    names = sorted(p.stem for k in kinds for p in (zoo / "recipes").glob(f"{k}_*.py"))
    if not names:
        raise ModelError(
            f"there are no recipes in {zoo / 'recipes'}: they are in the source repository only,"
            " run bricks in a checkout of it"
        )
    return names


def environment_of(zoo: Path, recipe: str) -> Environment | None:
    """The environment that a recipe runs in; None for this one."""
    kind = recipe.partition("_")[0]
    if kind == _HERE:
        return None
    lock = zoo / "recipes" / f"requirements-{kind}.lock"
    if not lock.is_file():
        raise ModelError(f"the recipe {recipe!r} needs {lock}, which is missing: restore it")
    return Environment(f"recipes-{kind}", lock, PYTHONS[kind], "bricks zoo build NAME installs it")


def build(
    zoo: Path,
    recipe: str,
    names: Sequence[str],
    out: Path,
    say: Callable[[str], None] = lambda line: None,
) -> list[Built | NotBuilt]:
    """Run a recipe for models by name (all of its models if none), writing files to ``out``.

    ``out`` is an empty folder; ``say`` receives progress messages. Raises :class:`ModelError` if
    there is no such recipe, ``BackendError`` if its environment cannot be created.
    """
    known = recipes(zoo)
    if recipe not in known:
        meant = suggestion(recipe, known, "the zoo has")
        raise ModelError(f"there is no recipe {recipe!r}: {meant}")
    environment = environment_of(zoo, recipe)
    if environment is not None:
        python = str(install(environment, say)[0])
    elif find_spec(_NEEDED_HERE) is not None:
        python = sys.executable
    else:
        raise ModelError(
            f"the recipe {recipe!r} needs {_NEEDED_HERE}: install bricks with its extra 'recipes'"
        )
    say(f"running the recipe {recipe}")
    # -E ignores PYTHON* variables, which point to this environment's packages.
    command = [python, "-E", "-W", "ignore", str(zoo / "recipes" / f"{recipe}.py")]
    done = subprocess.run(
        [*command, "--out", str(out), *names],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    results = [_result(recipe, path) for path in sorted(out.glob("*.json"))]
    missing = sorted(set(names) - {result.name for result in results})
    if done.returncode and (missing or not results):
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        last = first_line(Exception(lines[-1] if lines else f"exit status {done.returncode}"))
        raise ModelError(f"the recipe {recipe!r} failed: {last}")
    return results


def _result(recipe: str, described: Path) -> Built | NotBuilt:
    entry = json.loads(described.read_text(encoding="utf-8"))
    name = str(entry["name"])
    if "error" in entry:
        return NotBuilt(name, recipe, f"{name}: {first_line(Exception(entry['error']))}")
    path = described.parent / entry["file"]
    return Built(name, recipe, path, hashlib.sha256(path.read_bytes()).hexdigest(), entry)
