"""Which runtime to take: estimates of several beside each other, and the risk of being wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import openvino_environment
import pytest
from commands import Here
from hypothesis import given
from hypothesis import strategies as st

import bricks.session.bench
from bricks import BackendError, Bench, Estimate
from bricks.analysis.explanation import same_work
from bricks.analysis.runtimes import Place, choose_runtime, slower
from bricks.estimate.estimate import Uncertainty
from bricks.graph.model import Model
from bricks.predict.features import PRODUCT, TAGS, BrickFeatures
from bricks.system import fingerprint
from bricks.system.names import labels_of

PUBLISHED = Path(__file__).resolve().parents[2] / "cache" / "published"
HOME = fingerprint()
THERE = replace(HOME, name="there", identity={**HOME.identity, "logical_cpus": 97})


def estimate(seconds: float, width: float) -> Estimate:
    ends = (seconds, seconds / width, seconds * width)
    return Estimate("m", "executed", *ends, 0.0, 0.0, 0.0, 0.0, 1.0, (), Uncertainty())


latencies = st.floats(1e-5, 10)
widths = st.floats(1.001, 2)


@given(latencies, latencies, widths, widths)
def test_one_of_two_is_faster(one_s: float, other_s: float, wide: float, other: float) -> None:
    first, second = estimate(one_s, wide), estimate(other_s, other)
    assert slower(first, second) + slower(second, first) == pytest.approx(1.0)
    if one_s != other_s:
        assert (slower(first, second) < 0.5) == (one_s < other_s)


def test_the_risk_is_that_of_overlapping_intervals() -> None:
    width = math.exp(0.1)
    apart = slower(estimate(1.0, width), estimate(math.exp(0.1 * math.sqrt(2)), width))
    assert apart == pytest.approx(0.025, abs=1e-3)
    assert slower(estimate(1.0, width), estimate(1.0, width)) == pytest.approx(0.5)


def test_the_fastest_comes_first_and_missing_ones_say_why(tmp_path: Path) -> None:
    def read(bench: Bench) -> Model:
        return bench.read("squeezenet")

    with Bench(tmp_path, runtime="fake", threads=1) as fake:
        fake.measure([read(fake)])
        with Bench(tmp_path / "other", threads=1, published=False) as real:
            missing = BackendError("it is not installed")
            places: dict[str, Any] = {
                "onnxruntime": Place(real, real.target),
                "fake": Place(fake, fake.target),
                "other": missing,
            }
            choice = choose_runtime(places, read, "squeezenet")
    assert choice.fastest == "fake"
    assert [each.runtime for each in choice.answers] == ["fake", "onnxruntime", "other"]
    assert choice.answers[0].lower_s is not None and choice.answers[0].estimate is not None
    assert choice.answers[0].lower_s <= choice.answers[0].estimate.estimate_s
    assert "bricks measure squeezenet --runtime onnxruntime" in (choice.answers[1].error or "")
    assert choice.answers[2].error == "it is not installed"
    assert (choice.ahead, choice.risk) == (None, None)


def test_the_command_tells_what_to_take(here: Here) -> None:
    how = ("--threads", 1)
    for runtime in ("fake", "onnxruntime"):
        assert here("measure", "levit", "--effort", "quick", *how, runtime=runtime).status == 0
    words = ("advise", "levit", "--runtimes", "fake,onnxruntime", *how)
    (model,) = here(*words, "--json", runtime=None).json["models"]
    assert model["fastest"] in ("fake", "onnxruntime")
    assert model["ahead"] >= 0 and 0 <= model["risk"] <= 0.5
    told = here(*words, runtime=None).out
    assert f"levit: take {model['fastest']}" in told
    slowest = model["runtimes"][-1]
    assert slowest["losses"] and slowest["lower_s"] < slowest["estimate_s"]
    assert all(loss["lost_s"] > 0 and loss["runtimes"] for loss in slowest["losses"])
    assert f"levit, {slowest['runtime']}: loses " in told


@pytest.fixture
def two(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    """A cache that knows a model in two runtimes on this host and on another one."""
    for system in (HOME, THERE):
        monkeypatch.setattr(bricks.session.bench, "fingerprint", lambda system=system: system)
        for runtime in ("fake", "onnxruntime"):
            how = ("--effort", "quick", "--threads", 1)
            assert here("measure", "levit", *how, runtime=runtime).status == 0
    monkeypatch.setattr(bricks.session.bench, "fingerprint", lambda: HOME)
    return here


def test_the_command_tells_what_to_take_elsewhere(two: Here) -> None:
    words = ("advise", "levit", "--runtimes", "fake,onnxruntime")
    (there,) = two(*words, "--system", "there", "--json", runtime=None).json["models"]
    assert there["system"] == "there" and there["threads"] == 1
    assert there["fastest"] and all(each["error"] is None for each in there["runtimes"])
    both = ("--system", "there", "--system", HOME.key)
    found = two(*words, *both, "--json", runtime=None).json["models"]
    assert [each["system"] for each in found] == ["there", HOME.name]
    assert [each["system_key"] for each in found] == [THERE.key, HOME.key]
    told = two(*words, *both, runtime=None).out
    for each in found:
        assert f"levit on {each['system']}: take {each['fastest']}; " in told


def test_runtimes_are_compared_with_as_many_threads(two: Here) -> None:
    how = ("--effort", "quick", "--threads", 2)
    assert two("measure", "levit", *how, runtime="fake").status == 0
    words = ("advise", "levit", "--runtimes", "fake,onnxruntime", "--system", HOME.key)
    done = two(*words, runtime=None)
    assert done.status == 2 and "with 1 and 2 threads" in done.complaint
    (here,) = two(*words, "--threads", 1, "--json", runtime=None).json["models"]
    assert here["threads"] == 1 and here["fastest"]


def test_what_was_not_measured_elsewhere_is_predicted_or_refused(two: Here) -> None:
    words = ("--runtimes", "fake,onnxruntime", "--system")
    mistyped = two("advise", "levit", *words, "ther", runtime=None)
    assert mistyped.status == 2 and "did you mean there" in mistyped.complaint
    (other,) = two("advise", "regnet_y", *words, "there", "--json", runtime=None).json["models"]
    assert all(each["measured_share"] < 1 for each in other["runtimes"])
    other_threads = two("advise", "levit", *words, "there", "--threads", 3, runtime=None)
    assert other_threads.status == 2 and "no measurements with" in other_threads.complaint


def test_published_measurements_tell_what_to_take_on_hosts_one_lacks(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    openvino_environment.python()
    assert here("measure", "mx_srcnn", "--effort", "quick").status == 0  # there is a cache
    monkeypatch.setenv("BRICKS_PUBLISHED", str(PUBLISHED))
    monkeypatch.setattr(bricks.session.bench, "fingerprint", lambda: THERE)
    words = ("--runtimes", "onnxruntime,openvino", "--system", "amd-epyc-zen4-2c")
    (model,) = here("advise", "squeezenet", *words, "--json", runtime=None).json["models"]
    assert (model["system"], model["fastest"]) == (
        "amd-epyc-zen4-2c",
        model["runtimes"][0]["runtime"],
    )
    assert all(each["measured_share"] == 1 for each in model["runtimes"])


def test_the_report_compares_runtimes_of_one_host(here: Here, tmp_path: Path) -> None:
    for runtime in ("fake", "onnxruntime"):
        how = ("--effort", "quick", "--threads", 1)
        assert here("measure", "levit", *how, runtime=runtime).status == 0
    page = tmp_path / "report.html"
    assert here("report", "levit", "--out", page, "--no-measure", runtime="fake").status == 0
    text = page.read_text("utf-8")
    section = text[text.index('<section id="runtimes">') :]
    section = section[: section.index("</section>")]
    assert section.count('<tr><th scope="row">levit</th>') == 2
    assert "onnxruntime" in section and "fake" in section and ">loses<" in section
    assert "<th>system</th>" not in section


def test_the_report_tells_systems_apart(two: Here, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert two("report", "levit", "--out", page, "--no-measure", runtime="fake").status == 0
    text = page.read_text("utf-8")
    section = text[text.index('<section id="runtimes">') :]
    section = section[: section.index("</section>")]
    assert section.count('<tr><th scope="row">levit</th><td>there</td>') == 2
    assert section.count(f'<tr><th scope="row">levit</th><td>{HOME.name}</td>') == 2


def test_systems_of_one_name_are_told_by_their_keys() -> None:
    assert labels_of({"s1-a": "lab", "s1-b": "desk"}) == {"s1-a": "lab", "s1-b": "desk"}
    assert labels_of({"s1-a": "lab", "s1-b": "lab"}) == {
        "s1-a": "lab (s1-a)",
        "s1-b": "lab (s1-b)",
    }


def test_a_report_of_one_runtime_has_no_choice(here: Here, tmp_path: Path) -> None:
    assert here("measure", "levit", runtime="fake").status == 0
    page = tmp_path / "report.html"
    assert here("report", "--out", page, "--no-measure", runtime="fake").status == 0
    assert 'id="runtimes"' not in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--runtimes", "onnxruntime"), "leaves nothing to choose"),
        (("--runtimes", "onnxruntime,mxnett"), "did you mean mxnet"),
        (("--runtimes", "fake,onnxruntime", "--slo", "5ms"), "leave out --slo"),
        (("--runtimes", "fake,onnxruntime", "--qps", "5", "--batches", "1"), "--batches and --qps"),
        ((), "add --slo 20ms"),
    ],
)
def test_a_choice_that_is_none_is_refused(words: tuple[str, ...], says: str, here: Here) -> None:
    failed = here("advise", "levit", *words, runtime=None)
    assert failed.status == 2
    assert says in failed.err


def test_an_interval_that_reaches_down_to_nothing_tells_nothing() -> None:
    ends = (1e-3, 0.0, 2e-3)
    unsure = Estimate("m", "executed", *ends, 0.0, 0.0, 0.0, 0.0, 1.0, (), Uncertainty())
    assert slower(estimate(5e-4, 1.1), unsure) == 0.5
    assert slower(unsure, estimate(5e-4, 1.1)) == 0.5


def test_what_stands_beside_a_product_is_work_of_its_own() -> None:
    product = BrickFeatures(PRODUCT, "MatMul", ("",) * len(TAGS[PRODUCT]), (), 1.0, 0, 0, 0, 0)
    with_bias = replace(product, operator="Constant+MatMul+Add+Reshape")
    moved = replace(product, operator="MatMul+Add+Reshape+Transpose")
    two = replace(product, operator="MatMul+MatMul")
    assert same_work(with_bias) == same_work(product)
    assert len({same_work(each) for each in (product, moved, two)}) == 3
