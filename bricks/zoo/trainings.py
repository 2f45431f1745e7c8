"""Workloads of the zoo that can be trained until an accuracy: functions in ``training/``, by name.

Only their code is shipped: they are not in the catalogue, since no step of them is recorded.
Separate from it so that listing models reads no code. Must not import any of it.
"""

from __future__ import annotations

import ast

from bricks.errors import ModelError, suggestion
from bricks.zoo.catalogue import is_entry, zoo_folder

TRAININGS = "training"


def trainings() -> dict[str, str]:
    """The functions, as ``training/FILE.py:FUNCTION`` relative to the zoo, by their names."""
    functions = {}
    for path in sorted((zoo_folder() / TRAININGS).glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                functions[node.name] = f"{TRAININGS}/{path.name}:{node.name}"
    return functions


def find_training(name: str) -> tuple[str, bool]:
    """The function that ``name`` refers to, and whether its file is relative to the zoo.

    ``name`` is a function as ``FILE.py:FUNCTION`` or ``module:FUNCTION``, or the name of a workload
    of the zoo. Raises :class:`ModelError` if there is none.
    """
    if is_entry(name):
        return name, False
    known = trainings()
    if name not in known:
        otherwise = "give FILE.py:FUNCTION, or one of"
        raise ModelError(f"no workload is called {name!r}: {suggestion(name, known, otherwise)}")
    return known[name], True
