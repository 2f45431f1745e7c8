"""`bricks diff RUNTIME==OLD RUNTIME==NEW MODEL`: installs, measures by turns, and compares."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny_versions
from commands import CommandResult, Here, chain
from factories import conv_net, save
from refusals import refused

from bricks.backends.catalogue import RuntimeVersion
from bricks.backends.onnxruntime.oldest import OLDEST
from bricks.errors import UsageError
from bricks.system.version_environments import nearest

OLD, NEW = "tiny==1.0", "tiny==2.0"


def diff(here: Here, *words: object) -> CommandResult:
    return here("diff", *words, runtime=None)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two models; pip finds version 2.0 of the runtime, and 1.0 is installed."""
    tiny_versions.install(tmp_path, monkeypatch, "2.0", "2.1")
    nets = {"conv.onnx": conv_net(blocks=2), "pair.onnx": chain("Relu", "Neg")}
    first, second = (save(net, tmp_path, name) for name, net in nets.items())
    return first, second


@pytest.mark.slow
def test_a_version_is_installed_once_measured_and_compared_with_the_installed_one(
    here: Here, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = diff(here, OLD, NEW, models[0], "--threads", 1, "--json")
    assert done.status == 0
    assert done.complaint.startswith("installing tiny_runtime 2.0 in ")
    facts = done.json
    assert [facts[side]["runtime"]["version"] for side in ("old", "new")] == ["1.0", "2.0"]
    (model,) = facts["models"]
    assert model["beyond_noise"] and 1.5 < model["ratio"] < 2.1
    assert {round(brick["ratio"]) for brick in facts["bricks"]} == {2}
    assert facts["answer"].startswith("conv takes ")
    assert " more with tiny 2.0 than with 1.0 (" in facts["answer"]

    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")  # nothing is installed any more
    again = diff(here, OLD, NEW, *models, "--threads", 1)
    assert (again.status, again.err) == (0, "")
    assert again.out.startswith("pair takes ") or again.out.startswith("conv takes ")
    back = diff(here, NEW, OLD, models[0], "--threads", 1, "--fail-on", "3%", "--json")
    assert (back.status, back.json["models"][0]["ratio"]) == (
        0, pytest.approx(1 / model["ratio"]),
    )  # fmt: skip
    slower = diff(here, OLD, NEW, models[0], "--threads", 1, "--fail-on", "3%")
    assert slower.status == 1 and "slower by more than 3 %: conv" in slower.err


def test_a_version_that_does_not_exist_is_met_with_the_nearest(
    here: Here, models: tuple[Path, Path]
) -> None:
    done = diff(here, OLD, "tiny==2.0.7", models[0])
    assert done.status == 1
    assert done.err.splitlines()[-1] == (
        "bricks: there is no tiny_runtime 2.0.7 for this Python: the nearest are 2.0 and 2.1"
    )
    assert not list(here.cache.glob("*"))


def test_a_model_that_cannot_be_read_is_one_line_beside_the_others(
    here: Here, models: tuple[Path, Path]
) -> None:
    done = diff(here, OLD, NEW, models[1], "squeezenett", "--threads", 1, "--json")
    assert done.status == 1
    assert [model["model"] for model in done.json["models"]] == ["pair"]
    (failed,) = done.json["incomparable"]
    assert failed["model"] == "squeezenett"
    assert done.err.splitlines()[-1] == f"bricks: {failed['error']}"


def test_models_are_read_before_a_version_is_installed(
    here: Here, models: tuple[Path, Path], tmp_path: Path
) -> None:
    done = diff(here, OLD, NEW, "squeezenett", tmp_path / "none.onnx", "--json", "--fail-on", "3%")
    assert (done.status, done.out) == (1, "")
    assert "squeezenet" in done.complaint and "none.onnx" in done.complaint
    assert not (tmp_path / "environments").exists()


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ((OLD, NEW), ("no model is given",)),
        ((OLD, "lab", "net"), ("give two",)),
        ((OLD, OLD, "net"), ("twice",)),
        ((OLD, "onnxruntime==1.30.0", "net"), ("two runtimes", "--runtime tiny,onnxruntime")),
        (("tinny==1", NEW, "net"), ("'tinny'", "did you mean tiny?")),
        (
            ("onnxruntime==1.20.1", "onnxruntime==1.31.1", "net"),
            ("onnxruntime==1.20.1", f"give onnxruntime=={OLDEST}"),
        ),
        (("tiny==", NEW, "net"), ("tiny==", "has no version")),
        (("fake==1", "fake==2", "net"), ("versions of fake cannot be installed",)),
        (("a", "b", "--threads", 2), ("leave out --threads",)),
    ],
)
def test_what_makes_no_sense_is_one_line(
    here: Here, models: tuple[Path, Path], words: tuple[object, ...], facts: tuple[str, ...]
) -> None:
    done = diff(here, *words)
    assert (done.status, done.out) == (2, "")
    assert all(fact in done.complaint for fact in facts), done.complaint


def test_versions_are_parsed() -> None:
    assert RuntimeVersion.parse(" onnxruntime == 1.30.0") == RuntimeVersion("onnxruntime", "1.30.0")
    assert RuntimeVersion.named("onnxruntime==1") and not RuntimeVersion.named("onnxruntime-1")
    with refused(UsageError, "onnxruntime==newest"):
        RuntimeVersion.parse("onnxruntime==newest")


def test_the_nearest_releases_are_below_and_above() -> None:
    known = ["1.9.0", "1.30.0", "1.31.0.dev2", "1.31.0", "1.31.1"]
    assert nearest("1.30.5", known) == ["1.30.0", "1.31.0"]
    assert nearest("2", known) == ["1.31.0", "1.31.1"]
    assert nearest("1.1", known) == ["1.9.0", "1.30.0"]
    assert nearest("1", []) == []
