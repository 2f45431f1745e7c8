import re
from collections import Counter
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from pages import DOCS, script

from bricks.cli.help import page_of
from bricks.cli.main import root_command


@pytest.fixture(scope="module")
def commands() -> ModuleType:
    return script("write_commands")


@pytest.fixture(scope="module")
def written(commands: ModuleType) -> str:
    page: str = commands.page()
    return page


def test_the_page_is_what_help_says(written: str) -> None:
    page = (DOCS / "commands.md").read_text(encoding="utf-8")
    assert page == written, "run: .venv/bin/python docs/write_commands.py"


def test_the_page_does_not_depend_on_who_writes_it(
    commands: ModuleType, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("COLUMNS", "40"), ("NO_COLOR", "1"), ("BRICKS_CACHE", "elsewhere")):
        monkeypatch.setenv(name, value)
    assert commands.page() == written


def sections(page: str) -> dict[str, str]:
    """The text below each heading of the page."""
    parts = re.split(r"^#{1,4} (.*)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def options_in(section: str) -> list[str]:
    """The options that a section lists, each with its description, without what links follow it."""
    lines = re.findall(r"^- (`-.*)$", section, re.MULTILINE)
    return [line.partition(" Differs in [")[0] for line in lines]


def options_named(section: str, page: dict[str, str]) -> list[str]:
    """The options of the shared groups that a section names, less those that it excludes."""
    (line,) = re.findall(r"^Shared options: (.*)\.$", section, re.MULTILINE)
    found = []
    for reference in line.split("; "):
        form = r"(?:of )?\[(\w+)\]\(#\w+\)(?: (only|without) ((?:`--[a-z-]+`(?:, |$))+))?"
        matched = re.fullmatch(form, reference)
        assert matched is not None, reference
        group, how, flags = matched[1], matched[2], re.findall(r"`(--[a-z-]+)`", matched[3] or "")
        options = options_in(page[group])
        named = [o for o in options if set(flags) & set(re.findall(r"--[a-z-]+", o.split("`")[1]))]
        assert len(named) == len(flags), reference
        found += named if how == "only" else [o for o in options if o not in named]
    return found


def helps(command: Any, parent: Any, name: str) -> Iterator[tuple[str, list[str]]]:
    """Each command with the options that its help lists, each with its description."""
    context = command.make_context(name, [], parent=parent, resilient_parsing=True)
    rows = [row for _, rows in page_of(command, context).sections for row in rows]
    yield context.command_path, [f"`{n}`: {text}" for n, text in rows if n.startswith("-")]
    for below, each in getattr(command, "commands", {}).items():
        yield from helps(each, context, below)


def test_every_option_of_a_command_is_in_its_section_or_in_a_shared_group_that_it_names(
    written: str,
) -> None:
    page = sections(written)
    paths = set()
    for path, options in helps(root_command(), None, "bricks"):
        found = options_in(page[path]) + options_named(page[path], page)
        assert sorted(found) == sorted(options), path
        paths.add(path)
    assert {"bricks", "bricks measure", "bricks cache export"} < paths


def test_a_shared_option_is_described_once(written: str) -> None:
    page = sections(written)
    groups = re.findall(r"^### (\w+)$", written.partition("## Shared options")[2], re.M)
    shared = [option for group in groups for option in options_in(page[group])]
    assert {"Models", "Runtime", "Measuring"} < set(groups)
    assert {"`--json`", "`-h, --help`"} <= {option.partition(":")[0] for option in shared}
    printed = Counter(option for section in page.values() for option in options_in(section))
    assert [option for option in shared if printed[option] != 1] == []


def test_an_option_that_means_something_else_to_a_command_is_listed_by_that_command(
    written: str,
) -> None:
    page = sections(written)
    assert "- `--budget SECONDS`: " in page["bricks probe"]
    (shared,) = re.findall(r"^- `--budget SECONDS`.*$", page["Measuring"], re.MULTILINE)
    assert shared.endswith(" Differs in [bricks probe](#bricks-probe).")
