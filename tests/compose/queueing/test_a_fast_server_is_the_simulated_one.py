"""The fast simulation of a search gives the latencies of the general one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bricks.compose.queueing.batching import BatchPolicy, latencies_s
from bricks.compose.queueing.simulation import poisson_s, simulate


@given(
    qps=st.floats(1.0, 300.0), instances=st.integers(1, 3), largest=st.integers(1, 4),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_both_simulations_agree(qps: float, instances: int, largest: int, seed: int) -> None:
    count = 200
    batch_s = np.random.default_rng(seed).uniform(0.001, 0.02, (largest, count))

    def seconds(size: int, number: int, idle_depth: float, busy: int) -> float:
        return float(batch_s[size - 1, number])

    arrivals_s = poisson_s(qps, count, seed)
    policies = [BatchPolicy(largest, 0.0, seconds) for _ in range(instances)]
    general = simulate(arrivals_s, policies).latencies_s
    fast = latencies_s(np.asarray(arrivals_s), instances, batch_s)
    assert fast == pytest.approx(general, rel=1e-9, abs=1e-12)
