"""The ``bricks`` command: commands are registered here, and every error ends here."""

from __future__ import annotations

import errno
import os
import sys

import click
import typer

from bricks.cli.cache import app as cache_app
from bricks.cli.compare import compare
from bricks.cli.decompose import decompose
from bricks.cli.measure import measure
from bricks.cli.output import complain
from bricks.cli.predict import predict
from bricks.cli.systems import systems
from bricks.errors import BricksError, UsageError, first_line

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

app = typer.Typer(
    name="bricks",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How fast will this model run on that machine? Composable benchmarks for ONNX models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (decompose, measure, predict, compare, systems):
    app.command()(command)
app.add_typer(cache_app, name="cache")


@app.callback()
def version(
    show: bool = typer.Option(False, "--version", is_eager=True, help="Print the version."),
) -> None:
    """Options of the program itself."""
    if show:
        from bricks import __version__

        print(f"bricks {__version__}")
        raise typer.Exit(DONE)


def main() -> None:
    """Run the command line; the only place that turns errors into exit statuses."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """The exit status of a command line."""
    try:
        status = typer.main.get_command(app).main(
            arguments, prog_name="bricks", standalone_mode=False
        )
        sys.stdout.flush()
        return status if isinstance(status, int) else DONE
    except (click.Abort, KeyboardInterrupt):
        complain("interrupted; what was measured is kept, the same command goes on from there")
        return INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message())
        return WRONG_USAGE
    except (click.ClickException, UsageError) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        complain(f"{first_line(Exception(text))} (try 'bricks --help')")
        return WRONG_USAGE
    except BricksError as error:
        complain(first_line(error, 500))
        return FAILED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nobody reads what is left to say
        return FAILED
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        advice = ": free some space" if error.errno == errno.ENOSPC else ""
        complain(f"the system refused: {error.strerror or error}{where}{advice}")
        return FAILED


if __name__ == "__main__":
    main()
