"""Output of commands: facts, messages, progress and pages, as loud as asked; an exit status.

Facts go to standard output, messages to standard error. The verbosity (``--quiet``, ``--verbose``
or neither) is chosen once for a whole run, by the program's options or by a command's own; the
output of the library's loggers (``bricks.*``, level INFO) depends on it too.

Progress appears when work takes longer than a moment: a single line that is redrawn, and removed at
the end of the work, however that ends. The cursor is never hidden, so that it stays visible even if
the process is killed. A pipe gets only a line for each process that the work waits for.

Files of pages are checked before the work, and written whole or not at all. Must not know what work
is done.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
from rich.console import Console, RenderableType

from bricks.errors import BricksError, UsageError, one_line, printable
from bricks.studies.options import option

if TYPE_CHECKING:
    import logging

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
    from bricks.report.tables import fewest

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
        from bricks.report.tables import fitting

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


_LOGGER = "bricks"


class Verbosity(Enum):
    """How much is printed."""

    QUIET = "--quiet"
    USUAL = ""
    VERBOSE = "--verbose"


# One for the process, not for a thread: threads print for the command that started them.
_chosen = Verbosity.USUAL
_handler: logging.Handler | None = None


def verbosity() -> Verbosity:
    """The verbosity of the running command."""
    return _chosen


@contextmanager
def usual() -> Iterator[None]:
    """Reset the verbosity before and after a run."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _choosing(level: Verbosity) -> Callable[[bool], bool]:
    def choose(flag: bool) -> bool:
        global _chosen
        if flag and _chosen not in (level, Verbosity.USUAL):
            raise typer.BadParameter(f"says the opposite of {_chosen.value}: leave one out")
        if flag:
            _chosen = level
            if level is Verbosity.VERBOSE:
                _listen()
        return flag

    return choose


@dataclass(frozen=True, slots=True, kw_only=True)
class VerbosityOptions:
    """How much is printed besides results; parsing sets the verbosity of the process."""

    quiet: bool = option(
        "Print results and errors alone: no progress, no remarks.",
        default=False, short="-q", check=_choosing(Verbosity.QUIET),
    )  # fmt: skip
    verbose: bool = option(
        "Say on standard error what is being done.",
        default=False, short="-v", check=_choosing(Verbosity.VERBOSE),
    )  # fmt: skip


def _listen() -> None:
    import logging  # here, since most runs need none

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            print(f"bricks: {one_line(record.getMessage())}", file=sys.stderr)

    global _handler
    if _handler is None:
        _handler = Lines(logging.INFO)
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(_handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False  # otherwise handlers of the root logger would print them again


def _forget() -> None:
    global _chosen, _handler
    _chosen = Verbosity.USUAL
    if _handler is not None:
        import logging

        logger = logging.getLogger(_LOGGER)
        logger.removeHandler(_handler)
        logger.setLevel(logging.NOTSET)
        logger.propagate = True
        _handler = None


_BAR_WIDTH = 24

# Work that is done by then shows no progress.
_MOMENT_S = 1.0

# What a command does before anything reports progress.
_BEGINNING = "reading models"

# A bar that is full would count as finished, and show no time left.
_ALMOST = 0.999

# Columns for the spinner, the time left, and the spaces between.
_AROUND = 14


@contextmanager
def terminal_progress() -> Iterator[Callable[[str, float], None]]:
    """Yield a function of the current activity and its finished share, from 0 to 1."""
    if not _enabled():
        yield _noting_waits()
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    console = console_of(sys.stderr)
    console.show_cursor = lambda show=True: False  # type: ignore[method-assign]  # it stays visible
    width = min(_BAR_WIDTH, console.width // 4)
    bar = Progress(
        SpinnerColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(
                no_wrap=True, overflow="ellipsis", max_width=max(1, console.width - width - _AROUND)
            ),
        ),
        BarColumn(width),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=console,
        transient=True,
        refresh_per_second=2,  # drawing takes time from the measurement
        redirect_stdout=sys.stdout.isatty(),  # else results would be printed into the progress line
    )
    task = bar.add_task(_BEGINNING, total=1.0)

    def show(what: str, share: float) -> None:
        bar.update(task, description=printable(what), completed=min(share, _ALMOST))

    with _after_a_moment(bar.start, bar.stop):
        yield show


def _noting_waits() -> Callable[[str, float], None]:
    """A function that notes each process that the work waits for, once."""
    from bricks.measure.campaign_result import Wait  # here, since not every command measures

    noted: set[str] = set()

    def show(what: str, share: float) -> None:
        if isinstance(what, Wait) and what.others not in noted:
            noted.add(what.others)
            note(what)

    return show


@contextmanager
def _after_a_moment(begin: Callable[[], None], end: Callable[[], None]) -> Iterator[None]:
    """Call ``begin`` once the block has run for a moment, and ``end`` after it if that was so."""
    begun = threading.Timer(_MOMENT_S, begin)
    begun.daemon = True
    begun.start()
    try:
        yield
    finally:
        begun.cancel()
        begun.join()
        end()


def _enabled() -> bool:
    """Whether standard error is a terminal that can redraw a line, and ``--quiet`` is not given."""
    dumb = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
    return sys.stderr.isatty() and not dumb and verbosity() is not Verbosity.QUIET


class PageError(BricksError):
    """A page cannot be written."""


def check_page(out: Path) -> None:
    """Raise an error before the work if ``out`` could not be written after it."""
    from bricks.report.page import check_renderer

    check_renderer()
    if not out.parent.is_dir():
        raise UsageError(f"{out}: there is no folder {out.parent}: make it first")


def today() -> str:
    """The date in UTC, such as ``2026-01-31``."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def write_page(path: Path, page: str) -> None:
    """Write the whole file or nothing; an existing file stays until the end."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(page, encoding="utf-8")
        partial.replace(path)
    except OSError as exc:
        partial.unlink(missing_ok=True)
        raise PageError(f"{path} cannot be written ({exc.strerror}): give another --out") from exc
