"""A checked step says what both ranks at once took without communication: they share a host."""

from __future__ import annotations

import pytest
from store_examples import make_target

from bricks.compose.lanes import Timeline
from bricks.report.scaling import scaling_details
from bricks.studies.scaling.options import StepOptions
from bricks.studies.scaling.result import (
    MEASURED,
    CheckedStep,
    Origins,
    RankNetwork,
    ScalePoint,
    ScaleResult,
    ScalingResult,
)
from bricks.units.interval import Interval

ONE = Interval.exact(1.0)


def point(ranks: int, step_s: float, checked: CheckedStep | None) -> ScalePoint:
    return ScalePoint(
        ranks=ranks, strategy="ddp", batch=4, step_s=Interval.exact(step_s), samples_per_s=ONE,
        speedup=ONE, efficiency=ONE, exposed_communication_s=ONE, communication_s=0.0,
        bytes_sent=0.0, cost_per_epoch=None, origins=Origins("measured", *["measured"] * 3),
        simulated=Timeline(()), checked=checked, solo_s=0.14 if ranks > 1 else step_s,
    )  # fmt: skip


def said(*, strong: bool, one_host: bool = False) -> str:
    points = point(1, 0.1, None), point(2, 0.11, CheckedStep(2, 0.165, 0.15))
    scaled = ScaleResult("ddp", points, None, 2)
    network, step = RankNetwork("lo", MEASURED, one_host=one_host), StepOptions(strong=strong)
    result = ScalingResult("net", make_target(), network, step, (scaled,))
    return " ".join(part for part in scaling_details(result) if isinstance(part, str))


@pytest.mark.parametrize("fact", ["2 ranks at once took 150 ms", "(100 ms predicted)"])
def test_a_checked_step_has_its_solo_step_beside_the_predicted_one(fact: str) -> None:
    assert fact in said(strong=False)


def test_a_rank_of_a_divided_batch_is_not_compared_with_one_that_has_all() -> None:
    assert "at once" not in said(strong=True)


def test_ranks_that_share_a_host_in_the_prediction_are_compared_with_what_they_take_at_once() -> (
    None
):
    text = said(strong=False, one_host=True)
    assert "2 ranks at once took 150 ms (140 ms predicted)." in text
    assert "hosts of their own" not in text
