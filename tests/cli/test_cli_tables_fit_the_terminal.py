import io
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Here, bricks
from factories import conv_net, mlp, save
from rich.console import Console
from rich.table import Table
from rough import ROUGH
from terminals import shown, shown_here

from bricks import Bench
from bricks.report.tables import fitting
from bricks.zoo import decoders, entries, programs

COMMANDS = ("compare", "predict", "decompose", "advise --slo 20ms", "zoo coverage")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, and a cache in which they were compared."""
    folder = tmp_path_factory.mktemp("known")
    paths = [save(conv_net(), folder, "convolutional.onnx"), save(mlp(), folder, "dense.onnx")]
    with Bench(folder / "cache", runtime="fake", conditions=ROUGH) as bench:
        bench.compare([*map(bench.read, paths)])
    return folder


def on(folder: Path, command: str = "compare") -> tuple[object, ...]:
    """The words of a command about both models."""
    models = (folder / "convolutional.onnx", folder / "dense.onnx")
    return (*command.split(), *models, "--runtime", "fake", "--cache", folder / "cache")


def test_a_narrow_terminal_loses_nothing(here: Here, folder: Path) -> None:
    """What stands in the table that goes into a pipe, cell by cell, is on terminals too."""
    for command in COMMANDS:
        done = here.plain(*on(folder, command))
        rows = [line.split() for line in done.out.splitlines()]
        cells = {cell for row in rows if row[:1] in (["convolutional"], ["dense"]) for cell in row}
        assert len(cells) > 5, done.out
        for columns in (60, 80):
            screen = shown_here(*on(folder, command), columns=columns).screen
            assert max(map(len, screen)) <= columns, command
            assert cells <= set(" ".join(screen).split()), command


def test_what_is_too_wide_is_told_row_by_row(folder: Path) -> None:
    lines = shown_here(*on(folder), columns=60).screen
    start = lines.index("convolutional")
    assert re.match(r"  bricks \d+ · measured \S+ .s · estimate ", lines[start + 1])
    assert "ratio" in lines[start + 2]
    assert lines[start + 3] == "dense"


def test_what_is_wide_enough_is_a_table(folder: Path) -> None:
    lines = shown_here(*on(folder), columns=90).screen
    head = next(line for line in lines if line.startswith("model"))
    row = next(line for line in lines if line.startswith("convolutional"))
    assert head.split()[0::5] == ["model", "ratio"]
    assert len(row) == len(head)


def test_columns_counts_more_than_the_terminal(folder: Path) -> None:
    assert " · ratio" not in "\n".join(shown_here(*on(folder), columns=100).screen)
    assert " · ratio" in "\n".join(shown_here(*on(folder), columns=100, COLUMNS="60").screen)


def test_columns_that_make_no_sense_do_not_count(folder: Path) -> None:
    for columns in ("0", "-3", "wide", ""):
        found = shown_here(*on(folder), columns=90, COLUMNS=columns)
        assert any(line.startswith("model ") for line in found.screen), columns


def test_a_dumb_terminal_is_as_wide_as_it_says(folder: Path) -> None:
    found = shown_here(*on(folder), columns=60, TERM="dumb")
    assert max(map(len, found.screen)) <= 60
    assert "convolutional" in found.screen


def test_a_pipe_is_as_wide_as_needed(here: Here, folder: Path) -> None:
    for words in (("systems", "--cache", folder / "cache"), ("zoo", "list")):
        out = here.plain(*words).out
        assert not any(line != line.rstrip() for line in out.splitlines())
        assert "…" not in out
    names = sorted(entry.name for entry in (*entries(), *programs(), *decoders()))
    rows = out.splitlines()[1 : len(names) + 1]
    assert [row.split()[0] for row in rows] == names


def test_sentences_break_between_words(folder: Path) -> None:
    lines = shown_here(*on(folder), columns=60).screen
    assert re.search(r" \d+ bricks stand for 20 occurrences in 2 models\.", " ".join(lines))
    assert not any(line.endswith(" occurrences in 2 models.") for line in lines)


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
    here: Here, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (*on(folder, "predict"), "--json")
    usual = here.plain(*words)
    monkeypatch.setenv("COLUMNS", "30")
    assert len(usual.json["models"]) == 2
    assert here.plain(*words).out == usual.out


def test_a_refusal_is_broken_at_words() -> None:
    words = ("predict", "torch_gpt2", "--device", "cuda", "--runtime", "torch-compiled")
    lines = shown(*words, columns=60, status=1).screen
    assert len(lines) > 1 and max(map(len, lines)) <= 60
    assert " ".join(lines).split() == bricks(*words).err.split()


def test_an_answer_begins_on_a_line_of_its_own(folder: Path) -> None:
    model = folder / "convolutional.onnx"
    words = (model, "--without", "Relu", "--cache", folder / "cache", "--runtime", "fake")
    lines = shown("explain", *words, columns=80).screen
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("convolutional without ")
