"""Sums of passes say what their bricks have in common, and what not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from bricks.samples.measurement import Measurement, Round
from bricks.samples.passes import walked_together
from bricks.samples.statistics import skew_share
from bricks.system.host_conditions import KERNELS, HostConditions

ROUNDS, BRICKS = 200, 20


def walk(slow: Callable[[np.random.Generator], np.ndarray]) -> dict[str, tuple[Measurement, int]]:
    """Bricks of a millisecond in two passes a round, each as much slower as ``slow`` says."""
    rng = np.random.default_rng(0)
    hosts = [HostConditions((1e-3 * (1 + n / 1e6),) * len(KERNELS)) for n in range(ROUNDS)]
    seconds = 1e-3 * slow(rng) * rng.normal(1.0, 0.01, (BRICKS, ROUNDS, 2))
    return {
        f"b{n}": (
            Measurement(
                f"b{n}", tuple(Round(tuple(s), h) for s, h in zip(of, hosts, strict=True)), 1.0
            ),
            1,
        )
        for n, of in enumerate(seconds)
    }


def sum_s(parts: dict[str, tuple[Measurement, int]]) -> float:
    (found,) = walked_together(parts)
    assert found.keys == tuple(parts)
    way_s = found.term.mean_s - found.term.medians_s
    return found.term.medians_s + skew_share([found.term]) * way_s


def test_interruptions_of_single_bricks_are_in_every_run() -> None:
    parts = walk(lambda rng: np.where(rng.random((BRICKS, ROUNDS, 2)) < 0.1, 2.0, 1.0))
    assert sum(m.latency_s for m, _ in parts.values()) == pytest.approx(BRICKS * 1e-3, rel=0.02)
    assert sum_s(parts) == pytest.approx(1.1 * BRICKS * 1e-3, rel=0.03)


def test_a_host_that_is_slow_now_and_then_is_slow_for_all_bricks() -> None:
    parts = walk(lambda rng: np.where(rng.random((1, ROUNDS, 2)) < 0.1, 2.0, 1.0))
    assert sum_s(parts) == pytest.approx(BRICKS * 1e-3, rel=0.02)


def test_bricks_of_unknown_conditions_are_by_themselves() -> None:
    parts = {
        key: (Measurement(key, (Round((1e-3,) * 4),) * 3, 1.0), count)
        for key, count in (("a", 1), ("b", 3))
    }
    first, second = walked_together(parts)
    assert (first.keys, second.keys) == (("a",), ("b",))
    assert (first.factor, second.factor) == (1.0, 1.0)
    assert second.term.medians_s == pytest.approx(3e-3)
