"""A report compares the runtimes of a host, and a system is known by its label."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import Here
from factories import mlp, save
from systems import copied, know_on

from bricks.analysis.explanation import same_work
from bricks.predict.features import PRODUCT, TAGS, BrickFeatures
from bricks.system import fingerprint
from bricks.system.names import labels_of

HOME = fingerprint()
THERE = replace(HOME, name="there", identity={**HOME.identity, "logical_cpus": 97})
RUNTIMES = {"fake": 1e-5, "onnxruntime": 4e-5}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(mlp(), tmp_path_factory.mktemp("models"), "net.onnx")


@pytest.fixture(scope="module")
def known(net: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cache that knows the model in two runtimes on this host, and one that knows another too.

    The bricks of one runtime take four times as long, and are fewer.
    """
    caches = tmp_path_factory.mktemp("alone") / "cache", tmp_path_factory.mktemp("two") / "cache"
    for cache, system in zip(caches, (HOME, THERE), strict=True):
        for runtime, latency_s in RUNTIMES.items():
            know_on(system, cache, net, latency_s, runtime=runtime, threads=1)
        if system is HOME:
            shutil.copytree(cache, caches[1])
    return caches


@pytest.fixture
def alone(here: Here, known: tuple[Path, Path]) -> Here:
    return copied(known[0], here)


@pytest.fixture
def two(here: Here, known: tuple[Path, Path]) -> Here:
    return copied(known[1], here)


def reported(here: Here, folder: Path, *words: object) -> tuple[Any, str]:
    """The facts of a report, and its page."""
    page = folder / "report.html"
    done = here("report", *words, "--out", page, "--json", runtime=None)
    assert done.status == 0, done.err
    return done.json, page.read_text("utf-8")


def test_the_report_compares_runtimes_of_one_host(alone: Here, net: Path, tmp_path: Path) -> None:
    facts, page = reported(alone, tmp_path, net)
    assert {of["runtime"]["backend"] for of in facts["targets"]} == {"onnxruntime", "fake"}
    rows = page.partition("<h2>Latency on each system</h2>")[2].partition("</table>")[0]
    assert rows.count('<th scope="row">') == 2
    assert "onnxruntime" in rows and "fake" in rows


def test_the_report_distinguishes_systems(two: Here, net: Path, tmp_path: Path) -> None:
    _, page = reported(two, tmp_path, net)
    rows = page.partition("<h2>Latency on each system</h2>")[2].partition("</table>")[0]
    assert rows.count('<th scope="row">there, ') == 2
    assert rows.count(f'<th scope="row">{HOME.name}, ') == 2


def test_a_report_of_one_runtime_compares_none(here: Here, net: Path, tmp_path: Path) -> None:
    know_on(HOME, here.cache, net, 1e-5, runtime="fake", threads=1)
    _, page = reported(here, tmp_path)
    assert "net" in page and "on each system" not in page


def test_systems_of_one_name_are_told_by_their_keys() -> None:
    assert labels_of({"s1-a": "lab", "s1-b": "desk"}) == {"s1-a": "lab", "s1-b": "desk"}
    assert labels_of({"s1-a": "lab", "s1-b": "lab"}) == {
        "s1-a": "lab (s1-a)",
        "s1-b": "lab (s1-b)",
    }


def test_what_stands_beside_a_product_is_work_of_its_own() -> None:
    product = BrickFeatures(PRODUCT, "MatMul", ("",) * len(TAGS[PRODUCT]), (), 1.0, 0, 0, 0, 0)
    with_bias = replace(product, operator="Constant+MatMul+Add+Reshape")
    moved = replace(product, operator="MatMul+Add+Reshape+Transpose")
    two = replace(product, operator="MatMul+MatMul")
    assert same_work(with_bias) == same_work(product)
    assert len({same_work(each) for each in (product, moved, two)}) == 3
