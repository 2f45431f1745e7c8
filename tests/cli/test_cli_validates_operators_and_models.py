from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch_environment
from commands import Here, chain
from factories import conv_net, mlp, save
from torch_environment import program

NORMS = {"l1", "l2", "linf", "l1_relative", "l2_relative", "linf_relative"}
ACCURACY = {
    "reference", "reason", "outputs", "repeats", "distinct", "max_variance", "gradients",
    "gradients_reason",
}  # fmt: skip
OUTPUT = {"output", "shape", "dtype", "norms", "reason", "heat_map", "variance_map"}


@pytest.fixture
def tanh(tmp_path: Path) -> Path:
    return save(chain("Tanh"), tmp_path, "tanh.onnx")


def only(facts: Any) -> Any:
    (one,) = facts
    return one


def test_operators_tell_their_facts_as_json_and_as_a_page(here: Here, tanh: Path) -> None:
    page = tanh.with_name("page.html")
    words = ("validate", "operators", tanh, "--threads", 1, "--out", page, "--json")
    done = here(*words, runtime="onnxruntime")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == {"system", "missing", "runtimes", "operators", "page"}
    assert facts["page"] == str(page) and facts["missing"] == []
    runtime = only(facts["runtimes"])
    assert runtime["backend"] == "onnxruntime"
    assert runtime["peaks"].keys() == {"flops_per_s", "bytes_per_s", "levels"}
    operator = only(facts["operators"])
    assert operator.keys() == {"operator", "source", "flops", "bytes", "runtimes"}
    assert (operator["operator"], operator["flops"], operator["bytes"]) == ("tanh", 64, 512)
    run = only(operator["runtimes"])
    assert run.keys() == {
        "runtime", "form", "latency_s", "low_s", "high_s", "flops_per_s", "bytes_per_s",
        "peak_share", "bound", "accuracy", "accuracy_error", "error",
    }  # fmt: skip
    assert run["low_s"] <= run["latency_s"] <= run["high_s"]
    accuracy = run["accuracy"]
    assert accuracy.keys() == ACCURACY
    assert accuracy["repeats"] == 5
    output = only(accuracy["outputs"])
    assert output.keys() == OUTPUT
    assert output["norms"].keys() == NORMS
    assert output["norms"]["linf_relative"] < 1e-5
    assert (len(output["heat_map"]), len(output["heat_map"][0])) == (1, 32)
    # The page holds the heat maps, and asks for nothing.
    text = page.read_text(encoding="utf-8")
    assert text.count("data:image/png;base64,") == 1
    assert "default-src 'none'" in text
    assert "<script" not in text
    assert not re.search(r"""(src|href)=["'](https?:)?//""", text)


def test_what_cannot_be_evaluated_is_named_and_the_rest_stands(here: Here, tanh: Path) -> None:
    page = tanh.with_name("page.html")
    done = here("validate", "operators", tanh, "--out", page)
    assert done.status == 0
    assert f"{page}: open it in any browser." in done.out
    assert "tanh" in done.out
    assert "fake: not evaluated: the fake runtime computes nothing" in done.out
    facts = here("validate", "operators", tanh, "--json").json
    run = only(only(facts["operators"])["runtimes"])
    assert run["error"] is None and run["latency_s"] > 0
    assert run["accuracy"] is None
    assert "computes nothing" in run["accuracy_error"]


def test_the_exit_status_is_1_only_where_nothing_ran(
    here: Here, tanh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_FAKE_FAULTS", "Tanh=error")
    done = here("validate", "operators", tanh)
    assert done.status == 1
    assert "nothing ran" in done.complaint and "failed as ordered" in done.complaint
    done = here(
        "validate", "operators", tanh, save(chain("Neg"), tanh.parent, "neg.onnx"), "--json"
    )
    assert done.status == 0
    failed, ran = (only(each["runtimes"]) for each in done.json["operators"])
    assert "failed as ordered" in failed["error"] and failed["latency_s"] is None
    assert ran["error"] is None and ran["latency_s"] > 0


@pytest.mark.slow
def test_what_one_runtime_cannot_run_another_may(here: Here, tanh: Path) -> None:
    torch_environment.python()
    shrink = save(chain("Shrink"), tanh.parent, "shrink.onnx")
    done = here("validate", "operators", shrink, runtime="torch")
    assert done.status == 1
    assert done.complaint == "nothing ran: no counterpart of Shrink in PyTorch is known"
    done = here("validate", "operators", shrink, "--runtime", "torch")
    assert done.status == 0
    assert "torch: not measured: no counterpart of Shrink in PyTorch is known (shrink)" in done.out
    done = here("validate", "operators", tanh, runtime="torch")
    assert done.status == 0
    assert "torch: ran its counterparts of ONNX's operators (tanh)" in done.out


def test_a_mistyped_word_is_met_with_the_nearest(here: Here) -> None:
    for word, *facts in (
        ("deepbnch", "'deepbnch'", "did you mean deepbench?"),
        ("gemm_35x700x204", "did you mean gemm_35x700x2048?"),
        ("zzz", "deepbench, zoo, conv_1x1x161x700_32x5x20_s2"),
    ):
        done = here("validate", "operators", word)
        assert (done.status, done.out) == (2, ""), word
        assert all(fact in done.complaint for fact in facts), done.complaint


@pytest.mark.slow
def test_a_file_that_is_not_there_does_not_stop_the_others(here: Here, tanh: Path) -> None:
    done = here("validate", "operators", tanh.with_name("tanhh.onnx"), tanh)
    assert done.status == 1
    assert done.complaint.endswith(f"did you mean {tanh}?")
    assert "tanh" in done.out


def test_a_runtime_that_nobody_has_is_met_with_the_nearest(here: Here, tanh: Path) -> None:
    done = here("validate", "operators", tanh, runtime="onnxrt")
    assert done.status == 2
    assert "no runtime is called 'onnxrt': did you mean onnxruntime?" in done.complaint


def test_runtimes_that_are_not_installed_are_named(
    here: Here, tanh: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "none"))
    done = here("validate", "operators", tanh, "--runtime", "mxnet", "--json")
    assert done.status == 0
    assert only(done.json["missing"])["runtime"] == "mxnet"
    assert "mxnet is left out: " in done.complaint
    assert "bricks backends install mxnet" in done.complaint


def test_a_page_needs_a_folder(here: Here, tanh: Path, tmp_path: Path) -> None:
    done = here("validate", "operators", tanh, "--out", tmp_path / "none" / "page.html")
    assert done.status == 2
    assert "make it first" in done.complaint


def test_the_zoos_costliest_bricks_are_those_of_the_measured_system(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    (tmp_path / "manifest.json").write_text(
        '[{"name": "conv", "version": 1, "task": "t", "family": "f", "framework": "w",'
        ' "source": "s", "inputs": {}, "parameters": 1, "flops": 1, "recipe": "r",'
        ' "file": "conv.onnx", "sha256": ""}]'
    )
    monkeypatch.setenv("BRICKS_ZOO", str(tmp_path))
    assert here("measure", path, "--threads", 1).status == 0
    facts = here("validate", "operators", "zoo", "--top", 3, "--threads", 1, "--json").json
    totals = [only(each["runtimes"])["latency_s"] for each in facts["operators"]]
    assert len(totals) == 3 and all(total > 0 for total in totals)
    assert all("of the zoo, by its latency on" in each["source"] for each in facts["operators"])


def test_the_zoo_needs_a_system_that_has_measured_it(here: Here) -> None:
    done = here("validate", "operators", "zoo")
    assert done.status == 2
    assert "no system with measurements of the zoo is known" in done.complaint


def test_networks_tell_their_facts_and_where_a_model_parts(here: Here, tmp_path: Path) -> None:
    one, other = save(conv_net(), tmp_path, "conv.onnx"), save(mlp(), tmp_path, "mlp.onnx")
    done = here("validate", "models", one, other, "--threads", 1, "--json", runtime="onnxruntime")
    assert (done.status, done.err) == (0, "")
    facts = done.json
    assert facts.keys() == {"system", "missing", "runtimes", "models"}
    assert [row["model"] for row in facts["models"]] == ["conv", "mlp"]
    for row in facts["models"]:
        assert row.keys() == {"model", "kind", "own_weights", "runtimes", "pairs"}
        assert row["own_weights"] and row["kind"] == "inference" and row["pairs"] == []
        run = only(row["runtimes"])
        assert run.keys() == {"runtime", "accuracy", "parting", "parting_reason", "error"}
        assert run["accuracy"].keys() == ACCURACY
        assert run["parting"]["beyond"] == 0 and run["parting"]["first"] is None
    shown = here("validate", "models", other, "--threads", 1, runtime="onnxruntime")
    assert shown.status == 0
    assert "mlp, onnxruntime: all 5 values agree with the reference" in shown.out


def test_a_network_that_no_runtime_ran_is_an_error(here: Here, tmp_path: Path) -> None:
    done = here("validate", "models", save(mlp(), tmp_path, "mlp.onnx"))
    assert done.status == 1
    assert "mlp: nothing ran: the fake runtime computes nothing" in done.complaint


@pytest.mark.slow
def test_a_wrong_gradient_is_told(here: Here) -> None:
    torch_environment.python()
    done = here("validate", "operators", program("wrong_gradient"), "--threads", 1, runtime="torch")
    assert done.status == 0
    assert "the gradient of first." in done.out
    assert "by finite differences" in done.out
