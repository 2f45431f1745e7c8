"""Progress on a terminal: what is being done, how far, and the time left. Quiet in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bricks.errors import printable


@contextmanager
def terminal_progress() -> Iterator[Callable[[str, float], None]]:
    """A function that is told what is being done and which share of it is."""
    if not sys.stderr.isatty():
        yield lambda what, share: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

    bar = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        refresh_per_second=2,  # drawing takes time from what is being measured
    )
    with bar:
        task = bar.add_task("", total=1.0)

        def show(what: str, share: float) -> None:
            bar.update(task, description=printable(what), completed=share)

        yield show
