"""What is compared in one run takes turns over all of it, whatever it says of its progress."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from refusals import refused

from benchmarks import turns
from benchmarks.turns import Progress, Turns


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Who worked in each second, on a clock that only work moves."""
    worked: list[str] = []
    clock = SimpleNamespace(perf_counter=lambda: float(len(worked)))
    monkeypatch.setattr(turns, "time", clock)
    return worked


def working(name: str, seconds: int, order: list[str]) -> Callable[[Progress], None]:
    """Work that takes so many seconds, and says from the first one on that it is at its end."""

    def work(progress: Progress) -> None:
        for _ in range(seconds):
            order.append(name)
            progress(name, 1.0)

    return work


def test_each_works_in_every_part_of_the_run(order: list[str]) -> None:
    run = Turns()
    for name, seconds in (("long", 160), ("short", 16), ("shortest", 4)):
        run.add(name, working(name, seconds, order), seconds)
    run.run()
    assert run.spent_s == {"long": 160, "short": 16, "shortest": 4}
    parts = [order[begin : begin + 30] for begin in range(0, 180, 30)]
    assert all({"long", "short"} <= set(part) for part in parts)
    assert {"shortest"} <= set(order[:60]) and {"shortest"} <= set(order[90:])


def test_what_takes_longer_than_expected_ends_too(order: list[str]) -> None:
    run = Turns()
    run.add("expected", working("expected", 20, order), 20.0)
    run.add("longer", working("longer", 50, order), 10.0)
    run.run()
    assert run.spent_s == {"expected": 20, "longer": 50}


def test_an_error_is_raised_when_all_others_have_ended(order: list[str]) -> None:
    error = ValueError("no")

    def fail(progress: Progress) -> None:
        progress("failing", 0.0)
        raise error

    run = Turns()
    run.add("failing", fail, 10.0)
    run.add("other", working("other", 30, order), 30.0)
    with refused(ValueError) as caught:
        run.run()
    assert caught.value is error
    assert order.count("other") == 30
