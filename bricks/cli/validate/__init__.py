"""``bricks validate``: the accuracy of what runtimes compute. One command a file."""

from __future__ import annotations

import typer

from bricks.cli.validate.models import models
from bricks.cli.validate.operators import operators

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="Compare what runtimes compute with double precision, and with each other.",
)
app.command()(operators)
app.command()(models)
