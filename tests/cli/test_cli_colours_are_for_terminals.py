import re
from pathlib import Path

import pytest
from commands import COMMAND
from terminals import plain, shown

COMMANDS = (("--help",), ("predict", "--help"), ("backends", "list"), ("zoo", "list"))

# Escape sequences that choose a colour, not one of boldness and the like.
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


def piped(*arguments: str, **variables: str) -> str:
    from subprocess import run

    done = run([*COMMAND, *arguments], capture_output=True, text=True, env=plain(**variables))
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_a_terminal_gets_styles_and_a_pipe_none(command: tuple[str, ...]) -> None:
    assert "\x1b[" in shown(*command).raw
    assert "\x1b" not in piped(*command)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_color_takes_colours_away_from_a_terminal(command: tuple[str, ...]) -> None:
    assert COLOUR.search(shown("--help").raw)
    assert not COLOUR.search(shown(*command, NO_COLOR="1").raw)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dumb_terminal_gets_text_alone(command: tuple[str, ...]) -> None:
    assert "\x1b" not in shown(*command, TERM="dumb").raw


@pytest.mark.parametrize("command", COMMANDS)
def test_force_color_wants_styles_in_a_pipe_too(command: tuple[str, ...]) -> None:
    assert "\x1b[" in piped(*command, FORCE_COLOR="1")


def test_a_host_that_builds_things_is_no_terminal() -> None:
    assert "\x1b" not in piped("--help", GITHUB_ACTIONS="true")


def test_json_has_no_colours_whatever_is_set(tmp_path: Path) -> None:
    words = ("systems", "--json", "--cache", str(tmp_path))
    assert "\x1b" not in shown(*words).raw
    assert "\x1b" not in piped(*words, FORCE_COLOR="1")
