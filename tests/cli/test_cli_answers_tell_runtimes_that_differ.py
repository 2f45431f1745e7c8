"""Every answer about a runtime that computes something else says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import mlp, save
from quantising import scaled_by_channel
from runtime_environments import python
from systems import know_on

from bricks.session import agreement
from bricks.session.agreement import Agreements, Verdict
from bricks.session.options import Options
from bricks.session.workspace import Workspace
from bricks.system import fingerprint

ERRS = Verdict(False, "y", 0.84, 0.001, errs=["fake"])
WRONG = "fake computes something else"


@pytest.fixture
def model(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A model that two runtimes have measured here, of which the fake one errs."""
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "derived"))
    monkeypatch.setattr(agreement, "compares", lambda runtime: True)
    monkeypatch.setattr(Agreements, "checked", lambda *asked: ERRS)
    path = save(mlp(), tmp_path, "net.onnx")
    for runtime, latency_s in (("onnxruntime", 1e-4), ("fake", 1e-5)):
        know_on(fingerprint(), here.cache, path, latency_s, runtime=runtime, threads=1)
    yield path


def compared(here: Here, path: Path) -> None:
    """Compare the outputs, as an answer over both runtimes does."""
    with (
        Workspace.open(here.cache, Options(threads=1)) as one,
        one.with_options(runtime="fake") as other,
        Agreements(one, other, check=True) as agreements,
    ):
        agreements.of(one.read(path), one.target, other.target)


def said(here: Here, *words: object, runtime: str | None = "fake") -> tuple[Any, str]:
    """The facts of a command, and what it shows, as one line."""
    facts = here(*words, "--json", runtime=runtime).json
    return facts, " ".join(here(*words, runtime=runtime).out.split())


def test_a_comparison_with_runs(here: Here, model: Path) -> None:
    facts, shown = said(here, "compare", model, "--threads", 1)
    assert [(of["one"], of["other"], of["agree"]) for of in facts["agreements"]] == [
        ("onnxruntime", "fake", False)
    ]
    assert facts["answer"].endswith(f"; but {WRONG}.")
    assert "net: fake errs by a reference in double precision, onnxruntime does not" in shown


def test_a_difference_between_targets(here: Here, model: Path) -> None:
    names = [f"{runtime}-" for runtime in ("onnxruntime", "fake")]
    known = here("systems", "--json", runtime=None).json["systems"]
    targets = [of["name"] for system in known for of in system["runtimes"]]
    old, new = (next(name for name in targets if part in name) for part in names)
    facts, shown = said(here, "diff", old, new, runtime=None)
    assert [of["reason"] for of in facts["agreements"]] == ["not compared yet"]
    assert "whether onnxruntime and fake compute the same is not known" in shown
    compared(here, model)
    facts, shown = said(here, "diff", old, new, runtime=None)
    assert facts["answer"].endswith(f" But {WRONG}.")
    assert [of["agree"] for of in facts["agreements"]] == [False]
    assert "net: fake errs" in shown


def test_advice_names_it_for_the_runtime_that_errs_alone(here: Here, model: Path) -> None:
    words = ("advise", model, "--threads", 1, "--slo", "1s")
    facts, shown = said(here, *words)
    assert "Whether fake computes what onnxruntime does is not known of net" in shown
    compared(here, model)
    facts, shown = said(here, *words)
    assert facts["answer"].endswith(f"; but {WRONG}.")
    assert "net: fake errs" in shown
    right, _ = said(here, *words, runtime="onnxruntime")
    assert [of["agree"] for of in right["agreements"]] == [False]
    assert "but" not in right["answer"]


def test_a_report(here: Here, model: Path, tmp_path: Path) -> None:
    compared(here, model)
    other = save(mlp(widths=(8, 4)), tmp_path, "other.onnx")
    assert here("measure", other, "--threads", 1).status == 0
    words = ("report", "--out", tmp_path / "page.html", "--json")
    facts = here(*words, runtime=None).json
    assert [of["agree"] for of in facts["agreements"]] == [False]
    assert "fake errs by a reference in double precision" in (tmp_path / "page.html").read_text()


def test_openvino_and_scales_for_each_output_channel(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenVINO 2026.4 applies these scales to the input channels."""
    python("openvino")
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "derived"))
    path = save(scaled_by_channel(), tmp_path, "net.onnx")
    words = ("compare", path, "--threads", 1, "--precision", 0.5, "--json")
    assert here(*words, runtime="onnxruntime").json["agreements"] == []
    facts = here(*words, runtime="openvino").json
    assert [of["errs"] for of in facts["agreements"]] == [["openvino"]]
    assert facts["answer"].endswith("; but openvino computes something else.")
