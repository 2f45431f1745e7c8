"""Overlap rules by name: ``rules.py:no_two_large``, or an importable module."""

from __future__ import annotations

import importlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from bricks.errors import UsageError, first_line

if TYPE_CHECKING:
    from bricks.compose.schedule import Rule


def load_rule(text: str) -> Rule:
    """Load the overlap rule of ``FILE.py:NAME`` or ``MODULE:NAME``; executes that code.

    Raises :class:`UsageError` if there is none.
    """
    origin, separator, name = text.rpartition(":")
    if not (origin and separator and name):
        raise UsageError(f"--overlap-rule {text!r} names no rule: give FILE.py:NAME or MODULE:NAME")
    try:
        module = _from_file(Path(origin)) if origin.endswith(".py") else _named(origin)
    except Exception as exc:  # any error of the user's code
        raise UsageError(
            f"--overlap-rule {text!r}: {origin} cannot be loaded"
            f" ({type(exc).__name__}: {first_line(exc)})"
        ) from exc
    rule: Rule | None = getattr(module, name, None)
    if not callable(rule):
        what = "nothing" if rule is None else f"a {type(rule).__name__}"
        raise UsageError(f"--overlap-rule {text!r}: {name} is {what} in {origin}, not a function")
    return rule


def _named(name: str) -> ModuleType:
    return importlib.import_module(name)


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # its name ends with .py
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
