"""The answer about a device tells up to which batch its host limits a model."""

from __future__ import annotations

from collections.abc import Iterator

from bricks.compose.estimate import DeviceTimes, Estimate, Uncertainty
from bricks.report.words import limited_up_to
from bricks.studies.inference.prediction import PredictedModel
from bricks.studies.inference.settings import Setting
from bricks.units.interval import Interval

ONE = Interval.exact(1.0)


def models(limits: dict[int, str | None]) -> Iterator[PredictedModel]:
    """A model at each batch, which this lane limits; None without a device."""
    for batch, lane in limits.items():
        times = None if lane is None else DeviceTimes(ONE, ONE, lane, ONE, ONE, 1)
        estimate = Estimate(
            "m", "executed", 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, (), Uncertainty(), device=times
        )
        setting = Setting(runtime="torch", system="h100", batch=batch)
        yield PredictedModel(model="m", estimate=estimate, setting=setting)


def answer(limits: dict[int, str | None]) -> str:
    return limited_up_to(list(models(limits)))


def test_the_host_limits_small_batches() -> None:
    assert answer({64: "device", 1: "host", 8: "host"}) == ", limited by the host up to batch 8"


def test_one_lane_limits_all_batches() -> None:
    assert answer({1: "host", 8: "host"}) == ", limited by the host"
    assert answer({1: "device", 8: "device"}) == ", limited by the device"


def test_nothing_is_said_where_the_limit_changes_back_or_is_not_known() -> None:
    assert answer({1: "host", 8: "device", 64: "host"}) == ""
    assert answer({1: "host", 8: None}) == ""
