"""How commands end: facts on standard output, messages on standard error, an exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import typer
from rich.console import Console, RenderableType

from bricks.errors import BricksError, one_line, printable

FAILED = 1


class OutputError(BricksError):
    """Standard output does not take what is printed."""


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    with _writing():
        print(json.dumps(data, indent=2, allow_nan=False))


def show(*parts: RenderableType) -> None:
    """For people, on standard output; in a pipe as wide as it needs to be."""
    width = None if sys.stdout.isatty() else 160
    console = Console(highlight=False, markup=False, emoji=False, width=width)
    with _writing():
        for part in parts:
            if isinstance(part, str):
                console.print(printable(part), soft_wrap=True)
            else:
                console.print(part)


def drop_output() -> None:
    """Send what is left to print nowhere; Python would try once more when it exits."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, which is not worth a message
        raise
    except OSError as exc:
        drop_output()
        raise OutputError(
            f"standard output cannot be written ({exc.strerror}): send it elsewhere;"
            " what was measured is kept"
        ) from exc


def complain(text: str) -> None:
    """One line on standard error: what is wrong, or what is going on meanwhile."""
    print(f"bricks: {one_line(text)}", file=sys.stderr)


def finish(errors: Iterable[str]) -> None:
    """Say every error on a line of its own; exit with status 1 if there is one."""
    lines = [" ".join(error.split()) for error in errors]
    for line in lines:
        complain(line)
    if lines:
        raise typer.Exit(FAILED)
