"""Outputs of two runtimes are compared once, and a reference says which of them errs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
import runtime_environments
from factories import conv_net, model, node, save, value
from quantising import scaled_by_channel

from bricks.session import whole_models
from bricks.session.agreement import Agreements, Verdict, kept
from bricks.session.options import Options
from bricks.session.workspace import Workspace


def random_numbers() -> onnx.ModelProto:
    nodes = [node("RandomNormalLike", ["x"], ["r"]), node("Add", ["x", "r"], ["y"])]
    return model(nodes, [value("x", [4, 4])], [value("y", [4, 4])])


@pytest.fixture(scope="module")
def workspaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Workspace]]:
    runtime_environments.python("openvino")
    cache = tmp_path_factory.mktemp("cache")
    with (
        Workspace.open(cache, Options(threads=1)) as one,
        one.with_options(runtime="openvino") as other,
    ):
        yield [one, other]


def verdict(
    workspaces: list[Workspace], proto: onnx.ModelProto, folder: Path, *, check: bool = True
) -> Verdict:
    one, other = workspaces
    read = one.read(save(proto, folder, "net.onnx"))
    with Agreements(one, check=check) as agreements:
        agreement = agreements.of(read, one.target, other.target)
    assert (agreement.model, agreement.one, agreement.other) == ("net", "onnxruntime", "openvino")
    return agreement.verdict


def test_runtimes_that_compute_the_same_agree(workspaces: list[Workspace], tmp_path: Path) -> None:
    found = verdict(workspaces, conv_net(), tmp_path)
    assert found.agree is True and found.errs is None
    assert found.difference is not None and found.difference < 1e-5
    assert found.allowed == 1e-3


def test_the_runtime_that_errs_is_named(workspaces: list[Workspace], tmp_path: Path) -> None:
    found = verdict(workspaces, scaled_by_channel(), tmp_path)
    assert (found.agree, found.output, found.errs) == (False, "y", ["openvino"])
    assert found.difference is not None and found.difference > 0.2


def test_a_verdict_is_kept(
    workspaces: list[Workspace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_DERIVED", str(tmp_path / "derived"))
    assert verdict(workspaces, conv_net(), tmp_path, check=False).agree is None
    found = verdict(workspaces, conv_net(), tmp_path)
    monkeypatch.delattr(whole_models, "evaluate")  # nothing runs any more
    assert verdict(workspaces, conv_net(), tmp_path) == found
    one, other = workspaces
    read = one.read(tmp_path / "net.onnx")
    for pair in ((one.target, other.target), (other.target, one.target)):
        (agreement,) = kept(read.name, read.digest, pair)
        assert agreement.verdict == found
    (kept_file,) = (tmp_path / "derived" / "agreement").iterdir()
    kept_file.write_text("{}")
    assert verdict(workspaces, conv_net(), tmp_path, check=False).agree is None


def test_random_numbers_are_not_compared(workspaces: list[Workspace], tmp_path: Path) -> None:
    found = verdict(workspaces, random_numbers(), tmp_path)
    assert found.agree is None
    assert found.reason is not None and "each run has other results" in found.reason


def test_a_runtime_that_computes_nothing_is_not_compared(
    workspaces: list[Workspace], tmp_path: Path
) -> None:
    one, _ = workspaces
    read = one.read(save(conv_net(), tmp_path, "net.onnx"))
    with one.with_options(runtime="fake") as fake, Agreements(one, check=True) as agreements:
        found = agreements.of(read, one.target, fake.target).verdict
    assert found == Verdict(None, reason="only outputs of ONNX models are compared")
