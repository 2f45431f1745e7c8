"""A round whose core was shared with a busy hyperthread is disturbed, though nobody waited."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bricks.measure.worker.sibling import SiblingWatch
from bricks.units.sample import Sample

FAST, SLOW = 1e-4, 2e-4  # latencies of the reference in two machine states


class Scripted:
    """A chain that takes as long as it is told."""

    def __init__(self) -> None:
        self.seconds = 1e-5

    def sample(self) -> Sample:
        return Sample(self.seconds)


@pytest.fixture
def chain() -> Scripted:
    return Scripted()


@pytest.fixture
def watch(chain: Scripted) -> Iterator[SiblingWatch]:
    loads: list[Scripted] = []

    def load() -> Scripted:
        loads.append(chain)
        return chain

    yield SiblingWatch(load)
    assert len(loads) == 1  # however often it is asked


def test_the_share_that_a_sibling_takes_follows_from_the_fastest_chain(
    watch: SiblingWatch, chain: Scripted
) -> None:
    assert watch.busy_share(FAST) == 0.0
    chain.seconds = 1.6e-5
    assert watch.busy_share(1.14 * FAST) == pytest.approx(1 - 1 / 1.6)
    chain.seconds = 1e-5
    assert watch.busy_share(FAST) == 0.0


def test_drift_is_no_sibling(watch: SiblingWatch, chain: Scripted) -> None:
    for seconds in (1e-5, 1.1e-5, 0.95e-5, 1.1e-5):
        chain.seconds = seconds
        assert watch.busy_share(FAST) == 0.0


def test_what_slows_the_reference_as_well_is_a_state_of_the_machine(
    watch: SiblingWatch, chain: Scripted
) -> None:
    assert watch.busy_share(FAST) == 0.0
    chain.seconds = 2e-5  # a clock of half the frequency
    assert watch.busy_share(SLOW) == 0.0
    chain.seconds = 3.2e-5
    assert watch.busy_share(SLOW) == pytest.approx(1 - 2 / 3.2)
    chain.seconds = 1e-5
    assert watch.busy_share(FAST) == 0.0
