"""The loopback that real ranks communicate over: measured as far as the cache lacks it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from refusals import refused

from bricks import UsageError
from bricks.measure.ranks import LocalRanks
from bricks.network.collective import Collective
from bricks.network.times import MeasuredNetwork
from bricks.session.networks import (
    NetworkRequest,
    loopback_network,
    measure_locally,
    measured_networks,
)
from bricks.store import Store

SIZES = (1024, 4096)
OPERATIONS = ("all_reduce", "broadcast")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "cache") as store:
        yield store


def asked(
    store: Store, ranks: int = 2, operations: Sequence[str] = OPERATIONS
) -> tuple[MeasuredNetwork, list[str]]:
    """The network, and the names under which it was announced that something is measured."""
    announced: list[str] = []
    network = loopback_network(store, wanted(ranks, operations), announce=announced.append)
    return network, announced


def wanted(ranks: int, operations: Sequence[str], name: str = "loopback") -> NetworkRequest:
    return NetworkRequest(name, ranks, "fake", operations, SIZES)


def known(network: MeasuredNetwork) -> set[tuple[str, int]]:
    collectives = map(Collective.of, network.samples)
    return {(of.operation, of.num_bytes) for of in collectives if of is not None}


def test_it_is_measured_once_alone_and_beside_computing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, announced = asked(store)
    assert announced == [network.name] == ["loopback"]
    assert known(network) == {(o, size) for o in OPERATIONS for size in SIZES}
    assert network.slowdown(2).origin == "measured"

    def started(*_: object, **__: object) -> None:
        raise AssertionError("ranks start although all is known")

    monkeypatch.setattr(LocalRanks, "__init__", started)
    assert asked(store) == (network, [])


def test_what_is_known_under_another_name_is_used_and_only_what_lacks_is_measured(
    store: Store,
) -> None:
    measure_locally(store, wanted(2, ["all-reduce"], "lo"))
    before = measured_networks(store)[0].samples
    network, announced = asked(store)
    assert announced == [network.name] == ["lo"]
    assert known(network) == {(o, size) for o in OPERATIONS for size in SIZES}
    assert {key: network.samples[key] for key in before} == before
    assert [network.name for network in measured_networks(store)] == ["lo"]


def test_ranks_that_share_cores_otherwise_are_another_network_with_a_name_of_its_own(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bricks.session.networks.logical_cpus", lambda: [0, 1])
    two, three = asked(store, 2, ["broadcast"])[0], asked(store, 3, ["broadcast"])[0]
    assert two.fingerprint["key"] != three.fingerprint["key"]
    assert (two.name, three.name) == ("loopback", "loopback-3")
    assert asked(store, 3, ["broadcast"]) == (three, [])


def test_an_announcement_that_refuses_leaves_the_cache_as_it_was(store: Store) -> None:
    def refuse(name: str) -> None:
        raise UsageError(f"{name} is not to be measured")

    with refused(UsageError, "loopback"):
        loopback_network(store, wanted(2, OPERATIONS), announce=refuse)
    assert measured_networks(store) == []
