import re
from pathlib import Path

import pytest
from commands import COMMAND, Here
from terminals import plain, shown, shown_here

COMMANDS = (("--help",), ("predict", "--help"), ("backends", "list"), ("zoo", "list"))

# Escape sequences that choose a colour, not one of boldness and the like.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


@pytest.fixture(autouse=True)
def _an_ordinary_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def piped(*arguments: str, **variables: str) -> str:
    from subprocess import run

    done = run([*COMMAND, *arguments], capture_output=True, text=True, env=plain(**variables))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_terminal_gets_styles_and_a_pipe_none() -> None:
    """The program itself; the other tests run commands in this process."""
    assert COLOUR.search(shown("--help").raw)
    assert "\x1b" not in piped("--help", GITHUB_ACTIONS="true")  # that is no terminal either
    assert "\x1b[" in piped("--help", FORCE_COLOR="1")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_variables_decide_what_a_terminal_gets(command: tuple[str, ...]) -> None:
    assert "\x1b[" in shown_here(*command).raw
    assert not COLOUR.search(shown_here(*command, NO_COLOR="1").raw)
    assert "\x1b" not in shown_here(*command, TERM="dumb").raw


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_force_color_wants_styles_in_a_pipe_too(
    here: Here, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    assert "\x1b" not in here.plain(*command).out
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in here.plain(*command).out


def test_json_has_no_colours_whatever_is_set(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("systems", "--json", "--cache", str(tmp_path))
    assert "\x1b" not in shown_here(*words).raw
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in here.plain(*words).out
