"""A runtime whose calls launch kernels on a device is one package: nothing else has to know it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import Here, chain
from factories import save

LAUNCH_S, KERNEL_S, CALL_S = 1e-5, 1e-4, 2e-6

SOURCE = f"""
from bricks.backends import BackendInfo, Offer
from bricks.backends.fake.backend import FakeBackend
from bricks.units.sample import Kernel, Sample


class TwoLanes(Offer):
    def describe(self):
        return BackendInfo(self.name, "1", "none", timed=False)

    def create(self, *, threads, seed, workers, optimization):
        return Launching()


OFFER = TwoLanes(name="twolanes", summary="made-up kernels on a made-up device")


class Launching(FakeBackend):
    def load(self, proto, *, key, optimize, streams=()):
        return Launched([node.op_type for node in proto.graph.node])


class Launched:
    def __init__(self, operators):
        self.operators = operators

    def place(self, placement, region):
        return self

    def sample(self):
        kernels = tuple(Kernel(operator.lower(), {KERNEL_S}) for operator in self.operators)
        return Sample({CALL_S} + {LAUNCH_S} * len(kernels), kernels)
"""

OPERATORS = ("Relu", "Neg", "Tanh", "Relu")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A chain of operators, with the package installed for this process and its workers."""
    site = tmp_path / "site"
    facts = site / "two_lanes-1.0.dist-info"
    facts.mkdir(parents=True)
    (site / "two_lanes.py").write_text(SOURCE, encoding="utf-8")
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: two_lanes\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[bricks.backends]\ntwolanes = two_lanes:OFFER\n")
    monkeypatch.syspath_prepend(str(site))
    paths = filter(None, (str(site), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    return str(save(chain(*OPERATORS), tmp_path, "chain.onnx"))


def test_its_kernels_are_measured_kept_and_composed(here: Here, model: str, tmp_path: Path) -> None:
    predicted = here("predict", model, "--json", runtime="twolanes").json["models"][0]
    # The device ends last: it has been busy since the first kernel was launched.
    expected_s = CALL_S + LAUNCH_S + len(OPERATORS) * KERNEL_S
    assert predicted["estimate_s"] == pytest.approx(expected_s)
    assert predicted["low_s"] < expected_s < predicted["high_s"]
    again = here("predict", model, "--no-measure", "--json", runtime="twolanes").json["models"][0]
    assert again["estimate_s"] == predicted["estimate_s"]
    trace = tmp_path / "trace.json"
    here("explain", model, "--no-measure", "--trace", trace, runtime="twolanes")
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    names = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    assert {"host", "device"} <= set(names)
    kernels = [e for e in events if "launched_by_occurrence" in e.get("args", {})]
    assert [e["name"] for e in kernels] == [operator.lower() for operator in OPERATORS]
