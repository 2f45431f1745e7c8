"""``bricks zoo``: facts about the models that ship with the package. One command a file."""

from __future__ import annotations

import typer

from bricks.cli.zoo.build import build
from bricks.cli.zoo.coverage import coverage
from bricks.cli.zoo.list import list_models
from bricks.cli.zoo.similarity import similarity

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="The models that ship with bricks, and their recipes.",
)
app.command("list")(list_models)
app.command("build")(build)
app.command()(similarity)
app.command()(coverage)
