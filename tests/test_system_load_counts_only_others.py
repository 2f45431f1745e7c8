from __future__ import annotations

import pytest

from bricks.report.tables import disturbance
from bricks.system import ForeignLoad
from bricks.system import load as module


def test_own_work_and_that_of_workers_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, own, live, clock = (
        iter([100.0, 130.0]),
        iter([4.0, 9.0]),
        iter([1.0, 16.0]),
        iter([0, 20]),
    )
    monkeypatch.setattr(module, "_busy_s", lambda: next(busy))
    monkeypatch.setattr(module.os, "times", lambda: (next(own), 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(module.time, "monotonic", lambda: next(clock))
    load = ForeignLoad(lambda: next(live))
    assert load.cores() == pytest.approx((30 - 5 - 15) / 20)


def test_it_reads_the_real_clocks() -> None:
    assert 0 <= ForeignLoad().cores()


@pytest.mark.parametrize(("cores", "lines"), [(None, 0), (0.02, 0), (0.7, 1)])
def test_people_are_told_when_it_matters(cores: float | None, lines: int) -> None:
    assert len(disturbance(cores)) == lines
