"""Which runtime to take: estimates of several beside each other, and the risk of being wrong."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import runtime_environments
from commands import Here
from factories import mlp, save
from hypothesis import given
from hypothesis import strategies as st
from systems import copied, know_on, on

from bricks import BackendError, Bench, Estimate, backends
from bricks.analysis.explanation import same_work
from bricks.analysis.publishing import Validated, publish
from bricks.analysis.runtimes import (
    NoRuntimeEstimate,
    RuntimeCandidate,
    RuntimeEstimate,
    choose_runtime,
    slower,
)
from bricks.backends import BackendInfo
from bricks.compose.estimate import Uncertainty
from bricks.graph.model import Model
from bricks.predict.features import PRODUCT, TAGS, BrickFeatures
from bricks.session.workspace import Workspace
from bricks.store import Store
from bricks.system import fingerprint
from bricks.system.names import labels_of

PUBLISHED = Path(__file__).resolve().parents[2] / "cache" / "published"
HOME = fingerprint()
THERE = replace(HOME, name="there", identity={**HOME.identity, "logical_cpus": 97})
RUNTIMES = {"fake": 1e-5, "onnxruntime": 4e-5}
BOTH = ("--runtimes", "fake,onnxruntime")


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
    path = save(mlp(), tmp_path, "net.onnx")

    def read(workspace: Workspace) -> Model:
        return workspace.read(path)

    with (
        Bench(tmp_path, runtime="fake", threads=1) as known,
        Bench(tmp_path / "other", runtime="fake", threads=1) as unknown,
    ):
        known.measure([read(known.workspace)])
        places: dict[str, Any] = {
            "unknown": RuntimeCandidate(unknown.workspace, unknown.target),
            "known": RuntimeCandidate(known.workspace, known.target),
            "other": BackendError("it is not installed"),
        }
        choice = choose_runtime(places, read, "net")
    assert choice.fastest == "fake"
    assert [answer.runtime for answer in choice.answers] == ["fake", "unknown", "other"]
    known_, unknown_, missing = choice.answers
    assert isinstance(known_, RuntimeEstimate) and known_.lower_s is not None
    assert known_.lower_s <= known_.estimate.estimate_s
    assert isinstance(unknown_, NoRuntimeEstimate) and isinstance(missing, NoRuntimeEstimate)
    assert "bricks measure net --runtime unknown" in unknown_.error
    assert missing.error == "it is not installed"
    assert (choice.ahead, choice.risk) == (None, None)


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


def test_the_command_tells_what_to_take(alone: Here, net: Path) -> None:
    words = ("advise", net, *BOTH, "--threads", 1)
    (model,) = alone(*words, "--json", runtime=None).json["models"]
    assert [row["runtime"] for row in model["runtimes"]] == ["fake", "onnxruntime"]
    assert model["fastest"] == "fake"
    assert model["ahead"] > 1 and 0 <= model["risk"] < 0.05
    slowest = model["runtimes"][1]
    # The last of the products is one of its own in both; the others are fused in one of them.
    (loss,) = slowest["losses"]
    assert loss == {"operator": "Gemm", "lost_s": pytest.approx(3e-5), "runtimes": ["fake"]}
    assert slowest["lower_s"] == pytest.approx(slowest["estimate_s"] - 3e-5)
    output = alone(*words, runtime=None).out
    assert f"{net}: take fake" in output
    assert f"{net}, onnxruntime: loses " in output


@pytest.mark.slow
def test_what_was_really_measured_tells_what_to_take(here: Here) -> None:
    for runtime in ("fake", "onnxruntime"):
        how = ("--effort", "quick", "--threads", 1)
        assert here("measure", "levit", *how, runtime=runtime).status == 0
    words = ("advise", "levit", *BOTH, "--threads", 1)
    (model,) = here(*words, "--json", runtime=None).json["models"]
    assert {row["measured_share"] for row in model["runtimes"]} == {1}
    first, second = model["runtimes"]
    assert model["fastest"] == first["runtime"]
    assert first["estimate_s"] <= second["estimate_s"]
    assert model["ahead"] >= 0 and 0 <= model["risk"] <= 0.5


def test_the_command_tells_what_to_take_elsewhere(two: Here, net: Path) -> None:
    words = ("advise", net, *BOTH)
    (there,) = two(*words, "--on", "there", "--json", runtime=None).json["models"]
    assert there["system"] == "there" and there["threads"] == 1
    assert there["fastest"] == "fake"
    assert [row["error"] for row in there["runtimes"]] == [None, None]
    both = ("--on", "there", "--on", HOME.key)
    rows = two(*words, *both, "--json", runtime=None).json["models"]
    assert [row["system"] for row in rows] == ["there", HOME.name]
    assert [row["system_key"] for row in rows] == [THERE.key, HOME.key]
    output = two(*words, *both, runtime=None).out
    for row in rows:
        assert f"{net} on {row['system']}: take {row['fastest']}; " in output


def test_runtimes_are_compared_with_as_many_threads(here: Here, net: Path) -> None:
    know_on(THERE, here.cache, net, 1e-5, runtime="fake", threads=2)
    know_on(THERE, here.cache, net, 4e-5, runtime="onnxruntime", threads=1)
    words = ("advise", net, *BOTH, "--on", "there")
    done = here(*words, runtime=None)
    assert done.status == 2 and "with 1 and 2 threads" in done.complaint
    know_on(THERE, here.cache, net, 1e-5, runtime="fake", threads=1)
    (there,) = here(*words, "--threads", 1, "--json", runtime=None).json["models"]
    assert (there["threads"], there["fastest"]) == (1, "fake")


def test_what_was_not_measured_elsewhere_is_predicted(here: Here, tmp_path: Path) -> None:
    many = save(mlp(widths=range(64, 96)), tmp_path, "many.onnx")
    for runtime, latency_s in RUNTIMES.items():
        know_on(THERE, here.cache, many, latency_s, runtime=runtime, threads=1)
    path = save(mlp(widths=range(100, 104)), tmp_path, "other.onnx")
    words = ("advise", path, *BOTH, "--on", "there", "--json")
    (other,) = here(*words, runtime=None).json["models"]
    assert [each["measured_share"] for each in other["runtimes"]] == [0, 0]
    assert other["fastest"] == "fake"


def test_what_nobody_measured_elsewhere_is_refused(two: Here, net: Path) -> None:
    mistyped = two("advise", net, *BOTH, "--on", "thehre", runtime=None)
    assert mistyped.status == 2 and "did you mean there" in mistyped.complaint
    other = two("advise", net, *BOTH, "--on", "there", "--threads", 3, runtime=None)
    assert other.status == 2 and "no measurements with" in other.complaint


@pytest.fixture(scope="module")
def shipped(net: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a system published the model in both runtimes."""
    folder = tmp_path_factory.mktemp("shipped")
    place = folder / "published"
    place.mkdir()
    for runtime, latency_s in RUNTIMES.items():
        know_on(THERE, folder / "own", net, latency_s, runtime=runtime, threads=1)
    with Store.open(folder / "own") as own:
        validated = [Validated(target.key, {}) for target in own.systems.targets()]
    publish(folder / "own", validated, place)
    return place


@pytest.fixture
def published(shipped: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, from where commands take it."""
    monkeypatch.setenv("BRICKS_PUBLISHED", str(shipped))
    return shipped


@pytest.mark.usefixtures("published")
def test_published_measurements_tell_what_to_take_on_hosts_one_lacks(
    alone: Here, net: Path
) -> None:
    words = ("advise", net, *BOTH, "--on", "there", "--json")
    (model,) = alone(*words, runtime=None).json["models"]
    assert (model["system"], model["fastest"]) == ("there", "fake")
    assert [each["published_share"] for each in model["runtimes"]] == [1, 1]


@pytest.fixture
def empty(here: Here) -> Here:
    """Commands on a cache in which nothing was measured."""
    Store.open(here.cache).close()
    return here


@pytest.fixture
def lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if ONNX Runtime were not installed."""
    describe = backends.describe

    def described(name: str) -> BackendInfo:
        if name == "onnxruntime":
            raise BackendError("onnxruntime is not installed: pip install onnxruntime")
        return describe(name)

    monkeypatch.setattr(backends, "describe", described)


@pytest.mark.usefixtures("lacking", "published")
def test_a_runtime_that_is_not_here_is_answered_by_what_others_measured(
    empty: Here, net: Path
) -> None:
    words = ("advise", net, *BOTH, "--threads", 1)
    with on(THERE):
        (model,) = empty(*words, "--json", runtime=None).json["models"]
        done = empty(*words, runtime=None)
    fake, other = model["runtimes"]
    assert (fake["available"], other["available"]) == (True, False)
    assert (other["error"], other["published_share"]) == (None, 1)
    assert model["fastest"] == "fake" and model["ahead"] > 1
    assert done.status == 0
    assert f"{net}, onnxruntime: not available here; measured by others on there." in done.out


@pytest.mark.usefixtures("lacking")
def test_a_runtime_that_is_not_here_is_answered_by_what_was_measured_before(
    alone: Here, net: Path
) -> None:
    done = alone("advise", net, *BOTH, "--threads", 1, runtime=None)
    assert done.status == 0
    assert f"onnxruntime: not available here; measured before on {HOME.name}." in done.out


@pytest.mark.usefixtures("lacking", "published")
def test_a_runtime_that_is_neither_here_nor_measured_says_where_it_was(
    empty: Here, net: Path
) -> None:
    elsewhere = empty("advise", net, *BOTH, "--threads", 1, runtime=None)
    with on(THERE):
        with_others = empty("advise", net, *BOTH, "--threads", 2, runtime=None)
    for done, option in ((elsewhere, "--on there"), (with_others, "--threads 1")):
        assert (done.status, done.out) == (1, "")
        assert f"pip install onnxruntime, or add {option}" in done.err


def rows(out: str) -> list[list[str]]:
    """The cells of a table's rows below its head."""
    return [re.split(r"  +", line) for line in out.partition("\n\n")[0].splitlines()[1:]]


def test_a_table_is_finished_where_a_runtime_is_not_installed(
    alone: Here, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "none"))
    words = ("advise", net, "--runtimes", "mxnet,fake,onnxruntime", "--threads", 1)
    done = alone(*words, runtime=None)
    assert done.status == 1
    assert [row[1].split()[0] for row in rows(done.out)] == ["fake", "onnxruntime", "mxnet"]
    assert rows(done.out)[-1][2:] == ["–", "–", "–", "not available"]
    assert f"{net}: take fake" in done.out
    assert "bricks backends install mxnet" in done.complaint
    (model,) = alone(*words, "--json", runtime=None).json["models"]
    assert [each["available"] for each in model["runtimes"]] == [True, True, False]


def test_a_table_without_any_answer_is_not_begun(
    empty: Here, net: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "none"))
    done = empty("advise", net, net, "--runtimes", "mxnet,openvino", runtime=None)
    assert (done.status, done.out) == (1, "")
    for runtime in ("mxnet", "openvino"):
        assert done.err.count(f"bricks backends install {runtime}") == 1


@pytest.mark.usefixtures("lacking", "published")
def test_a_model_that_nobody_measured_in_a_runtime_that_is_not_here_is_named(
    empty: Here, tmp_path: Path
) -> None:
    other = save(mlp(widths=range(100, 104)), tmp_path, "other.onnx")
    with on(THERE):
        done = empty("advise", other, *BOTH, "--threads", 1, "--json", runtime=None)
    assert done.status == 1
    (model,) = done.json["models"]
    lack = next(each for each in model["runtimes"] if each["runtime"] == "onnxruntime")
    assert "other was not measured with onnxruntime on there" in lack["error"]
    assert "pip install onnxruntime" in lack["error"]


@pytest.mark.slow
def test_what_ships_with_the_package_tells_what_to_take(
    alone: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime_environments.python("openvino")
    monkeypatch.setenv("BRICKS_PUBLISHED", str(PUBLISHED))
    system = "amd-epyc-zen4-2c"
    words = ("squeezenet", "--runtimes", "onnxruntime,openvino", "--on", system, "--json")
    with on(THERE):
        (model,) = alone("advise", *words, runtime=None).json["models"]
    assert (model["system"], model["fastest"]) == (system, model["runtimes"][0]["runtime"])
    assert [each["published_share"] for each in model["runtimes"]] == [1, 1]


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


def test_a_choice_that_is_none_is_refused(here: Here) -> None:
    for words, says in (
        (("--runtimes", "onnxruntime"), "leaves nothing to choose"),
        (("--runtimes", "onnxruntime,mxnett"), "did you mean mxnet"),
        ((*BOTH, "--slo", "5ms"), "leave out --slo"),
        ((*BOTH, "--qps", "5", "--batches", "1"), "--batches and --qps"),
        ((), "add --slo 20ms"),
    ):
        failed = here("advise", "levit", *words, runtime=None)
        assert failed.status == 2, words
        assert says in failed.complaint, words


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
