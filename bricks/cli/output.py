"""Output of commands: facts on standard output, messages on standard error, an exit status."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import typer
from rich.console import Console, RenderableType

from bricks.cli.verbosity import Verbosity, verbosity
from bricks.errors import BricksError, one_line, printable

FAILED = 1

# A pipe has no width: its reader accepts lines of any length.
WIDEST = 10_000

_USUAL_WIDTH, _NARROWEST = 80, 20

# Output never fills a screen; but Rich only accepts a width together with a height.
_HEIGHT = 25


class OutputError(BricksError):
    """Standard output cannot be written."""


# Facts about how the running command came to its answer; one set for the process, as verbosity is.
_facts: dict[str, Any] = {}


def answer_with(**facts: Any) -> None:
    """Add ``facts`` to the JSON document of the running command."""
    _facts.update(facts)


@contextmanager
def own_facts() -> Iterator[None]:
    """Forget before and after a run what :func:`answer_with` added."""
    _facts.clear()
    try:
        yield
    finally:
        _facts.clear()


def print_json(data: Any) -> None:
    """Print one JSON document on standard output."""
    with _writing():
        print(json.dumps({**data, **_facts} if _facts else data, indent=2, allow_nan=False))


def show(*parts: RenderableType) -> None:
    """Print texts and tables for people on standard output; lines in a pipe are never wrapped."""
    console = console_of(sys.stdout)
    with _writing():
        for part in parts:
            _print(console, part)


def show_answer(
    answer: str, *parts: RenderableType, remarks: Sequence[str] = (), every: bool = False
) -> None:
    """Print the answer in words on the first line, then ``parts``, then the few main remarks.

    ``every`` shows all remarks. With ``--quiet``, remarks are left out.
    """
    from bricks.report.answers.remarks import fewest

    show(answer, *(["", *parts] if parts else []))
    shown = fewest(remarks, every=every)
    show_notes(*(["", *shown] if shown else []))


def show_notes(*lines: str) -> None:
    """Print as :func:`show` does, unless ``--quiet`` is given."""
    if verbosity() is not Verbosity.QUIET:
        show(*lines)


def console_of(stream: TextIO, width: int = WIDEST) -> Console:
    """A console for ``stream``: with colours on a terminal only, unless NO_COLOR is set.

    FORCE_COLOR enables them in a pipe as well. The line length is COLUMNS, or the terminal's, or
    else ``width``.
    """
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        width=_width(stream) or width,
        height=_HEIGHT,
    )


def _width(stream: TextIO) -> int | None:
    """The requested or actual number of columns; None in a pipe."""
    asked = os.environ.get("COLUMNS", "")
    there = int(asked) if asked.isdecimal() else 0
    if not there and stream.isatty():
        with suppress(OSError):
            there = os.get_terminal_size(stream.fileno()).columns
        there = there or _USUAL_WIDTH  # some terminals do not report theirs
    return min(max(there, _NARROWEST), WIDEST) if there else None


def _print(console: Console, part: RenderableType) -> None:
    from rich.table import Table  # here, since not every command shows one

    endless = console.width == WIDEST
    if isinstance(part, str):
        console.print(printable(part), soft_wrap=endless)
        return
    if isinstance(part, Table):
        from bricks.report.row_lists import fitting

        part = fitting(part, console)
    if not endless:
        console.print(part)
        return
    with console.capture() as printed:
        console.print(part)
    for line in printed.get().splitlines():  # cells are padded to the longest of their column
        console.file.write(f"{line.rstrip()}\n")


def drop_output() -> None:
    """Discard the remaining output; Python would try to write it again at exit."""
    with suppress(OSError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:  # the reader is gone, which is not worth a message
        raise
    except OSError as exc:
        drop_output()
        raise OutputError(
            f"standard output cannot be written ({exc.strerror}): send it elsewhere;"
            " what was measured is kept"
        ) from exc


def print_error(text: str) -> None:
    """Print an error on standard error: on one line, which a terminal's width breaks at words."""
    line = f"bricks: {one_line(text)}"
    if sys.stderr.isatty() and (columns := _width(sys.stderr)) is not None:
        line = textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
    print(line, file=sys.stderr)


def note(text: str) -> None:
    """Print a note on one line of standard error, unless ``--quiet`` is given."""
    if verbosity() is not Verbosity.QUIET:
        print_error(text)


def finish(errors: Iterable[str]) -> None:
    """Print every error on a line of its own; exit with status 1 if there is one."""
    lines = [" ".join(error.split()) for error in errors]
    for line in lines:
        print_error(line)
    if lines:
        raise typer.Exit(FAILED)
