"""Files made to do harm: refused in one line, before anything large is allocated."""

import io
from pathlib import Path

import pytest
from commands import Here
from factories import mlp, model, node, save, value

from bricks.cli import output
from bricks.errors import BricksError, ModelError, printable
from bricks.graph.read import read_model
from bricks.report.tables import decomposition_table

HARMFUL_NAMES = [
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "two\nlines",
    "\r",
    "\u2028",
    "\u202egnp.exe",
    "nul\x00",
    "\x9b2J",
]


def refusal(path: Path) -> str:
    with pytest.raises(ModelError) as caught:
        read_model(path)
    return str(caught.value)


# Names


@pytest.mark.parametrize("name", HARMFUL_NAMES)
def test_what_a_model_calls_its_values_cannot_move_the_cursor(
    here: Here, tmp_path: Path, name: str
) -> None:
    proto = model([node("Add", ["x", f"a{name}b"], ["y"])], [value("x", [1])], [value("y", [1])])
    done = here("decompose", save(proto, tmp_path, "x.onnx"))
    assert done.status == 1
    assert done.complaint.isprintable()
    assert printable(f"'a{name}b', which nobody produces") in done.complaint


def test_a_name_of_megabytes_leaves_what_happened_and_what_to_do() -> None:
    error = BricksError(f"x.onnx: node Relu '{'n' * 4_000_000}' is too long: give it another name")
    assert str(error).startswith("x.onnx: node Relu 'nnn")
    assert str(error).endswith("nnn' is too long: give it another name")
    assert len(str(error)) < 1100


def test_a_file_name_is_no_markup_and_no_escape_sequence(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "[bold red]loud :smile: \x1b[2J[-bold].onnx")
    done = here("decompose", path)
    assert (done.status, done.err) == (0, "")
    assert "[bold red]loud :smile: \\x1b[2J[-bold]" in done.out
    assert "\x1b" not in done.out


def test_a_terminal_gets_no_escape_sequence_from_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdout", screen)
    row = dict.fromkeys(("nodes", "bricks", "occurrences", "unique_share", "flops", "weight_bytes"))
    facts = {**row, "nodes": 1, "model": "[b]\x1b]0;x\x07[/b]"}
    output.show(decomposition_table([facts], facts), "[red]x[/red] \x1b[2J :warning:")
    said = screen.getvalue()
    assert "[b]\\x1b]0;x\\x07[/b]" in said
    assert "[red]x[/red] \\x1b[2J :warning:" in said
    assert "\x07" not in said
    assert "\x1b[2J" not in said
