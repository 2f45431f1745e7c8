"""The page that ``--help`` shows: a command's purpose, an example, its options in groups.

Here to replace Typer's own page, which has more frame than text at 80 columns. Pages are data
first, so that the documentation shows the same text. Must not know what commands do.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO

import typer
from typer.core import TyperGroup

from bricks.cli.commands import NAMES, SECTIONS
from bricks.cli.output import console_of

if TYPE_CHECKING:
    from rich.console import RenderableType

FIRST_STEPS = (
    ("bricks zoo list", "the models that come with bricks; your own are ONNX files"),
    ("bricks predict squeezenet", "how fast one is here: measures its bricks, adds them up"),
    ("bricks compare squeezenet", "the estimate beside runs of the whole model"),
    ("bricks predict --help", "all that a command can do"),
)

# Options of nearly every command: listed after a command's own options.
_EVERYWHERE = ("json", "cache", "quiet", "verbose", "help")

_EXAMPLE = re.compile(r"\s*\bExample: (bricks .+)\Z", re.DOTALL)

# Widths in columns: of a page, its maximum on wide terminals, and of the names before descriptions.
_WIDTH, _WIDEST, _WIDEST_NAME = 80, 100, 28

# Larger limits are not shown: no host reaches them.
_BEYOND = 1_000_000

Rows = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Page:
    """The contents of a command's page. ``sections`` are titles, each with names and texts."""

    usage: str
    paragraphs: tuple[str, ...]
    example: str | None
    sections: tuple[tuple[str, Rows], ...]


def with_pages(command: Any) -> Any:
    """Make a Typer command and all its subcommands show these pages; return it."""
    command.format_help = partial(_write, command)
    commands = getattr(command, "commands", {})
    for subcommand in commands.values() if isinstance(commands, dict) else ():
        with_pages(subcommand)
    return command


def show_page(context: typer.Context, stream: TextIO) -> None:
    """Print the page of the command of ``context``."""
    stream.write(_printed(page_of(context.command, context), stream))


def _write(command: Any, context: typer.Context, formatter: Any) -> None:
    formatter.write(_printed(page_of(command, context), sys.stdout))


def _printed(page: Page, stream: TextIO) -> str:
    console = console_of(stream, _WIDTH)
    console.width = min(console.width, _WIDEST)
    with console.capture() as printed:
        for part in _rendered(page):
            console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in printed.get().splitlines())


def page_of(command: Any, context: typer.Context) -> Page:
    """The page of ``command``, whose context is ``context``."""
    text = inspect.cleandoc(command.help or "")
    example = _EXAMPLE.search(text)
    if example is not None:
        text = text[: example.start()]
    paragraphs = [" ".join(paragraph.split()) for paragraph in text.split("\n\n")]
    params = [p for p in command.get_params(context) if not getattr(p, "hidden", False)]
    arguments = [p for p in params if p.param_type_name == "argument"]
    options = [p for p in params if p.param_type_name == "option"]
    is_group = isinstance(command, TyperGroup)
    pieces = ["[OPTIONS]", *map(_in_usage, arguments), *(["COMMAND …"] if is_group else [])]
    sections: list[tuple[str, Rows]] = []
    if context.parent is None:
        sections.append(("First steps", FIRST_STEPS))
    if is_group:
        sections += _commands(command, first=context.parent is None)
    sections.append(("Arguments", tuple((_placeholder(p), _description(p)) for p in arguments)))
    sections += _options(options)
    return Page(
        " ".join(["bricks", *context.command_path.split()[1:], *pieces]),
        tuple(filter(None, paragraphs)),
        None if example is None else " ".join(example[1].split()),
        tuple((title, rows) for title, rows in sections if rows),
    )


def _commands(group: TyperGroup, *, first: bool) -> Iterator[tuple[str, Rows]]:
    """The commands of ``group``; those of the program in sections, none of them imported."""
    names = list(group.commands)
    if first:
        for title, summaries in SECTIONS.items():
            yield title, tuple(summaries.items())
        names = [name for name in names if name not in NAMES]
    yield "Commands", tuple((name, _summary(group.commands[name])) for name in names)


def _summary(command: Any) -> str:
    text = inspect.cleandoc(command.help or "")
    return " ".join(_EXAMPLE.sub("", text).split("\n\n")[0].split())


def _options(options: Sequence[Any]) -> Iterator[tuple[str, Rows]]:
    ordered = sorted(
        options, key=lambda p: _EVERYWHERE.index(p.name) if p.name in _EVERYWHERE else -1
    )
    titles = dict.fromkeys(["Options", *(p.rich_help_panel for p in ordered if p.rich_help_panel)])
    for title in titles:
        rows = [p for p in ordered if (p.rich_help_panel or "Options") == title]
        yield title, tuple((_syntax(p), _description(p)) for p in rows)


def _in_usage(argument: Any) -> str:
    name = _placeholder(argument)
    return name if argument.required else f"[{name}]"


def _placeholder(param: Any) -> str:
    name = str(param.metavar or param.name.upper()).replace("[", "").replace("]", "")
    return f"{name}…" if param.nargs == -1 and not name.endswith("…") else name


def _syntax(option: Any) -> str:
    """The syntax of an option: ``-q, --quiet``, or ``--threads N``."""
    names = ", ".join(sorted(option.opts, key=len))
    return names if option.is_flag else f"{names} {_placeholder(option)}"


def _description(param: Any) -> str:
    notes = "; ".join(note for note in (_limits(param), _default(param)) if note)
    return f"{param.help or ''}{f' [{notes}]' if notes else ''}".strip()


def _limits(param: Any) -> str:
    limited = param if hasattr(param, "min") else getattr(param, "type", None)  # Typer before 0.29
    least, most = getattr(limited, "min", None), getattr(limited, "max", None)
    if most is not None and most < _BEYOND:
        return f"at most {most:g}" if least is None else f"{least:g} to {most:g}"
    return f"at least {least:g}" if least is not None and least > 1 else ""


def _default(param: Any) -> str:
    value = param.default
    if isinstance(param.show_default, str):
        return f"default: {param.show_default}"
    if not param.show_default or callable(value) or value in (None, False, [], ()):
        return ""
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    return f"default: ${param.envvar}, or {shown}" if param.envvar else f"default: {shown}"


def _rendered(page: Page) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    yield Text.assemble(("Usage: ", "bold"), page.usage)
    for paragraph in page.paragraphs:
        yield Padding(Text(paragraph), (1, 0, 0, 0))
    if page.example is not None:
        yield Text("\nExample", style="bold")
        yield Padding(Text(page.example), (0, 0, 0, 2))
    names = [name for _, rows in page.sections for name, _ in rows]
    width = min(max(map(len, names), default=0), _WIDEST_NAME)
    for title, rows in page.sections:
        yield Text(f"\n{title}", style="bold")
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="cyan", width=width, overflow="fold")
        table.add_column(overflow="fold")
        for name, text in rows:
            table.add_row(Text(name), Text(text))
        yield Padding(table, (0, 0, 0, 2))
