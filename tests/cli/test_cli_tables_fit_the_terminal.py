import io
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from commands import COMMAND, Here
from rich.console import Console
from rich.table import Table
from terminals import plain, shown

from bricks.report.narrow import fitting
from bricks.zoo import decoders, entries, programs

MODELS = ("squeezenet", "shufflenet")
COMMANDS = (
    ("compare", *MODELS),
    ("predict", *MODELS),
    ("decompose", *MODELS),
    ("advise", *MODELS, "--slo", "20ms"),
    ("zoo", "coverage", *MODELS),
    ("zoo", "similarity", *MODELS),
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("known")
    words = ("compare", *MODELS, "--runtime", "fake", "--cache", str(folder))
    assert run([*COMMAND, *words], capture_output=True, env=plain()).returncode == 0
    return folder


def on(cache: Path) -> tuple[object, ...]:
    return ("--runtime", "fake", "--cache", cache)


def cells(here: Here, command: tuple[str, ...], cache: Path) -> list[str]:
    """What stands in the table that a command prints into a pipe, cell by cell."""
    done = here.plain(*command, *on(cache))
    rows = [line for line in done.out.splitlines() if line.split(" ")[0] in (*MODELS, "all")]
    assert rows, done.out
    return [cell for row in rows for cell in row.split()]


@pytest.mark.parametrize("columns", [60, 80])
@pytest.mark.parametrize("command", COMMANDS[:-1], ids=lambda c: " ".join(c[:2]))
@pytest.mark.slow
def test_a_narrow_terminal_loses_nothing(
    here: Here, cache: Path, command: tuple[str, ...], columns: int
) -> None:
    found = shown(*command, *on(cache), columns=columns)
    assert max(map(len, found.screen)) <= columns
    assert set(" ".join(found.screen).split()) >= set(cells(here, command, cache))


def test_what_is_too_wide_is_told_row_by_row(cache: Path) -> None:
    lines = shown("compare", *MODELS, *on(cache), columns=60).screen
    start = lines.index("squeezenet")
    assert lines[start + 1].startswith("  bricks 38 · new 0 · measured ")
    assert "ratio" in lines[start + 2]
    assert lines[start + 3] == "shufflenet"


def test_what_is_wide_enough_is_a_table(cache: Path) -> None:
    lines = shown("compare", *MODELS, *on(cache), columns=80).screen
    head = next(line for line in lines if line.startswith("model"))
    row = next(line for line in lines if line.startswith("squeezenet"))
    assert head.split()[0::6] == ["model", "ratio"]
    assert len(row) == len(head)


@pytest.mark.slow
def test_columns_counts_more_than_the_terminal(cache: Path) -> None:
    words = ("compare", *MODELS, *on(cache))
    assert "  bricks 38 ·" not in "\n".join(shown(*words, columns=100).screen)
    assert "  bricks 38 ·" in "\n".join(shown(*words, columns=100, COLUMNS="60").screen)


@pytest.mark.parametrize("columns", ["0", "-3", "wide", ""])
@pytest.mark.slow
def test_columns_that_make_no_sense_do_not_count(cache: Path, columns: str) -> None:
    found = shown("compare", *MODELS, *on(cache), columns=80, COLUMNS=columns)
    assert any(line.startswith("model ") for line in found.screen)


def test_a_dumb_terminal_is_as_wide_as_it_says(cache: Path) -> None:
    found = shown("compare", *MODELS, *on(cache), columns=60, TERM="dumb")
    assert max(map(len, found.screen)) <= 60
    assert "squeezenet" in found.screen


def test_a_pipe_is_as_wide_as_needed(cache: Path) -> None:
    for words in (["systems", "--cache", str(cache)], ["zoo", "list"]):
        done = run([*COMMAND, *words], capture_output=True, text=True, env=plain())
        assert not any(line != line.rstrip() for line in done.stdout.splitlines())
        assert "…" not in done.stdout
    names = sorted(entry.name for entry in (*entries(), *programs(), *decoders()))
    rows = done.stdout.splitlines()[1 : len(names) + 1]
    assert [row.split()[0] for row in rows] == names


def test_sentences_break_between_words(cache: Path) -> None:
    lines = shown("compare", *MODELS, *on(cache), columns=60).screen
    text = " ".join(lines)
    assert "91 bricks stand for 269 occurrences in 2 models." in text


def told(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=25, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(fitting(table, console))
    return [line.rstrip() for line in captured.get().splitlines()]


def table(*titles: str, **options: Any) -> Table:
    made = Table(box=None, pad_edge=False, **options)
    for title in titles:
        made.add_column(title, no_wrap=True)
    return made


def test_what_is_longer_than_a_line_is_broken_and_not_cut() -> None:
    made = table("name", "digest")
    made.add_row("n" * 30, "d" * 70)
    assert "".join("".join(told(made, 24)).split()) == "n" * 30 + "digest" + "d" * 70


def test_text_that_may_break_stays_in_its_table() -> None:
    made = Table(box=None, show_header=False)
    for _ in range(2):
        made.add_column(overflow="fold")
    made.add_row("flags", " ".join(["word"] * 40))
    assert len(told(made, 40)) > 5
    assert not any("·" in line for line in told(made, 40))


def test_cells_without_anything_are_left_out() -> None:
    made = table("host", "remark")
    made.add_row("h" * 30, "")
    assert told(made, 20) == ["h" * 20, "h" * 10]


def test_markup_of_others_means_nothing() -> None:
    made = table("name", "value")
    made.add_row("[bold]" * 5, "[/red]")
    assert "[/red]" in "".join(told(made, 20))


def test_json_does_not_ask_how_wide_anything_is(
    here: Here, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", *MODELS, "--json", *on(cache))
    usual = here.plain(*words)
    monkeypatch.setenv("COLUMNS", "30")
    assert here.plain(*words).out == usual.out
