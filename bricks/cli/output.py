"""How commands end: facts on standard output, messages on standard error, an exit status."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, RenderableType

from bricks.errors import first_line

FAILED = 1


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(data, indent=2, allow_nan=False))


def show(*parts: RenderableType) -> None:
    """For people, on standard output; in a pipe as wide as it needs to be."""
    width = None if sys.stdout.isatty() else 160
    console = Console(highlight=False, width=width)
    for part in parts:
        console.print(part)


def complain(text: str) -> None:
    """One line on standard error."""
    print(f"bricks: {text}", file=sys.stderr)


def finish(errors: Iterable[str]) -> None:
    """Say every error on a line of its own; exit with status 1 if there is one."""
    lines = [" ".join(error.split()) for error in errors]
    for line in lines:
        complain(line)
    if lines:
        raise typer.Exit(FAILED)


__all__ = ["complain", "finish", "first_line", "print_json", "show"]
