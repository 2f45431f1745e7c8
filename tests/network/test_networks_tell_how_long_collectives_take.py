"""Times of collectives: as measured, by the fit, by formula, or from two stated numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from refusals import refused

from bricks.errors import UsageError
from bricks.network.collective import OPERATIONS, Aspect, Collective, bytes_sent, steps, volume
from bricks.network.series import fit
from bricks.network.times import MeasuredNetwork, Network, StatedNetwork
from bricks.samples.measurement import Measurement, Round
from bricks.units.quantities import bytes_per_s_of, written_bits

SIZES = [1024 << power for power in range(0, 17, 2)]


def line(alpha_s: float, bytes_per_s: float) -> Callable[[int], float]:
    return lambda num_bytes: alpha_s + num_bytes / bytes_per_s


def measured(
    time_s: Callable[[int], float],
    *,
    ranks: int = 2,
    aspect: Aspect = Aspect.ALONE,
    sizes: list[int] = SIZES,
) -> dict[str, Measurement]:
    """All-reduces whose rounds differ by a percent."""
    samples = {}
    for num_bytes in sizes:
        key = Collective("all_reduce", num_bytes, ranks, aspect).key
        rounds = tuple(Round((time_s(num_bytes) * (1 + n / 100),)) for n in (-1, 0, 1))
        samples[key] = Measurement(key, rounds, 1.0)
    return samples


def network(*series: dict[str, Measurement]) -> MeasuredNetwork:
    return MeasuredNetwork("lan", {}, {k: m for each in series for k, m in each.items()})


def test_keys_say_what_was_measured_and_nothing_else_is_such_a_key() -> None:
    for operation in OPERATIONS:
        for aspect in Aspect:
            of = Collective(operation, 4096, 8, aspect)
            assert Collective.of(of.key) == of
    for key in ("b1-00", "c1-all_reduce-1-2", "c1-shuffle-1-2-alone", "c1-broadcast-1-2-asleep"):
        assert Collective.of(key) is None


def test_a_measured_size_is_told_as_it_was_measured() -> None:
    found = network(measured(line(1e-4, 1e9))).time("all_reduce", SIZES[3], 2, computing=False)
    assert found.origin == "measured"
    assert found.interval.low < found.interval.value < found.interval.high
    assert found.interval.value == line(1e-4, 1e9)(SIZES[3])


def test_sizes_between_and_beyond_are_on_the_line_of_those_beside_them_and_less_certain() -> None:
    truth = line(1e-4, 1e9)
    lan = network(measured(truth))
    between = lan.time("all_reduce", 300_000, 2, computing=False)
    beyond = lan.time("all_reduce", 64 * SIZES[-1], 2, computing=False)
    assert (between.origin, beyond.origin) == ("fitted", "extrapolated")
    assert between.interval.value == pytest.approx(truth(300_000), rel=1e-6)
    assert beyond.interval.value == pytest.approx(truth(64 * SIZES[-1]), rel=1e-6)
    assert beyond.interval.relative > between.interval.relative > 0


def test_an_algorithm_that_changes_with_the_size_is_fitted_in_pieces() -> None:
    def truth(num_bytes: int) -> float:
        slow = num_bytes > 100_000
        return line(2e-3, 1e8)(num_bytes) if slow else line(1e-4, 1e9)(num_bytes)

    points = [(1024 << power, truth(1024 << power)) for power in range(14)]
    found = fit(points)
    assert len(found.segments) == 2
    for size in (3_000, 50_000, 300_000, 6_000_000):
        assert found.time_s(size) == pytest.approx(truth(size), rel=1e-6)
    assert len(fit([(size, line(1e-4, 1e9)(size)) for size, _ in points]).segments) == 1
    # Between the pieces times rise with the size.
    times = [found.time_s(size) for size in range(60_000, 140_000, 1000)]
    assert times == sorted(times)


def test_sizes_that_leave_the_caches_are_fitted_by_lines_that_begin_below_zero() -> None:
    def truth(num_bytes: int) -> float:
        return max(line(1e-4, 2e9)(num_bytes), line(-8e-3, 5e8)(num_bytes))

    lan = network(measured(truth, sizes=[1024 << power for power in range(18)]))
    of = lan.series("all_reduce", Aspect.ALONE)[2].fit
    assert of.segments[-1].alpha_s < 0
    assert of.time_s(50_000_000) == pytest.approx(truth(50_000_000), rel=0.05)
    for ranks in (2, 8, 1024):
        times = [
            lan.time("all_reduce", size, ranks, computing=False).interval.value
            for size in (1 << 23, 1 << 26, 1 << 29)
        ]
        assert times == sorted(times) and times[0] > 0


def test_what_bends_far_from_a_size_does_not_move_it() -> None:
    """Messages that leave the caches take longer; smaller ones, and larger ones, are not moved."""

    def truth(num_bytes: int) -> float:
        return max(line(1e-4, 2e9)(num_bytes), line(-8e-3, 2e8)(num_bytes))

    lan = network(measured(truth))
    for size in (3_000, 100_000, 900_000, 8_000_000, 40_000_000, 200_000_000):
        found = lan.time("all_reduce", size, 2, computing=False)
        assert found.interval.value == pytest.approx(truth(size), rel=1e-6)
    bent = lan.time("all_reduce", 3_000_000, 2, computing=False)
    assert bent.interval.holds(truth(3_000_000))
    straight = lan.time("all_reduce", 8_000, 2, computing=False)
    assert bent.interval.relative > straight.interval.relative


def test_between_two_pieces_either_may_be_right() -> None:
    def truth(num_bytes: int) -> float:
        return line(1e-4, 1e9)(num_bytes) if num_bytes <= 65_536 else line(5e-3, 1e8)(num_bytes)

    lan = network(measured(truth, sizes=[1024 << power for power in range(12)]))
    gap = lan.time("all_reduce", 90_000, 2, computing=False)
    assert gap.interval.holds(line(1e-4, 1e9)(90_000))
    assert gap.interval.holds(line(5e-3, 1e8)(90_000))
    beside = lan.time("all_reduce", 200_000, 2, computing=False)
    assert beside.interval.relative < gap.interval.relative


def test_a_single_size_and_times_that_fall_are_fitted_without_negative_numbers() -> None:
    for points in ([(4096, 1e-3)], [(1024, 3e-3), (4096, 2e-3), (16384, 1e-3)]):
        (line,) = fit(points).segments
        assert line.alpha_s >= 0 and line.beta_bytes_per_s > 0


@pytest.mark.parametrize("ranks", [3, 4, 16])
def test_ranks_that_nobody_measured_follow_the_formula_and_are_less_certain(ranks: int) -> None:
    latency_s, bytes_per_s = 5e-5, 1e9

    def ring(ranks: int) -> Callable[[int], float]:
        return lambda size: 2 * (ranks - 1) * (latency_s + size / ranks / bytes_per_s)

    lan = network(measured(ring(2)))
    two = lan.time("all_reduce", SIZES[5], 2, computing=False)
    more = lan.time("all_reduce", SIZES[5], ranks, computing=False)
    assert more.origin == "extrapolated"
    assert more.interval.value == pytest.approx(ring(ranks)(SIZES[5]), rel=1e-6)
    assert more.interval.relative > two.interval.relative
    # Where the formula was wrong between two measured numbers of ranks, it is trusted less.
    wrong = network(measured(ring(2)), measured(lambda size: 2 * ring(3)(size), ranks=3))
    doubted = wrong.time("all_reduce", SIZES[5], 4 * ranks, computing=False)
    trusted = lan.time("all_reduce", SIZES[5], 4 * ranks, computing=False)
    assert doubted.interval.relative > trusted.interval.relative


def test_computing_ranks_are_told_as_measured_or_with_half_a_core() -> None:
    isolated = measured(line(1e-4, 1e9))
    size = SIZES[4]
    guessed = network(isolated).time("all_reduce", size, 2, computing=True)
    once = network(isolated).time("all_reduce", size, 2, computing=False)
    assert guessed.origin == "extrapolated"
    assert (
        guessed.interval.low
        <= once.interval.value
        < guessed.interval.value
        < 2 * once.interval.value
        <= guessed.interval.high
    )
    both = network(isolated, measured(line(3e-4, 5e8), aspect=Aspect.COMPUTING))
    assert both.time("all_reduce", size, 2, computing=True).origin == "measured"
    assert both.slowdown(2).interval.value == 1.0 and both.slowdown(2).interval.high == 2.0
    units = [
        measured(lambda size: 1e-3, aspect=Aspect.UNIT_BEFORE),
        measured(lambda size: 1.5e-3, aspect=Aspect.UNIT_DURING),
    ]
    slowdown = network(isolated, *units).slowdown(2)
    assert (slowdown.interval.value, slowdown.origin) == (pytest.approx(1.5), "measured")
    assert network(isolated, *units).slowdown(8).origin == "extrapolated"


def test_a_stated_network_is_its_formula() -> None:
    lan: Network = StatedNetwork(bandwidth=1e9, latency_s=1e-4)
    found = lan.time("all_reduce", 8_000_000, 4, computing=True)
    assert found.interval.value == pytest.approx(6 * 1e-4 + 1.5 * 8e-3)
    assert found.origin == "stated"
    assert lan.time("broadcast", 8_000_000, 5, computing=False).interval.value == pytest.approx(
        3 * (1e-4 + 8e-3)
    )
    for operation in OPERATIONS:
        assert lan.time(operation, 1 << 20, 1, computing=False).interval.value == 0
        assert steps(operation, 2) >= 1 and volume(operation, 64) <= 6
        assert bytes_sent(operation, 100, 1) == 0
    assert lan.slowdown(1).interval.high == 1 < lan.slowdown(2).interval.high
    for bandwidth, latency_s in ((0.0, 0.0), (math.nan, 0.0), (1e9, -1.0)):
        with pytest.raises(UsageError):
            StatedNetwork(bandwidth, latency_s)


def test_what_was_not_measured_is_an_error_that_says_what_to_do() -> None:
    lan = network(measured(line(1e-4, 1e9)))
    with refused(UsageError, "bricks interconnect measure lan --operation broadcast"):
        lan.time("broadcast", 1024, 2, computing=False)
    with refused(UsageError, "shuffle", *OPERATIONS):
        lan.time("shuffle", 1024, 2, computing=False)


def test_bandwidths_are_read_and_written_as_people_write_them() -> None:
    words = ("1Gbit", "100 Mbit/s", "2.5gbit")
    assert [8 * bytes_per_s_of("", each) for each in words] == [1e9, 1e8, 2.5e9]
    assert written_bits(1e8) == "100Mbit"
    for text in ("", "fast", "1", "-1Gbit", "0Gbit", "1GB"):
        with pytest.raises(UsageError):
            bytes_per_s_of("--bandwidth", text)
