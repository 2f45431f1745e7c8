"""``--repeat-inputs`` measures a loop over the same input, apart from what fresh inputs take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from commands import Here
from factories import constant, mlp, model, node, save, value

from bricks.system import Runtime, System, Target

PLAIN = Runtime("onnxruntime", "1", "cpu", 1, "none")


def test_a_target_with_repeated_inputs_is_another_one() -> None:
    system = System("host", {"architecture": "x86_64", "instruction_sets": ["avx2"]}, {})
    fresh, repeated = (
        Target(system, replace(PLAIN, repeat_inputs=repeat)) for repeat in (False, True)
    )
    assert fresh.key != repeated.key
    assert fresh.executes_like(repeated)
    assert "repeat_inputs" not in fresh.runtime.to_json()  # keys stay as they were
    assert Runtime(**repeated.runtime.to_json()) == repeated.runtime


@pytest.mark.parametrize("command", ["measure", "predict", "compare"])
def test_both_figures_are_kept_apart(here: Here, tmp_path: Path, command: str) -> None:
    path = save(mlp(), tmp_path, "net.onnx")
    here("measure", path)
    done = here(command, path, "--repeat-inputs", "--json")
    assert done.status == 0
    assert "the same inputs, which processors learn" in done.err
    assert done.json["runtime"]["repeat_inputs"] is True
    assert "repeat_inputs" not in here("measure", path, "--json").json["runtime"]
    for more in ((), ("--repeat-inputs",)):  # each was measured before, and is known
        assert "before." in here("measure", path, *more).out.splitlines()[0]


def test_an_answer_says_where_a_loop_over_one_input_differs(here: Here, tmp_path: Path) -> None:
    nodes = [node("TopK", ["x", "k"], ["y", "positions"])]
    proto = model(nodes, [value("x", [100])], [value("y", [2])], [constant("k", [2], "INT64")])
    path = save(proto, tmp_path, "search.onnx")
    assert "For a loop over one input, add --repeat-inputs." in here("predict", path).out
    (row,) = here("predict", path, "--json").json["models"]
    assert row["changing_inputs"]["share"] == pytest.approx(1)
    assert row["changing_inputs"]["repeated_s"] is None
    (repeated,) = here("predict", path, "--repeat-inputs", "--json").json["models"]
    assert repeated["changing_inputs"] is None
    done = here("predict", path)
    assert "a loop over one input takes" in done.out
    (row,) = here("predict", path, "--json").json["models"]
    assert row["changing_inputs"]["repeated_s"] == pytest.approx(repeated["estimate_s"], rel=0.05)
    (others,) = here("predict", save(mlp(), tmp_path, "net.onnx"), "--json").json["models"]
    assert others["changing_inputs"] is None


def test_studies_have_no_such_loop(here: Here, tmp_path: Path) -> None:
    done = here("scenario", save(mlp(), tmp_path, "net.onnx"), "--repeat-inputs")
    assert done.status != 0
