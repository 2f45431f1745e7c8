"""``bricks backends``: which runtimes are installed, and how to install the others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from bricks.cli.command import command
from bricks.cli.options import OutputOptions
from bricks.cli.output import finish, note, print_json, show
from bricks.errors import BackendError
from bricks.studies.options import argument

if TYPE_CHECKING:
    from bricks.system.environments import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeName:
    """The name of a runtime."""

    name: str = argument("The runtime, such as mxnet.", metavar="NAME", values="runtimes")


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    help="The runtimes that models can be measured with, and their install.",
)


@app.command("list")
@command
def list_backends(output: OutputOptions) -> None:
    """List the runtimes, and say what is missing and which command installs it.

    Example: bricks backends list
    """
    from bricks.backends import names

    rows = [_row(name) for name in names()]
    if output.json:
        print_json({"backends": rows})
        return
    from bricks.report.tables import backends_table

    show(backends_table(rows), *dict.fromkeys(row["note"] for row in rows if row["note"]))


@app.command()
@command
def install(runtime: RuntimeName, output: OutputOptions) -> None:
    """Install a runtime that needs an environment of its own.

    Example: bricks backends install mxnet
    """
    from bricks.backends import built_in, offer
    from bricks.backends.users_python import OWN
    from bricks.system import environments

    name = runtime.name
    environment, new = _environment(name), False
    if environment is not None:
        _, new = environments.install(environment, note)
    row = _row(name, OWN if offer(name).package is not None else None)
    if output.json:
        print_json({**row, "new": new})
    elif row["installed"]:
        where = ", with bricks itself" if name in built_in() and environment is None else ""
        show(f"{name} {row['version']} is installed{where}: use it with --runtime {name}")
    finish([] if row["installed"] else [row["missing"]])


def _environment(name: str) -> Environment | None:
    from bricks.backends import offer

    try:
        return offer(name).environment
    except BackendError:
        return None


def _row(name: str, python: str | None = None) -> dict[str, Any]:
    """The facts of a runtime in ``python``; ``missing`` is the remedy if it is not installed.

    ``note`` says which Python of the user runs it.
    """
    from bricks.backends import describe

    environment = _environment(name)
    folder = None if environment is None else str(environment.folder)
    try:
        info = describe(name, python=python)
    except BackendError as error:
        pinned = None if environment is None else environment.pinned(environment.name)
        return {
            "name": name, "installed": False, "version": pinned, "provider": None,
            "environment": folder, "missing": str(error), "note": None,
        }  # fmt: skip
    return {
        "name": name, "installed": True, "version": info.version, "provider": info.provider,
        "environment": folder, "missing": None, "note": info.note,
    }  # fmt: skip
