"""How many hosts keep a bound at a rate; where intervals leave that open, it is not said."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bricks.compose.queueing.run import RunLatency
from bricks.compose.slo import MeetsSlo, meets_slo
from bricks.studies.serving.hosts import HostRange, ServedSetting, least
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.service import BatchLatency, ServiceTimes
from bricks.units.interval import Interval

FACTORS = np.random.default_rng(1).lognormal(0.0, 0.1, 4096)
LOAD = ScenarioLoad(ScenarioKind.SERVER, qps=50.0, slo_s=0.05, percentile=99.0)


def times(width: float, latency_s: float = 0.01) -> ServiceTimes:
    """Latencies of batches of 1, 2 and 4 with a relative half-width."""
    medians = {size: latency_s * size**0.8 for size in (1, 2, 4)}
    return ServiceTimes(
        [
            BatchLatency(n, RunLatency(Interval(s, s * (1 - width), s * (1 + width)), FACTORS))
            for n, s in medians.items()
        ]
    )


def served_at(serving: Serving, width: float = 0.0, **load: float) -> ServedSetting:
    return ServedSetting(times(width), replace(LOAD, **load), serving, queries=2000)


SERVINGS = st.builds(Serving, max_batch=st.sampled_from([1, 4]), instances=st.sampled_from([1, 2]))
WIDTHS = st.floats(0.0, 0.4)
RATES = st.floats(1.0, 2000.0)


@settings(max_examples=30, deadline=None)
@given(width=WIDTHS, serving=SERVINGS, qps=RATES, slo_s=st.floats(0.005, 0.2))
def test_an_interval_that_holds_the_bound_gives_no_number_of_hosts(
    width: float, serving: Serving, qps: float, slo_s: float
) -> None:
    served = served_at(serving, width, qps=qps, slo_s=slo_s)
    assert served.range.meets_slo is meets_slo(served.latency_s, slo_s)
    assert (served.range.hosts is not None) is (served.range.meets_slo is MeetsSlo.YES)
    if served.range.fewest is not None and served.range.enough is not None:
        assert served.range.fewest <= served.range.enough


@settings(max_examples=30, deadline=None)
@given(width=WIDTHS, serving=SERVINGS, rates=st.lists(RATES, min_size=2, max_size=3))
def test_more_requests_take_no_fewer_hosts(
    width: float, serving: Serving, rates: list[float]
) -> None:
    found = [served_at(serving, width, qps=qps).range for qps in sorted(rates)]
    for ends in ([of.fewest for of in found], [of.enough for of in found]):
        assert ends == sorted(ends, key=lambda hosts: math.inf if hosts is None else hosts)


@pytest.mark.parametrize("serving", [Serving(), Serving(instances=2), Serving(max_batch=4)])
def test_each_host_keeps_its_share_of_the_rate(serving: Serving) -> None:
    served = served_at(serving, qps=1000.0)
    hosts = served.range.hosts
    assert hosts is not None and hosts > 1
    # A rate that is a little lower may fill batches less well, and miss the bound.
    assert served.max_qps.value * hosts == pytest.approx(1000.0, rel=1 / hosts + 0.03)
    assert served_at(serving, qps=0.9 * served.max_qps.value).range == HostRange(1, 1)


def test_a_bound_below_one_run_is_kept_by_no_number_of_hosts() -> None:
    served = served_at(Serving(), 0.1, slo_s=0.008)
    assert served.range == HostRange(None, None)
    assert served.range.meets_slo is MeetsSlo.NO
    assert served.latency_s.low > 0.008
    assert served.max_qps.high == 0.0


def test_the_best_setting_takes_the_fewest_hosts() -> None:
    settings = [HostRange(2, 3), HostRange(1, None), HostRange(None, None)]
    assert least(settings) == HostRange(1, 3)
    assert least(settings).hosts is None
    assert least([HostRange(2, 2), HostRange(2, 4)]).hosts == 2
