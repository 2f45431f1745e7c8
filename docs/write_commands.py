"""Write ``commands.md``: the pages of ``--help``, of all commands. Run it where one has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from bricks.cli.help import Page, page_of
from bricks.cli.main import app

HERE = Path(__file__).parent / "commands.md"

BEGINNING = """\
# Commands

What `--help` tells, of every command. Written by `make commands`.

Facts go to standard output (as JSON with `--json`), progress and messages to standard error. The
exit status is 0 when all is done, 1 when something could not be done (a line says what), 2 for
wrong usage and 130 when interrupted.

Colours and progress are for terminals: `NO_COLOR` takes the colours away, `FORCE_COLOR` wants them
in a pipe too. Lines are as long as the terminal is wide, or as `COLUMNS` says; in a pipe as long as
they need to be. `--quiet` and `--verbose` also stand before any command:
`bricks -q zoo build alexnet`.

`bricks --install-completion` makes your shell (bash, zsh or fish) complete commands, options and
their values, models and systems.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([BEGINNING, *_written(typer.main.get_command(app), None, "bricks")])


def _written(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield from _lines(page_of(command, context), context.command_path)
    for below, each in getattr(command, "commands", {}).items():
        yield from _written(each, context, below)


def _lines(said: Page, path: str) -> Iterator[str]:
    yield f"{'#' * min(4, len(path.split()) + 1)} {path}\n"
    for paragraph in said.paragraphs:
        yield f"{paragraph}\n"
    yield f"    {said.usage}\n"
    if said.example is not None:
        yield f"Example:\n\n    {said.example}\n"
    for title, rows in said.sections:
        yield f"{title}:\n"
        for name, text in rows:
            yield f"- `{name}`: {text}"
        yield ""


if __name__ == "__main__":
    HERE.write_text(page(), encoding="utf-8")
