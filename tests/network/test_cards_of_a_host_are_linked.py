"""Collectives between cards of a host, from the bandwidth that their maker publishes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import refused

from bricks.errors import UsageError
from bricks.network.collective import ALL_REDUCE, OPERATIONS, steps, volume
from bricks.network.times import (
    PROTOCOLS,
    PUBLISHED,
    STATED,
    UNCHECKED_FACTOR,
    CardsThenHosts,
    LinkedCards,
    Network,
    StatedNetwork,
)
from bricks.system.cards import NvLink

LINK = NvLink(900e9, 8)
CARDS = LinkedCards(LINK)

operations = st.sampled_from(OPERATIONS)
sizes = st.integers(0, 1 << 34)
ranks = st.integers(2, 8)


def seconds(operation: str, num_bytes: int, among: int, of: LinkedCards = CARDS) -> float:
    return of.time(operation, num_bytes, among, computing=False).interval.value


@given(operations, sizes, ranks)
def test_no_collective_beats_the_links(operation: str, num_bytes: int, among: int) -> None:
    ideal_s = volume(operation, among) * num_bytes / LINK.one_way_bytes_per_s
    latency_s = min(of.base_s + steps(operation, among) * of.step_s for of in PROTOCOLS)
    assert seconds(operation, num_bytes, among) >= max(ideal_s, latency_s) * (1 - 1e-12)


@given(operations, sizes, sizes, ranks)
def test_more_bytes_never_take_less(operation: str, one: int, other: int, among: int) -> None:
    less, more = sorted((one, other))
    assert seconds(operation, less, among) <= seconds(operation, more, among)


def test_large_messages_take_their_volume_and_small_ones_their_latency() -> None:
    large = 1 << 36
    volume_s = volume(ALL_REDUCE, 8) * large / LINK.one_way_bytes_per_s
    assert seconds(ALL_REDUCE, large, 8) == pytest.approx(volume_s, rel=1e-3)
    assert seconds(ALL_REDUCE, 0, 8) == pytest.approx(6.6e-6 + 14 * 0.6e-6)
    slower = LinkedCards(NvLink(LINK.both_ways_bytes_per_s / 2, 8))
    assert seconds(ALL_REDUCE, large, 8, slower) == pytest.approx(2 * volume_s, rel=1e-3)


def test_what_nobody_checked_has_a_wide_interval() -> None:
    time = CARDS.time(ALL_REDUCE, 1 << 20, 8, computing=True)
    assert time.origin == PUBLISHED
    assert time.interval.high == UNCHECKED_FACTOR**2 * time.interval.low
    assert CARDS.slowdown(8).interval.high > CARDS.slowdown(1).interval.high == 1.0


def test_a_single_card_sends_nothing() -> None:
    assert seconds(ALL_REDUCE, 1 << 20, 1) == 0.0
    with refused(UsageError, "'shout'"):
        seconds("shout", 1, 2)


def test_more_ranks_than_cards_are_on_hosts_of_their_own() -> None:
    hosts = StatedNetwork(1e9, 1e-4)
    both = CardsThenHosts(CARDS, hosts)
    expected: list[tuple[int, Network, str]] = [(8, CARDS, PUBLISHED), (9, hosts, STATED)]
    for among, network, origin in expected:
        time = both.time(ALL_REDUCE, 1 << 20, among, computing=False)
        assert time == network.time(ALL_REDUCE, 1 << 20, among, computing=False)
        assert time.origin == both.slowdown(among).origin == origin
