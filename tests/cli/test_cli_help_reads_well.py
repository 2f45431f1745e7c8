import inspect
import re
import shlex
from collections.abc import Iterator
from subprocess import run
from typing import Any

import pytest
from commands import COMMAND, Here
from terminals import plain, shown_here
from tiers import slow_but

from bricks.backends import describe
from bricks.cli import options as values
from bricks.cli.commands import SECTIONS
from bricks.cli.help import FIRST_STEPS, page_of
from bricks.cli.main import root_command
from bricks.decompose.granularity import Granularity
from bricks.predict.effort import EFFORTS
from bricks.studies.numerics.operators import LISTS


def below(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command there is, with the words that call it."""
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        yield from below(each, (*words, name))


ROOT: Any = root_command()
COMMANDS = dict(below(ROOT))
SINGLE = {words: each for words, each in COMMANDS.items() if not hasattr(each, "commands")}


def context_of(words: tuple[str, ...]) -> Any:
    context = ROOT.make_context("bricks", [], resilient_parsing=True)
    for number, name in enumerate(words, 1):
        command = COMMANDS[words[:number]]
        context = command.make_context(name, [], parent=context, resilient_parsing=True)
    return context


def page(words: tuple[str, ...]) -> Any:
    return page_of(COMMANDS[words], context_of(words))


def called(line: str) -> tuple[Any, Any]:
    """The command that a line calls, and its context with all options taken in."""
    words = line.split()
    assert words.pop(0) == "bricks"
    command, context, name = ROOT, ROOT.make_context("bricks", [], resilient_parsing=True), "bricks"
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        command = command.commands[name]
        below = hasattr(command, "commands")
        rest = [] if below else shlex.split(" ".join(words))
        context = command.make_context(name, rest, parent=context, resilient_parsing=below)
    return command, context


@pytest.mark.parametrize("columns", slow_but((60).__eq__, [60, 80]))
def test_every_page_fits(here: Here, monkeypatch: Any, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for words in COMMANDS:
        done = here.plain(*words, "--help")
        assert (done.status, done.err) == (0, ""), words
        lines = done.out.splitlines()
        assert max(map(len, lines)) <= columns, words
        assert not any(line != line.rstrip() for line in lines), words
        assert lines[0].startswith(" ".join(("Usage: bricks", *words, "[OPTIONS]")))


def test_every_option_is_told_and_says_what_it_means() -> None:
    for words, command in COMMANDS.items():
        rows = {name: text for _, rows in page(words).sections for name, text in rows}
        for param in command.params:
            if getattr(param, "hidden", False):
                continue
            if param.param_type_name == "option":
                texts = [text for name, text in rows.items() if param.opts[0] in name.split()]
            else:
                name = re.sub(r"[][]", "", param.metavar)
                texts = [text for each, text in rows.items() if each == name]
            (text,) = texts
            assert text.split(" [")[0] == " ".join(param.help.split()), (words, param.name)
            assert param.help.endswith((".", ").")), (words, param.name)


def test_earlier_names_of_options_work_unseen(here: Here) -> None:
    assert "--system" not in here.plain("predict", "--help").out
    told = [
        here.plain("advise", "x", "--slo", "1ms", flag, "none") for flag in ("--on", "--system")
    ]
    assert told[0].complaint == told[1].complaint


def test_every_command_has_an_example_that_calls_it() -> None:
    for words in SINGLE:
        example = page(words).example
        assert example is not None, words
        command, context = called(example)
        assert command is COMMANDS[words], words
        assert context.params, words


def test_what_a_command_does_is_told_in_whole_sentences() -> None:
    for words, command in COMMANDS.items():
        paragraphs = page(words).paragraphs
        assert paragraphs, words
        assert all(re.search(r"[.?]$", each) for each in paragraphs), paragraphs
        assert "Example" not in " ".join(paragraphs), words
        told = " ".join(inspect.cleandoc(command.help).split())
        assert told.startswith(" ".join(paragraphs)), words


def test_the_list_of_commands_shows_the_first_sentence_of_each() -> None:
    summaries = {name: text for texts in SECTIONS.values() for name, text in texts.items()}
    assert sorted(summaries) == sorted(ROOT.commands)
    for name, text in summaries.items():
        assert text == page((name,)).paragraphs[0], name


def test_options_of_many_commands_are_in_groups() -> None:
    titles = [title for title, _ in page(("predict",)).sections]
    assert titles == ["Arguments", "Options", "Models", "Runtime", "Measuring"]
    options = dict(page(("predict",)).sections)["Options"]
    names = [name for name, _ in options]
    assert names[:2] == ["--on SYSTEM,…|all", "--no-measure"]  # its own first
    assert names[-3:] == ["-q, --quiet", "-v, --verbose", "-h, --help"]


def test_defaults_and_limits_are_told() -> None:
    told = {name: text for _, rows in page(("compare",)).sections for name, text in rows}
    assert told["--threads N"].endswith("[1 to 1024; default: physical cores]")
    assert told["--cache PATH_OR_URL"].endswith("[default: $BRICKS_CACHE, or cache]")
    assert told["--precision SHARE"].endswith("[0.0001 to 1; default: 0.01]")
    assert told["--batch N"].endswith("inputs.")
    (models,) = [rows for title, rows in page(("probe",)).sections if title == "Arguments"]
    assert models[0][1].endswith("[default: the whole zoo]")


def test_first_steps_can_be_taken() -> None:
    for line, _ in FIRST_STEPS:
        command, _ = called(re.sub(r"--help$", "squeezenet", line))
        assert command in SINGLE.values(), line


def test_bricks_alone_says_what_to_do_first(here: Here) -> None:
    done = here.plain()
    assert (done.status, done.out) == (2, "")
    for line, what in FIRST_STEPS:
        assert line in done.err
        assert " ".join(what.split()[:3]) in done.err
    positions = [done.err.index(f"\n{title}\n") for title in ("First steps", *SECTIONS, "Options")]
    assert positions == sorted(positions)
    assert here.plain("--help").out == done.err


@pytest.mark.parametrize("group", ["cache", "zoo", "backends"])
def test_a_group_alone_lists_its_commands(here: Here, group: str) -> None:
    done = here.plain(group)
    assert (done.status, done.out) == (2, "")
    for name in ROOT.commands[group].commands:
        assert f"\n  {name} " in done.err


def test_the_page_of_no_command_is_plain_where_standard_error_is() -> None:
    done = run(COMMAND, capture_output=True, text=True, env=plain())
    assert (done.returncode, done.stdout) == (2, "")
    assert "\x1b" not in done.stderr
    assert "\x1b" in shown_here(status=2).raw


def test_a_wide_terminal_does_not_make_lines_too_long_to_read() -> None:
    assert max(map(len, shown_here("predict", "--help", columns=250).screen)) <= 100


def test_values_are_those_that_the_library_takes() -> None:
    assert tuple(values.EFFORTS) == tuple(EFFORTS)
    assert tuple(values.OPTIMIZATIONS) == describe("onnxruntime").levels
    assert tuple(values.LISTS) == LISTS
    for text in values.GRANULARITIES:
        assert str(Granularity.parse(text)) == text


def test_help_does_not_import_what_it_does_not_need() -> None:
    program = (
        "import sys\n"
        "from bricks.cli.main import run\n"
        "run(['--help'])\n"
        "print(*(n for n in ('numpy', 'onnx', 'sqlalchemy', 'sqlite3', 'asyncio')"
        " if n in sys.modules), file=sys.stderr)\n"
    )
    from sys import executable

    done = run([executable, "-c", program], capture_output=True, text=True, env=plain())
    assert (done.returncode, done.stderr.split()) == (0, [])
