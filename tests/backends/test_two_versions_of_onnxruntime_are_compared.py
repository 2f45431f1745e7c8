"""Two real versions of a runtime, each in an environment of its own, measured into one cache."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import older_onnxruntime
import pytest
from commands import ROOT, CommandResult, bricks

pytestmark = pytest.mark.slow

MODELS = ("squeezenet", "mobilenet_v2", "bert_mini")
NEWER = version("onnxruntime")


@pytest.fixture(scope="session")
def older(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an older ONNX Runtime; where it cannot be installed, tests are skipped."""
    try:
        return older_onnxruntime.install(tmp_path_factory.mktemp("older"))
    except older_onnxruntime.NotInstallable as exc:
        pytest.skip(f"no ONNX Runtime {older_onnxruntime.VERSION} to compare with: {exc}")


@pytest.fixture(scope="module")
def diff(older: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CommandResult]:
    """``bricks diff`` on a cache into which both versions have measured a few models."""
    cache = tmp_path_factory.mktemp("versions")
    for path in (os.pathsep.join(map(str, (older, ROOT))), str(ROOT)):
        done = bricks(
            "measure", *MODELS, "--threads", 1, "--precision", 0.1, "--cache", cache,
            PYTHONPATH=path,
        )  # fmt: skip
        assert done.status == 0, done.err
    return lambda *words: bricks("diff", *words, "--cache", cache)


OLD_WORD, NEW_WORD = f"onnxruntime-{older_onnxruntime.VERSION}", f"onnxruntime-{NEWER}"


def test_both_are_targets_that_are_named_by_their_versions(
    diff: Callable[..., CommandResult],
) -> None:
    facts = diff(OLD_WORD, NEW_WORD, "--json").json
    assert facts["old"]["runtime"]["version"] == older_onnxruntime.VERSION
    assert facts["new"]["runtime"]["version"] == NEWER
    assert facts["old"]["system"] == facts["new"]["system"]
    assert {m["model"] for m in facts["models"]} == set(MODELS)
    assert facts["incomparable"] == facts["only_old"] == facts["only_new"] == []
    assert facts["common"]["bricks"] > 20


def test_every_second_of_a_difference_has_its_brick(diff: Callable[..., CommandResult]) -> None:
    for model in diff(OLD_WORD, NEW_WORD, "--json").json["models"]:
        parts = model["contributions"]
        added = sum(part["difference_s"] for part in parts) + model["call_overhead_difference_s"]
        assert added == pytest.approx(model["new_s"] - model["old_s"])
        assert all(part["operators"] for part in parts)
        assert model["gone_s"] == pytest.approx(
            sum(part["old_s"] for part in parts if not part["new_occurrences"])
        )
        assert model["low"] <= model["ratio"] <= model["high"]
        assert model["predicted_share"] == 0
        assert model["beyond_noise"] == (not model["low"] <= 1 <= model["high"])


def test_the_other_way_round_is_the_inverse(diff: Callable[..., CommandResult]) -> None:
    there = {m["model"]: m for m in diff(OLD_WORD, NEW_WORD, "--json").json["models"]}
    back = {m["model"]: m for m in diff(NEW_WORD, OLD_WORD, "--json").json["models"]}
    for name, model in there.items():
        assert model["ratio"] * back[name]["ratio"] == pytest.approx(1)
        assert (model["gone_s"], model["come_s"]) == (back[name]["come_s"], back[name]["gone_s"])


def test_one_of_the_two_directions_fails_where_a_model_is_beyond_noise(
    diff: Callable[..., CommandResult],
) -> None:
    """Whichever version is faster: what fails is exactly what is slower."""
    for words in ((OLD_WORD, NEW_WORD), (NEW_WORD, OLD_WORD)):
        done = diff(*words, "--fail-on", "0%", "--json")
        slower = [m["model"] for m in done.json["models"] if m["beyond_noise"] and m["ratio"] > 1]
        assert done.json["regressions"] == slower
        assert done.status == bool(slower)
        shown = diff(*words)
        assert all(name in shown.out for name in MODELS)


def test_a_version_is_installed_and_compared_with_the_one_that_is_there(
    older: Path, tmp_path: Path
) -> None:
    """Where the older one can be had, pip has it for ``diff`` too."""
    versions = f"onnxruntime=={older_onnxruntime.VERSION}", f"onnxruntime=={NEWER}"
    words = ("diff", *versions, "squeezenet", "--threads", 1, "--precision", 0.5)
    settings = {"BRICKS_ENVIRONMENTS": str(tmp_path / "environments")}
    done = bricks(*words, "--cache", tmp_path / "cache", "--json", **settings)
    assert done.status == 0, done.err
    assert f"installing onnxruntime {older_onnxruntime.VERSION}" in done.err
    facts = done.json
    assert facts["old"]["runtime"]["version"] == older_onnxruntime.VERSION
    assert facts["new"]["runtime"]["version"] == NEWER
    assert facts["old"]["runtime"]["build"] and facts["new"]["runtime"]["build"]
    (model,) = facts["models"]
    assert model["model"] == "squeezenet" and model["predicted_share"] == 0
    assert "squeezenet" in facts["answer"] and NEWER in facts["answer"]
    again = bricks(*words, "--cache", tmp_path / "cache", **settings)
    assert (again.status, again.err) == (0, "")
