"""Collectives of cards that divide a decoder take a network's time, where a step waits for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from bricks.architectures.architecture import Architecture, part_of
from bricks.backends.torch.decoders import decoder_step
from bricks.compose.basis import Basis, DeviceBasis
from bricks.compose.device.collectives import (
    HOST_CALLS,
    collective_of,
    step_collectives,
    with_collectives,
)
from bricks.compose.device.launching import LaunchCosts
from bricks.compose.estimate import DeviceTimes, Estimate
from bricks.compose.recompose import recompose
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition
from bricks.graph.model import Model
from bricks.graph.view import graph_of
from bricks.network.collective import bytes_sent, steps
from bricks.network.times import LinkedCards, StatedNetwork
from bricks.reading.digest import digest
from bricks.samples.measurement import Measurement, Round
from bricks.system.cards import NvLink, card_named
from bricks.units.sample import Kernel, Sample

LAYERS, CARDS, TEXTS, TOKENS = 3, 4, 2, 5
SMALL = Architecture(
    layers=LAYERS, hidden=64, heads=8, kv_heads=2, head=8, inner=96, vocabulary=101, positions=64,
    published=1.0,
)  # fmt: skip
# A card reduces after the embedding, attention and feed-forward network, and gathers the logits.
REDUCED, GATHERED = 2 * LAYERS + 1, 1
INSTANT = StatedNetwork(1e30, 0.0)
LATENCY_S = 2e-3
SLOW = StatedNetwork(1e30, LATENCY_S)
TAKEN_S = LATENCY_S * (REDUCED * steps("all_reduce", CARDS) + GATHERED * steps("all_gather", CARDS))


@cache
def decomposed() -> Decomposition:
    proto = decoder_step("small", SMALL, TEXTS, TOKENS, 0, CARDS)
    model = Model("small", Path(), proto.SerializeToString(), (), digest(proto))
    return build(model, graph_of(proto), Granularity.parse("executed"))


def basis(host_s: float, device_s: float) -> Basis:
    """A step whose calls take ``host_s`` and ``device_s`` each, apart from collectives."""
    cut = decomposed()
    bricks = cut.bricks
    results = {
        key: Measurement(
            key, (Round.of([Sample(host_s, (Kernel("k", device_s),), None)] * 3),), 0.0
        )
        for key, brick in bricks.items()
        if collective_of(brick) is None
    }
    device = DeviceBasis(card_named("h100").accelerator, LaunchCosts(), bricks)
    return Basis(cut.plan, results, device=device)


def estimate(of: Basis, network: StatedNetwork) -> Estimate:
    found = recompose(with_collectives(of, network))
    assert isinstance(found, Estimate)
    return found


def lanes(of: Estimate) -> DeviceTimes:
    assert of.device is not None
    return of.device


def collectives() -> Iterator[tuple[str, int, int]]:
    for brick in decomposed().bricks.values():
        if (of := collective_of(brick)) is not None:
            assert of.ranks == CARDS
            yield of.operation, of.num_bytes, decomposed().plan.counts[brick.key]


def test_each_layer_reduces_twice_and_the_logits_are_gathered() -> None:
    counts, sizes = Counter[str](), set[tuple[str, int]]()
    for operation, num_bytes, count in collectives():
        counts[operation] += count
        sizes.add((operation, num_bytes))
    assert counts == {"all_reduce": REDUCED, "all_gather": GATHERED}
    padded = CARDS * part_of("small", SMALL, CARDS).vocabulary
    states, logits = 2 * TEXTS * TOKENS * SMALL.hidden, 2 * TEXTS * padded
    assert sizes == {("all_reduce", states), ("all_gather", logits)}


def test_a_card_sends_the_bytes_of_the_closed_form() -> None:
    plan, bricks = decomposed().plan, decomposed().bricks
    found = step_collectives(plan, bricks, SLOW)
    sent = sum(n * bytes_sent(operation, size, CARDS) for operation, size, n in collectives())
    assert (found.count, found.sent_bytes) == (REDUCED + GATHERED, round(sent))
    assert found.seconds.value == pytest.approx(TAKEN_S)
    linked = step_collectives(plan, bricks, LinkedCards(NvLink(900e9, 8))).seconds
    assert linked.high == pytest.approx(4 * linked.low)


def test_a_graph_waits_for_every_collective() -> None:
    of = basis(host_s=1e-5, device_s=1e-5)
    without, slow = lanes(estimate(of, INSTANT)), lanes(estimate(of, SLOW))
    assert slow.graph_s is not None and without.graph_s is not None
    assert slow.graph_s.value - without.graph_s.value == pytest.approx(TAKEN_S)
    assert slow.device_s.value - without.device_s.value == pytest.approx(TAKEN_S)


def test_a_step_that_the_device_limits_waits_for_every_collective() -> None:
    of = basis(host_s=1e-6, device_s=1e-3)
    without, slow = estimate(of, INSTANT), estimate(of, SLOW)
    assert lanes(without).limited_by == "device"
    assert slow.latency_s.value - without.latency_s.value == pytest.approx(TAKEN_S, rel=0.01)


def test_a_step_that_the_host_limits_hides_all_but_the_last() -> None:
    of = basis(host_s=0.1, device_s=1e-6)
    without, slow = estimate(of, INSTANT), estimate(of, SLOW)
    assert lanes(without).limited_by == "host"
    gathering_s = LATENCY_S * steps("all_gather", CARDS)
    assert 0 <= slow.latency_s.value - without.latency_s.value <= gathering_s * (1 + 1e-9)


def test_issuing_a_collective_takes_the_host_some_calls() -> None:
    of = basis(host_s=1e-4, device_s=1e-6)
    known = with_collectives(of, INSTANT)
    assert known.device is not None
    assert len(known.device.predicted) == len(list(collectives()))
    for predicted in known.device.predicted.values():
        assert predicted.kernels.latency_s == pytest.approx(HOST_CALLS * 1e-4)


def test_a_network_that_nobody_checked_widens_a_step_that_it_limits() -> None:
    narrow, wide = (lanes(estimate(basis(1e-6, 1e-6), of)) for of in (INSTANT, SLOW))
    assert wide.device_s.relative > narrow.device_s.relative
    assert estimate(basis(1e-6, 1e-6), SLOW).predicted_share > 0.9
