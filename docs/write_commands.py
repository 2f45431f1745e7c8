"""Write ``commands.md``: the pages of ``--help``, of all commands. Run it where one has changed.

Arguments and options that many commands share are printed once, at the end of the page. Each
command names the groups of them that it takes, and lists its other options itself. Lists of
commands are links, because the first line of a command's own section says what it does.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bricks.cli.help import Page, page_of
from bricks.cli.main import root_command

HERE = Path(__file__).parent / "commands.md"

BEGINNING = """\
# Commands

The help texts of all commands, as `--help` prints them. Written by `make commands`.
[Shared options](#shared-options) lists arguments and options of many commands once; each command
names the groups of them that it takes. The [glossary](glossary.md) defines the terms.

Facts go to standard output (as JSON with `--json`), progress and messages to standard error. The
exit status is

- 0 when the command did its work,
- 1 when it could not do something (a line on standard error says what),
- 2 for wrong usage,
- 130 when interrupted.

Only terminals get colours and progress. `NO_COLOR` turns colours off, `FORCE_COLOR` turns them on
in a pipe too. Lines wrap at the width of the terminal, or at `COLUMNS`; in a pipe they do not wrap.
`--quiet` and `--verbose` may also stand before any command: `bricks -q zoo build alexnet`.

`bricks --install-completion` makes your shell (bash, zsh or fish) complete commands, options and
their values, models and systems.
"""

SHARED = """\
## Shared options

A command that gives one of these options another meaning or another default lists it itself; the
option's entry here then links to that command.
"""

# The title of options without a group of their own, and the name of those of them that are shared.
PLAIN, GENERAL = "Options", "General"
# The title of arguments; those of two commands are shared.
ARGUMENTS = "Arguments"
# An option of a group is shared by two commands; one without a group, by as many as this.
MANY = 6

Row = tuple[str, str]
Groups = Mapping[str, Sequence[Row]]


def page() -> str:
    """The whole page."""
    pages = dict(_pages(root_command(), None, "bricks"))
    groups, arguments = shared(pages.values()), _shared_arguments(pages.values())
    lines = [BEGINNING]
    for path, said in pages.items():
        lines += _command(said, path, groups, arguments, pages)
    lines += [SHARED, f"### {ARGUMENTS}\n", *_rows([_bracketed(row) for row in arguments]), ""]
    return "\n".join([*lines, *_groups(groups, pages)])


def _shared_arguments(pages: Iterable[Page]) -> list[Row]:
    """The arguments that several commands take and describe alike."""
    taken = Counter(
        row for said in pages for title, rows in said.sections if title == ARGUMENTS for row in rows
    )
    return [row for row, times in taken.items() if times > 1]


def _bracketed(row: Row) -> Row:
    """An argument that has a default in brackets, as in the line of its usage."""
    name, text = row
    return (f"[{name}]" if "[default:" in text else name, text)


def _pages(command: Any, parent: Any, name: str) -> Iterator[tuple[str, Page]]:
    """The path of each command and what its help says."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    yield context.command_path, page_of(command, context)
    for below, each in getattr(command, "commands", {}).items():
        yield from _pages(each, context, below)


def shared(pages: Iterable[Page]) -> Groups:
    """The options that are printed once, by group: each as most commands describe it."""
    said: dict[tuple[str, str], Counter[Row]] = defaultdict(Counter)
    # The command with the most options decides the order.
    for each in sorted(pages, key=_option_count, reverse=True):
        for title, row in _options(each):
            said[title, _flag(row)][row] += 1
    groups: dict[str, list[Row]] = defaultdict(list)
    for (title, _), rows in said.items():
        row, times = rows.most_common(1)[0]
        if times >= (MANY if title == PLAIN else 2):
            groups[GENERAL if title == PLAIN else title].append(row)
    return {title: groups[title] for title in sorted(groups, key=GENERAL.__eq__)}


def _options(said: Page) -> Iterator[tuple[str, Row]]:
    """The options of a command, each with the title that it stands under."""
    for title, rows in said.sections:
        yield from ((title, row) for row in rows if row[0].startswith("-"))


def _option_count(said: Page) -> int:
    return sum(1 for _ in _options(said))


def _flag(row: Row) -> str:
    """The long name of an option: ``--quiet`` of ``-q, --quiet``."""
    return row[0].split(", ")[-1].split()[0]


def _command(
    said: Page,
    path: str,
    groups: Groups,
    arguments: Sequence[Row],
    pages: Mapping[str, Page],
) -> Iterator[str]:
    yield f"{'#' * min(4, len(path.split()) + 1)} {path}\n"
    for paragraph in said.paragraphs:
        yield f"{paragraph}\n"
    yield f"    {said.usage}\n"
    if said.example is not None:
        yield f"Example:\n\n    {said.example}\n"
    elsewhere = {*arguments, *(row for rows in groups.values() for row in rows)}
    for title, rows in said.sections:
        own = [row for row in rows if row not in elsewhere]
        below = [name for name, _ in own if f"{path} {name}" in pages]
        if below:
            links = ", ".join(f"[{name}](#{path.replace(' ', '-')}-{name})" for name in below)
            yield f"{title}: {links}.\n"
        elif own:
            yield f"{title}:\n"
            yield from _rows(own)
            yield ""
    taken = [row for _, row in _options(said)]
    named = any(row in arguments for _, rows in said.sections for row in rows)
    references = [f"[{ARGUMENTS}](#{ARGUMENTS.lower()})" if named else ""]
    references += [_reference(title, rows, taken) for title, rows in groups.items()]
    yield f"Shared options: {'; '.join(filter(None, references))}.\n"


def _reference(title: str, rows: Sequence[Row], taken: Sequence[Row]) -> str:
    """Which options of a group a command takes, said with the fewest names; "" for none."""
    mine = [f"`{_flag(row)}`" for row in rows if row in taken]
    others = [f"`{_flag(row)}`" for row in rows if row not in taken]
    link = f"[{title}](#{title.lower()})"
    if not mine or not others:
        return link if mine else ""
    if len(mine) <= len(others):
        return f"of {link} only {', '.join(mine)}"
    return f"{link} without {', '.join(others)}"


def _groups(groups: Groups, pages: Mapping[str, Page]) -> Iterator[str]:
    for title, rows in groups.items():
        yield f"### {title}\n"
        yield from _rows([(name, text + _differing((name, text), pages)) for name, text in rows])
        yield ""


def _differing(row: Row, pages: Mapping[str, Page]) -> str:
    """Links to the few commands that have an option of this name and describe it otherwise."""
    taken = {
        path: [other for _, other in _options(said) if _flag(other) == _flag(row)]
        for path, said in pages.items()
    }
    paths = [path for path, rows in taken.items() if any(other != row for other in rows)]
    if len(paths) >= sum(row in rows for rows in taken.values()):
        return ""
    links = ", ".join(f"[{path}](#{path.replace(' ', '-')})" for path in paths)
    return f" Differs in {links}." if links else ""


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    for name, text in rows:
        yield f"- `{name}`: {text}"


if __name__ == "__main__":
    HERE.write_text(page(), encoding="utf-8")
