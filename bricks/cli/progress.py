"""Progress on a terminal: the current activity, its share, and the time left.

It appears when work takes longer than a moment. A single line that is redrawn, and removed at the
end of the work, however that ends. The cursor is never hidden, so that it stays visible even if the
process is killed. A pipe gets only a line for each process that the work waits for. Must not know
what work is done.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bricks.cli.output import console_of, note
from bricks.cli.verbosity import Verbosity, verbosity
from bricks.errors import printable
from bricks.measure.campaign_result import Wait

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
