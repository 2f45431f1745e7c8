import logging
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from commands import Here, chain
from factories import mlp, save
from terminals import shown_here

import bricks.report.tables as tables

ALL = (
    "Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Sqrt", "Erf", "Floor", "Ceil", "Sin", "Cos",
)  # fmt: skip


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return save(mlp(), tmp_path, "good.onnx")


@pytest.fixture
def denormal(tmp_path: Path) -> Path:
    """A model that everybody should be warned of."""
    proto = mlp()
    for tensor in proto.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        tensor.CopyFrom(onnx.numpy_helper.from_array(array * 0 + 1e-40, tensor.name))
    return save(proto, tmp_path, "denormal.onnx")


def said(done: Any) -> list[str]:
    return [line.removeprefix("bricks: ") for line in done.err.splitlines()]


def test_verbose_says_what_is_done(here: Here, good: Path) -> None:
    done = here("measure", good, "--verbose", "--threads", 1)
    lines = said(done)
    assert f"the cache is {here.cache / 'bricks.sqlite'}" in lines
    assert any(re.fullmatch(r"the target is .+ with fake 1, threads: 1", line) for line in lines)
    assert f"good: reading {good}" in lines
    assert "good: decomposing it" in lines
    bricks_there = here("measure", good, "--json").json["bricks"]
    assert any(line.startswith(f"good: decomposed, bricks: {bricks_there}, ") for line in lines)
    assert any(re.fullmatch(r"measurements wanted: \d+, lacking: \d+", line) for line in lines)
    assert any(re.fullmatch(r"worker \d+ started: fake, threads: 1", line) for line in lines)
    assert any(f": to be measured: {bricks_there}, " in line for line in lines)
    assert any(re.fullmatch(r".*: rounds taken: [1-9]\d*", line) for line in lines)
    assert any(re.fullmatch(r"worker \d+ ended", line) for line in lines)


def test_verbose_says_when_there_is_nothing_to_do(here: Here, good: Path) -> None:
    here("measure", good)
    lines = said(here("measure", good, "-v"))
    assert any(line.startswith("good: its plan is in the cache, bricks: ") for line in lines)
    assert any(line.endswith(", lacking: 0") for line in lines)
    assert not any(line.startswith("worker ") for line in lines)


def test_both_the_program_and_its_commands_take_it(here: Here, good: Path) -> None:
    here("measure", good)
    for option in ("-v", "--verbose"):
        for words in ((option, "measure", good), ("measure", good, option)):
            done = here(*words)
            assert any(line.startswith("the cache is ") for line in said(done)), words


@pytest.mark.parametrize("command", ["decompose", "measure", "predict", "compare", "probe"])
@pytest.mark.slow
def test_every_command_that_measures_takes_both(here: Here, good: Path, command: str) -> None:
    few = ("--bricks", 30) if command == "probe" else ()
    assert said(here(command, good, "-v", *few))
    assert not here(command, good, "-q", "--batch", 2, *few).err.count("cache")


def test_the_next_command_says_no_more_than_usual(here: Here, good: Path) -> None:
    assert here("measure", good, "-v").err
    assert here("measure", good).err == ""
    assert logging.getLogger("bricks").handlers == []
    assert logging.getLogger("bricks").level == logging.NOTSET


def test_verbose_lines_are_printable(here: Here, tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "odd\x1b[31m.onnx")
    done = here("measure", path, "-v")
    assert "\x1b" not in done.err
    assert any(line.startswith("odd\\x1b[31m: reading ") for line in said(done))


def test_quiet_leaves_out_remarks_and_keeps_results(
    here: Here, denormal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "disturbance", lambda *_: ["Somebody was loud."])
    usual = here("compare", denormal)
    quiet = here("compare", denormal, "--quiet")
    assert "warning: denormal: 100 % of its weights are denormal" in usual.complaint
    assert quiet.err == ""
    assert "Somebody was loud." in usual.out
    assert "Somebody was loud." not in quiet.out
    assert "Nothing was run" in here("compare", denormal, "--all").out
    assert "Nothing was run" not in here("compare", denormal, "-q").out
    (row,) = here("compare", denormal, "--json").json["models"]
    shown_row = next(line for line in quiet.out.splitlines() if line.startswith("denormal  "))
    assert f" {row['ratio']:.3f} " in shown_row


def test_quiet_keeps_errors(here: Here, good: Path) -> None:
    done = here("measure", good, "none.onnx", "--quiet")
    assert done.status == 1
    assert done.complaint.startswith("no file or folder is called 'none.onnx'")
    assert " bricks of 1 model are measured" in done.out


def test_quiet_keeps_what_an_estimate_stands_on(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is predicted is no remark: it says what the figure is."""
    for width in (64, 65, 66):
        path = save(chain(*ALL, width=width), tmp_path, f"{width}.onnx")
        assert here("measure", path).status == 0
    new = save(chain(*ALL, width=80), tmp_path, "new.onnx")
    words = ("predict", new, "--no-measure", "--effort", "quick", "-q")
    assert here(*words).out.splitlines()[0].endswith(": 100 % predicted.")


def test_both_at_once_cannot_be_meant(here: Here, good: Path) -> None:
    for one, other in (("-q", "-v"), ("--verbose", "--quiet")):
        for line in (("measure", good, one, other), (one, "measure", good, other)):
            done = here.plain(*line)
            assert (done.status, done.out) == (2, ""), line
            assert "says the opposite of --" in done.complaint


def test_json_is_the_same_whatever_is_said(here: Here, good: Path) -> None:
    here("measure", good)
    for command in ("predict", "decompose"):
        usual = here(command, good, "--json")
        assert len(usual.json["models"]) == 1
        for option in ("-q", "-v"):
            assert here(command, good, "--json", option).out == usual.out, (command, option)


def test_verbose_goes_to_standard_error_alone(here: Here, good: Path) -> None:
    done = here("measure", good, "-v", "--json")
    assert done.json["new_bricks"] > 0
    assert "the cache is" in done.err
    words = ("measure", good, "--runtime", "fake", "--cache", here.cache)
    found = shown_here(*words, "-v", TERM="dumb", columns=200)
    assert found.screen[0].startswith("bricks: the cache is ")
