from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass

import pytest
from commands import ROOT, environment
from pages import DOCS, blocks, slow_unless_changed

PAGE = DOCS / "tutorial.md"
BLOCKS = blocks(PAGE)
# The name of the machine on the page; readers are told to put their own in its place.
ITS_NAME = "amd-epyc-zen4-2c"
# What is said only where it happens.
OCCASIONAL = (
    "Other processes kept",
    "samples were noisy",
    "bricks were measured again",
    "of the estimate is predicted",  # where a budget is not enough
    ": the interval is ",  # where samples differ much
    "bricks stand for",  # where there are no more important remarks
    "more remarks: add --all",
)

PYTHON = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
BRICKS = PYTHON.replace(' "$@"', ' -m bricks.cli.main "$@"')


@dataclass(frozen=True)
class Step:
    """A command or a script of the page; ``shown`` is the output that the page has for it."""

    command: str
    shown: str | None = None
    file: tuple[str, str] | None = None

    @property
    def fails(self) -> bool:
        """Whether the page shows it refused."""
        return self.shown is not None and self.shown.startswith("bricks: ")


def steps() -> list[Step]:
    found: list[Step] = []
    for number, block in enumerate(BLOCKS):
        after = BLOCKS[number + 1] if number + 1 < len(BLOCKS) else None
        shown = after.text if after is not None and after.language == "text" else None
        if block.language == "console":
            found += [Step(line) for line in block.lines[:-1]]
            found.append(Step(block.lines[-1], shown))
        elif block.language == "python":
            name = block.file or "script.py"
            found.append(Step(":" if block.file else f"python {name}", None, (name, block.text)))
        else:
            assert block.language == "text", block
    return found


STEPS = steps()


@dataclass(frozen=True)
class Done:
    status: int
    said: str


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> list[Done]:
    """The whole page, from top to bottom, in one shell of a newcomer."""
    home = tmp_path_factory.mktemp("home")
    programs, outcomes = home / "bin", home / "outcomes"
    programs.mkdir()
    outcomes.mkdir()
    for program, text in (("bricks", BRICKS), ("python", PYTHON)):
        (programs / program).write_text(text)
        (programs / program).chmod(0o755)
    variables = environment(HOME=str(home))
    name = json.loads(
        subprocess.check_output([*_command(), "systems", "--json", "--cache", home / "none"])
    )["this_host"]["name"]
    script = []
    for number, step in enumerate(STEPS):
        if step.file:
            (outcomes / step.file[0]).write_text(step.file[1], encoding="utf-8")
            script.append(f"cp {outcomes / step.file[0]} .")
        # What it would do can be seen without a network.
        command = step.command.replace("make setup", "make --dry-run setup")
        command = command.replace(ITS_NAME, shlex.quote(name))
        script.append(f"{{ {command}\n}} > {outcomes / str(number)} 2>&1")
        script.append(f"echo $? > {outcomes / f'{number}.status'}")
        if step.command.startswith("export PATH="):
            script.append(f"export PATH={shlex.quote(str(programs))}:$PATH")
    subprocess.run(
        ["bash", "-c", "\n".join(script)], cwd=ROOT, env=variables, check=True, timeout=600
    )
    return [
        Done(int((outcomes / f"{i}.status").read_text()), (outcomes / str(i)).read_text("utf-8"))
        for i in range(len(STEPS))
    ]


def _command() -> list[str]:
    return [sys.executable, "-m", "bricks.cli.main"]


def skeleton(line: str, name: str) -> str:
    """A line without its figures, which differ from run to run, and from machine to machine."""
    line = line.replace(name, "SYSTEM").replace(ITS_NAME, "SYSTEM")
    # Where an interval is wide, which depends on the machine, more is said of what is predicted.
    line = re.sub(r": .*of the estimate is predicted .*", ": of the estimate is predicted", line)
    # So do the sides of an interval, and shares of nearly nothing or nearly all.
    line = re.sub(r"±\d+ %|-\d+ / \+\d+ %", "INTERVAL", line)
    line = re.sub(r"[<>](?=\d)", "", line)
    line = re.sub(r"\b(in|out)side the interval", "beyond or in the interval", line)
    line = re.sub(r" (yes|no)$", " VERDICT", line)  # whether a run lies inside depends on the load
    line = re.sub(r"\b(above|below) the measured", "off the measured", line)
    line = re.sub(r"(?<![A-Za-z_.\d])\d[\d.,]*( (?:(?:s|ms|µs|ns|KiB|MiB|GiB)\b|%))?", "#", line)
    return " ".join(line.split())


@slow_unless_changed(PAGE)
def test_each_command_does_what_the_page_says(done: list[Done]) -> None:
    for step, outcome in zip(STEPS, done, strict=True):
        assert (outcome.status != 0) == step.fails, (step.command, outcome.said)
        if step.command.startswith("bricks "):
            assert outcome.said.strip(), step.command


@pytest.mark.parametrize(
    "number",
    [number for number, step in enumerate(STEPS) if step.shown is not None],
    ids=[step.command[:60] for step in STEPS if step.shown is not None],
)
@slow_unless_changed(PAGE)
def test_what_the_page_shows_still_looks_like_that(number: int, done: list[Done]) -> None:
    """Columns, names and sentences; no times, and no counts."""
    shown, said = STEPS[number].shown, done[number].said
    assert shown is not None
    # Whatever this machine is called stands where the page has its own.
    name = next((w for w in re.findall(r"^([^\s,]+), onnxruntime", said, re.M)), ITS_NAME)
    wanted = [skeleton(line, name) for line in shown.splitlines() if line.strip()]
    found = [skeleton(line, name) for line in said.splitlines() if line.strip()]
    further = [line for line in found if line not in wanted]
    assert [line for line in found if line in wanted] == wanted, said
    assert all(any(words in line for words in OCCASIONAL) for line in further), further


def test_a_page_that_showed_something_else_would_be_found() -> None:
    """What the comparison above sees: another column, another name, another sentence."""
    line = "model       latency  interval  measured"
    assert skeleton(line, "x") != skeleton(line.replace("measured", "share"), "x")
    a, b = "resnet26  46.1 ms  ±13 %  28 %", "resnet26 3 s  -6 / +127 %  <1 %"
    assert skeleton(a, "x") == skeleton(b, "x") != skeleton(b.replace("resnet", "vgg"), "x")


@slow_unless_changed(PAGE)
def test_setting_up_needs_nothing_that_the_page_does_not_name(done: list[Done]) -> None:
    """What ``make setup`` would run, unless it has been: an environment, and the lock file."""
    said = done[0].said
    assert STEPS[0].command == "make setup"
    assert "-m venv .venv" in said or "Nothing to be done" in said or "up to date" in said, said
