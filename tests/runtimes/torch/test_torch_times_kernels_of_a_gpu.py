"""PyTorch's path to a GPU: programs are placed, recorded, walked, traced; the card is simulated.

The simulated GPU (``tests/support/simulated_gpu``) has PyTorch's own profiler and operators.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch_environment
from added_packages import install_offer, make_site
from simulated_gpu import SIMULATED
from torch_environment import program

from bricks import Bench, Conditions, Estimate, Measurement, StopRule
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.session.options import DISPLACED_BYTES

SUPPORT = Path(__file__).parents[2] / "support"
ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    torch_environment.python()
    site = make_site(tmp_path, monkeypatch)
    install_offer(site, "simulated_gpu", "torch-simulated")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(SUPPORT), os.environ["PYTHONPATH"])))
    with Bench(
        tmp_path / "cache", runtime="torch-simulated", device="cuda", threads=1, conditions=ONCE
    ) as opened:
        yield opened


@pytest.mark.parametrize("name", ["convolutions", "words"])
def test_calls_have_kernels_in_each_state_and_predict_the_step(bench: Bench, name: str) -> None:
    assert bench.target.system.accelerator == SIMULATED
    model = bench.read(program(name))
    bench.measure([model])
    plan = bench.decompose(model).plan
    found = bench.store.measurements.results(bench.target.key, plan.keys)
    measured = [m for m in found.values() if isinstance(m, Measurement)]
    assert len(measured) == len(plan.keys), [m for m in found.values() if m not in measured]
    launching = [m for m in measured if m.kernels]
    assert 0 < len(launching) < len(measured)
    for each in launching:
        assert set(each.kernels_by_displaced) == {None, *DISPLACED_BYTES}
        names = {tuple(k.name for k in kernels) for kernels in each.kernels_by_displaced.values()}
        assert len(names) == 1
        assert each.device_s > 0
    assert isinstance(bench.predict(model, measure=False), Estimate)
    costs = bench.store.measurements.results(bench.target.key, [*DEVICE_PROBES.values()])
    assert {type(cost) for cost in costs.values()} == {Measurement}, costs
    assert len(costs) == len(DEVICE_PROBES)


def test_a_step_is_compared_with_its_estimate(bench: Bench) -> None:
    (row,) = bench.compare([bench.read(program("adamw"))]).rows
    assert row.ratio > 0


def test_chained_calls_compute_what_the_step_computes(bench: Bench) -> None:
    assert bench.verify(bench.read(program("adamw"))).exact
