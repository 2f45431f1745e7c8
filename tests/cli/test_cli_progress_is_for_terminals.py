import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands import COMMAND, Here, gone, until, workers
from factories import mlp, save
from terminals import CTRL_C, Shown, plain, shown_here, terminal

from bricks.cli.output import terminal_progress
from bricks.measure.campaign_result import Wait
from bricks.store.owners import process_name

# Rounds take so long that somebody can watch, or stop, them.
PACE = "0.004"
SLOW = "0.02"


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    path = save(mlp(), tmp_path, "mlp.onnx")
    return ["measure", str(path), "--runtime", "fake", "--cache", str(tmp_path / "cache")]


def watched(words: list[str], columns: int = 100, **variables: str) -> Shown:
    """A command that was seen through to its end."""
    return shown_here(*words, columns=columns, **{"BRICKS_FAKE_PACE": PACE, **variables})


def test_a_terminal_sees_progress_and_standard_output_stays_clean(
    words: list[str], tmp_path: Path
) -> None:
    variables = plain(BRICKS_FAKE_PACE=PACE)
    with (
        open(tmp_path / "out", "wb") as out,
        terminal([*COMMAND, *words, "--json"], variables=variables, out=out.fileno()) as found,
    ):
        assert found.end() == 0
    text = found.raw
    assert "call overhead" in text
    assert "mlp" in text
    assert "0:00" in text  # the time left
    told = (tmp_path / "out").read_bytes()
    assert told.startswith(b"{")
    assert b"\x1b" not in told


def test_nothing_of_it_stays(words: list[str], tmp_path: Path) -> None:
    """Neither of a name that is longer than the line, nor where lines are said meanwhile."""
    words[1] = str(save(mlp(), tmp_path, f"{'long_' * 30}.onnx"))
    found = watched([*words, "--verbose"], columns=40)
    assert "━" in found.raw and "…" in found.raw
    assert not any("━" in line for line in found.screen)
    assert any("decomposing it" in line for line in found.screen)
    assert any(line.startswith("All 4 bricks ") for line in found.screen)


def test_a_pipe_sees_nothing(here: Here, words: list[str]) -> None:
    done = here.plain(*words, "--json")
    assert (done.status, done.err) == (0, "")
    assert done.json["new_bricks"] == 4


def test_a_pipe_sees_once_which_process_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal_progress() as progress:
        for share in (0.1, 0.2):
            progress(Wait("process 7 (bricks measure net)", f": the rest at {share}"), share)
            progress("measuring net", share)
        progress(Wait("process 8", ", which is measuring"), 0.3)
    first, second = capsys.readouterr().err.splitlines()
    assert "process 7 (bricks measure net)" in first and "process 8" in second


def test_a_process_is_named_by_its_command_without_options() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        name = Path(sys.executable).name
        assert process_name(process.pid) == f"process {process.pid} ({name})"
        process.communicate()
    assert process_name(process.pid) == f"process {process.pid}"


@pytest.mark.parametrize("term", ["dumb", ""])
def test_a_terminal_that_cannot_draw_sees_results_alone(words: list[str], term: str) -> None:
    found = watched(words, TERM=term, BRICKS_FAKE_PACE="0")
    assert "\x1b" not in found.raw
    assert "━" not in found.raw
    assert found.screen[0].startswith("All 4 bricks ")


def test_who_wants_it_quiet_sees_none(words: list[str]) -> None:
    found = watched([*words, "--quiet"], BRICKS_FAKE_PACE="0")
    assert "\x1b" not in found.raw
    assert found.screen[0].startswith("All 4 bricks ")


def test_ctrl_c_leaves_nothing_but_a_line_and_the_cursor(words: list[str]) -> None:
    with terminal([*COMMAND, *words], variables=plain(BRICKS_FAKE_PACE=SLOW)) as found:
        found.until("call overhead ")
        found.until("━")
        children = until(lambda: workers(found.process.pid))
        found.type(CTRL_C)
        assert found.end() == 130
    *line, rest = found.screen  # the line is broken at the width of the terminal
    text = "bricks: interrupted; what was measured is kept, the same command goes on from there"
    assert (" ".join(line).split(), rest) == (text.split(), "")
    assert not found.cursor_hidden
    assert until(lambda: gone(children))


def test_a_process_that_is_killed_takes_no_cursor_along(words: list[str]) -> None:
    with terminal([*COMMAND, *words], variables=plain(BRICKS_FAKE_PACE=SLOW)) as found:
        found.until("call overhead ")
        found.process.send_signal(signal.SIGKILL)
        assert found.end() == -signal.SIGKILL
    assert not found.cursor_hidden


def test_facts_go_where_they_are_sent_while_progress_is_shown(tmp_path: Path) -> None:
    program = (
        "from bricks.cli.output import terminal_progress\n"
        "with terminal_progress() as told:\n"
        "    told('something', 0.5)\n"
        "    print('a fact')\n"
    )
    with (
        open(tmp_path / "out", "wb") as out,
        terminal([sys.executable, "-c", program], out=out.fileno()) as found,
    ):
        assert found.end() == 0
    assert (tmp_path / "out").read_text() == "a fact\n"
    assert "a fact" not in found.raw
