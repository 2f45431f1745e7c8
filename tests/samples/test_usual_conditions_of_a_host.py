"""The usual conditions of a host are those of all its periods: a few seconds show little."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import pytest

from bricks.samples.usual_conditions import UsualConditions
from bricks.system.host_conditions import KERNELS, HostConditions

PERIOD_S = 600
USUAL_S = 1e-3

# A latency that follows all kernels, and one that follows the last.
ALL, LAST = np.full(len(KERNELS), 1 / len(KERNELS)), np.eye(len(KERNELS))[-1]

# How much the mean over a run is assumed to differ, if a single period or none was seen.
PERIOD_SD, BLOCK_SD = 0.04, 0.02


def host(factor: float, second: int | None = None) -> HostConditions:
    return HostConditions((factor * USUAL_S,) * len(KERNELS), second)


def seen(seconds: Iterable[HostConditions]) -> UsualConditions:
    found = UsualConditions.seen([*seconds])
    assert found is not None
    return found


def periods(*factors: float, length_s: int = 10) -> UsualConditions:
    """A host that is watched for some seconds of each period, each with its own speed."""
    return seen(
        host(factor, PERIOD_S * number + second)
        for number, factor in enumerate(factors)
        for second in range(length_s)
    )


def test_each_period_of_ten_minutes_counts_as_much_as_any_other() -> None:
    long = [host(1.0, second) for second in range(300)]
    short = [host(4.0, PERIOD_S + second) for second in range(5)]
    found = seen([*long, *short])
    assert found.mean.kernels_s == pytest.approx((2 * USUAL_S,) * len(KERNELS))
    assert (found.watched_s, found.periods) == (305, 2)
    assert seen(reversed([*long, *short])).mean == found.mean


def test_one_period_keeps_the_width_of_the_prior_however_long_it_was() -> None:
    """Whether a host changes from hour to hour cannot be seen within ten minutes."""
    for length_s in (1, 5, 60, 300, PERIOD_S):
        assert periods(1.0, length_s=length_s).relative_sd(ALL) > PERIOD_SD
    assumed = math.sqrt(2) * math.hypot(PERIOD_SD, BLOCK_SD)
    assert UsualConditions.assumed(host(1.0)).relative_sd(ALL) == pytest.approx(assumed)


def test_more_periods_that_agree_narrow_it() -> None:
    widths = [periods(*[1.0] * count).relative_sd(ALL) for count in (1, 2, 4, 16, 64)]
    assert all(after < before for before, after in pairwise(widths))
    assert widths[-1] < PERIOD_SD / 2


def test_periods_that_differ_are_as_wide_as_their_difference() -> None:
    factor = math.exp(0.1)
    found = periods(*[factor, 1 / factor] * 10)
    assert found.mean.kernels_s == pytest.approx((USUAL_S,) * len(KERNELS))
    assert found.relative_sd(ALL) == pytest.approx(0.1, rel=0.1)


def test_a_kernel_that_changes_alone_widens_what_follows_it() -> None:
    def of(number: int, second: int) -> HostConditions:
        *others, _ = host(1.0).kernels_s
        last_s = USUAL_S * math.exp(0.2 * (-1) ** number)
        return HostConditions((*others, last_s), PERIOD_S * number + second)

    found = seen(of(number, second) for number in range(20) for second in range(10))
    assert found.relative_sd(LAST) == pytest.approx(0.2, rel=0.1)
    assert found.relative_sd(np.eye(len(KERNELS))[0]) < PERIOD_SD


def test_conditions_without_a_time_or_a_kernel_are_not_seen() -> None:
    assert UsualConditions.seen([]) is None
    partly = HostConditions((*host(1.0).kernels_s[:-1], None), 7)
    assert UsualConditions.seen([host(1.0), partly]) is None
    assert seen([host(1.0, 7), partly, host(9.0)]).watched_s == 1


def test_a_host_that_stays_slow_for_a_while_is_slow_in_the_next_seconds() -> None:
    found = seen(host(2.0 if second // 60 % 2 else 0.5, second) for second in range(PERIOD_S))
    now = found.from_now([host(2.0, 10_000)])
    assert now.mean.kernels_s == pytest.approx((2.0 * USUAL_S,) * len(KERNELS), rel=0.1)
    assert now.mean.taken_s == 10_000
    assert now.relative_sd(ALL) < found.relative_sd(ALL) / 2
    assert found.from_now([]) is found


def test_a_host_that_changes_in_each_second_says_nothing_of_the_next_ones() -> None:
    speeds = np.random.default_rng(0).choice([0.5, 2.0], PERIOD_S)
    found = seen(host(factor, second) for second, factor in enumerate(speeds))
    mean = found.from_now([host(2.0)]).mean
    assert mean.kernels_s == pytest.approx(found.mean.kernels_s, rel=0.15)


def test_a_steady_host_that_was_never_seen_slow_is_believed_to_be_slow_now() -> None:
    """Seconds of a steady period say nothing of changes between periods, which last."""
    noise = np.random.default_rng(0).normal(0.0, 0.03, (60, len(KERNELS)))
    watched = [
        HostConditions(tuple(USUAL_S * np.exp(logs)), second) for second, logs in enumerate(noise)
    ]
    now = seen(watched).from_now([host(1.1, 10_000)])
    assert 1.05 < now.mean.kernels_s[0] / USUAL_S < 1.1


def test_what_kernels_do_not_show_differs_between_periods_only() -> None:
    usual = periods(1.0)
    assert usual.unshown_sd(host(1.0, 0)) > 0
    assert usual.from_now([host(1.0, 10_000)]).unshown_sd(host(1.0, 0)) > 0
    assert usual.from_now([host(1.0, 30)]).unshown_sd(host(1.0, 0)) == 0
    assert UsualConditions.exactly(host(1.0)).unshown_sd(host(1.0, 0)) == 0


def test_known_conditions_have_no_width() -> None:
    assert UsualConditions.exactly(host(1.0)).relative_sd(ALL) == 0.0
