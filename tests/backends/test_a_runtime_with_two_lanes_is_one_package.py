"""A runtime with a device is a package: nothing else changes for it to be measured and predicted.

All of it is ``tests/support/two_lane_runtime``; what it takes is known, so that answers are exact.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from added_packages import install_offer, make_site
from commands import Here
from factories import conv_net, save
from two_lane_runtime.backend import LAUNCH_S, TwoLaneBackend

from bricks import Bench, Conditions, Estimate, StopRule
from bricks.backends import built_in, names
from bricks.backends.fake.backend import CALL_OVERHEAD_S

SUPPORT = Path(__file__).parents[1] / "support"
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The toy runtime, installed."""
    site = make_site(tmp_path, monkeypatch)
    install_offer(site, "two_lane_runtime", "two-lanes")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SUPPORT), os.environ["PYTHONPATH"])))
    return site


def test_it_is_listed_after_those_that_come_with_bricks(here: Here) -> None:
    assert names() == (*built_in(), "two-lanes")
    row = here.plain("backends", "list", "--json").json["backends"][-1]
    assert (row["name"], row["installed"], row["provider"]) == ("two-lanes", True, "device")


def test_a_run_is_predicted_from_kernels_that_launches_overlap(tmp_path: Path) -> None:
    proto = conv_net(blocks=2, size=8)
    whole = TwoLaneBackend().load(proto, key="m1", optimize=True)
    run_s = whole.sample().host_s
    launched_s = sum(node.host_s for node in whole.nodes)
    kernels_s = sum(node.device_s or 0.0 for node in whole.nodes)
    assert max(launched_s, kernels_s) < run_s - CALL_OVERHEAD_S < launched_s + kernels_s
    with Bench(tmp_path / "cache", runtime="two-lanes", threads=1, conditions=ONCE) as bench:
        model = bench.read(save(proto, tmp_path, "net.onnx"))
        bench.measure([model])
        estimate = bench.predict(model)
    assert isinstance(estimate, Estimate)
    assert estimate.estimate_s == pytest.approx(run_s, rel=0.01)
    assert estimate.low_s <= run_s <= estimate.high_s


def test_samples_of_its_bricks_have_kernels(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="two-lanes", threads=1, conditions=ONCE) as bench:
        model = bench.read(save(conv_net(blocks=1, size=8), tmp_path, "net.onnx"))
        bench.measure([model])
        found = bench.store.measurements.results(bench.target.key, bench.decompose(model).plan.keys)
    assert len(found) > 1
    for measured in found.values():
        (kernel,) = measured.kernels
        assert measured.device_s == pytest.approx(kernel.device_s) and kernel.device_s > 0
        assert measured.latency_s == pytest.approx(CALL_OVERHEAD_S + LAUNCH_S)


def test_whole_models_are_compared_with_their_estimates(here: Here, tmp_path: Path) -> None:
    paths = [save(conv_net(blocks=b, size=8), tmp_path, f"{b}.onnx") for b in (1, 2)]
    found = here("compare", *paths, "--json", runtime="two-lanes").json
    assert found["runtime"]["backend"] == "two-lanes"
    for model in found["models"]:
        assert model["error"] is None
        assert model["ratio"] == pytest.approx(1, rel=0.01)


def test_a_trace_shows_what_each_lane_does(here: Here, tmp_path: Path) -> None:
    path, file = save(conv_net(blocks=1, size=8), tmp_path, "net.onnx"), tmp_path / "trace.json"
    here("explain", path, "--trace", file, runtime="two-lanes")
    events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    named = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert {"host", "device"} <= set(named)
    kernels = [e for e in events if "launched_by_occurrence" in e["args"]]
    recomposed = [e for e in events if e["ph"] == "X" and e["pid"] == kernels[0]["pid"]]
    launched = {e["args"].get("occurrence"): e for e in recomposed}
    assert len(kernels) > 1
    for kernel in kernels:
        launch = launched[kernel["args"]["launched_by_occurrence"]]
        assert kernel["ts"] >= launch["ts"] + launch["dur"] - 1e-3
