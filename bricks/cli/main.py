"""The ``bricks`` command: parses a command line, and turns every error into a line and a status."""

from __future__ import annotations

import gc
import io
import os
import re
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import typer

from bricks.cli import invocation
from bricks.cli.command import command
from bricks.cli.commands import LazyCommands, convert_sparingly
from bricks.cli.help import show_page, with_pages
from bricks.cli.invocation import remember
from bricks.cli.output import VerbosityOptions, drop_output, own_facts, print_error, show, usual
from bricks.errors import BricksError, NameUnknown, UsageError

DONE, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130

# Messages of the library that checks values, and what they mean to a person.
_PLAIN = (
    (re.compile(r"Input should be a valid integer.*"), "not a whole number"),
    (re.compile(r"Input should be a valid number.*"), "not a number"),
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"at least \1 is needed"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"at most \1 is possible"),
    (re.compile(r"^Invalid value for '?([^':]+)'?: "), r"\1: "),
)

app = typer.Typer(
    name="bricks",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    help="How fast will this model run on that machine? Composable benchmarks for ONNX models.",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(context: typer.Context, asked: bool) -> None:
    if asked and not context.resilient_parsing:  # a shell only requests completions
        from bricks._version import __version__

        show(f"bricks {__version__}")
        raise typer.Exit(DONE)


# The option's own callback, because the program's callback runs only when a command follows.
@app.callback()
@command
def program(
    verbosity: VerbosityOptions,
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_print_version, help="Print the version."
    ),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the command line; the only place that turns errors into exit statuses."""
    # Most objects live until the command ends, and searching them for garbage often takes a tenth
    # of its time.
    gc.set_threshold(50_000, 20, 100)
    # A stream closed by the caller is None, and the next opened file would get its number.
    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w")  # writing to it is an error
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # not every terminal can show every character
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run the command of ``arguments``; return its exit status."""
    invocation.begin()
    with usual(), own_facts():
        return _run(arguments)


def _run(arguments: list[str]) -> int:
    # Completion of bash passes ``--option=value`` as three words.
    if os.environ.get("_BRICKS_COMPLETE") == "complete_bash":
        from bricks.cli.completion import joined

        asked = os.environ.get("COMP_WORDS", ""), os.environ.get("COMP_CWORD", "0")
        os.environ["COMP_WORDS"], os.environ["COMP_CWORD"] = joined(*asked)
    remember(arguments)
    try:
        status = root_command().main(
            arguments, prog_name="bricks", standalone_mode=False, color=_coloured()
        )
        sys.stdout.flush()
    except typer.TyperException as error:
        return _wrong_usage(_said(error), error, arguments)
    except NameUnknown as error:
        print_error(str(error))
        return WRONG_USAGE
    except UsageError as error:
        return _wrong_usage(str(error), error, arguments)
    except BricksError as error:
        print_error(" ".join(str(error).split()))  # whole: its end is what to do
        return FAILED
    except BrokenPipeError:
        drop_output()  # the reader is gone, so the rest is discarded
        return FAILED
    except OSError as error:
        drop_output()
        where = f" ({error.filename})" if error.filename else ""
        print_error(
            f"the system refused: {error.strerror or error}{where}; what was measured is kept"
        )
        return FAILED
    except (typer.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    if status == INTERRUPTED:  # Typer maps Ctrl-C to this
        if sys.stderr.isatty():
            sys.stderr.write("\r")  # over the ^C that the terminal has printed
        print_error("interrupted; what was measured is kept, the same command goes on from there")
    return status if isinstance(status, int) else DONE


@cache
def root_command() -> Any:
    """Typer's command of the program; its subcommands are imported when they are looked up."""
    root: Any = typer.main.get_command(app)
    convert_sparingly(root)
    root.commands = LazyCommands(with_pages)
    return with_pages(root)


def _wrong_usage(text: str, error: Exception, arguments: Sequence[str]) -> int:
    """Report the error and the command's help; show the help itself if no command was given."""
    context = getattr(error, "ctx", None)
    if context is not None and type(error).__name__ == "NoArgsIsHelpError":  # not a public class
        show_page(context, sys.stderr)
        return WRONG_USAGE
    command = " ".join(["bricks", *_command_words(arguments)])
    print_error(f"{' '.join(text.split())} (try '{command} --help')")
    return WRONG_USAGE


def _command_words(arguments: Sequence[str]) -> Iterator[str]:
    """The words of ``arguments`` that name the command; none of a command that does not exist."""
    command = root_command()
    for word in arguments:
        if word.startswith("-"):  # options of the program, which take no values
            continue
        command = getattr(command, "commands", {}).get(word)
        if command is None:
            return
        yield word


def _said(error: typer.TyperException) -> str:
    """Typer's message; for an unknown option, with the most similar known one."""
    meant = getattr(error, "possibilities", None)
    if meant:
        return f"{error.message}. Did you mean {meant[0]}?"
    text = error.format_message().rstrip(".")
    for theirs, ours in _PLAIN:
        text = theirs.sub(ours, text)
    return text


def _coloured() -> bool | None:
    """Whether Typer's own output has colours; None: on terminals."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return True if os.environ.get("FORCE_COLOR") else None


if __name__ == "__main__":
    main()
