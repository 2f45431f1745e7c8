"""Build models of the zoo anew from their recipes, in environments of their own.

Recipes are programs in ``recipes/`` beside the manifest, in a source checkout alone: exporters do
not get along with bricks, nor with each other. They are run here, never imported. Must not know
what a recipe does, nor what is inside a model file.
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

# What recipes run in, by the first word of their names: the Python of an environment of its own,
# which MXNet's last release needs to be that one; or this environment.
PYTHONS = {"mxnet": "3.11", "torch": "3.11"}
_HERE = "onnx"
_NEEDED_HERE = "onnx_graphsurgeon"


@dataclass(frozen=True, slots=True)
class Built:
    """A model that a recipe has built: its file, and its entry for the manifest but FLOPs."""

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
    found = sorted(p.stem for k in kinds for p in (zoo / "recipes").glob(f"{k}_*.py"))
    if not found:
        raise ModelError(
            f"there are no recipes in {zoo / 'recipes'}: they are in the source repository only,"
            " run bricks in a checkout of it"
        )
    return found


def environment_of(zoo: Path, recipe: str) -> Environment | None:
    """What a recipe runs in; None for this environment."""
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
    """Run a recipe for models by name (none: all that it has), with files going to ``out``.

    ``out`` is an empty folder, and ``say`` is told what goes on. Raises :class:`ModelError` where
    there is no such recipe, ``BackendError`` where its environment cannot be made.
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
    # Without the variables that steer this Python, which mean other packages there.
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
