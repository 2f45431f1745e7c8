"""The conditions of a host are kept with each round, and once for each second it was watched."""

from __future__ import annotations

from pathlib import Path

import pytest
from refusals import refused
from sqlalchemy import create_engine, text
from store_examples import (
    ON_BOTH,
    Cache,
    back_to_version_7,
    keys_up_to,
    make_target,
    open_with_target,
)

from bricks.errors import CacheDamaged
from bricks.samples.measurement import Measurement, Round
from bricks.store import SCHEMA_VERSION, Owner, Store
from bricks.store.engine import locate
from bricks.system.accelerator import AcceleratorState
from bricks.system.host_conditions import KERNELS, HostConditions

TARGET = make_target()
WAITED, STATE = 0.25, AcceleratorState(1.41e9, 699.5, ("power",))


def host(latency_s: float, taken_s: int | None = None) -> HostConditions:
    """Conditions in which each kernel takes this long."""
    return HostConditions((latency_s,) * len(KERNELS), taken_s)


def measure(store: Store, *walks: dict[str, Round]) -> None:
    """Measure some keys, in these walks."""
    owner, keys = Owner.current(), sorted(set().union(*walks))
    store.claims.claim(TARGET.key, keys, owner)
    for walk in walks:
        rounds = {key: (round_, 1.0) for key, round_ in walk.items()}
        store.claims.append_rounds(TARGET.key, rounds, owner)
    store.claims.finish(TARGET.key, keys, owner)


@ON_BOTH
def test_a_reference_of_version_7_is_the_kernel_of_exchange(cache: Cache) -> None:
    """Of each round the mean before and after it; rounds that were damaged stay damaged."""
    *sound, damaged = (f"p1-{number}" for number in range(5))
    with open_with_target(cache) as store:
        for key in (*sound, damaged):
            state = STATE if key == sound[0] else None
            measure(store, {key: Round((0.5,), None, WAITED, device_state=state)})
    engine = create_engine(locate(cache))
    with engine.begin() as connection:
        references = [(2e-3, 3e-3), (2e-3, None), (None, 3e-3), (None, None), (2e-3, 3e-3)]
        back_to_version_7(connection, references)
        connection.execute(
            text(
                "UPDATE rounds SET reference_s = 0.004 WHERE measurement_id ="
                " (SELECT id FROM measurements WHERE brick_key = :key)"
            ),
            {"key": damaged},
        )
    engine.dispose()
    with Store.open(cache) as store:
        assert store.contents.stats().schema_version == SCHEMA_VERSION
        results = store.measurements.results(TARGET.key, sound)
        exchange_s = (2.5e-3, 2e-3, 3e-3, None)
        for key, latency_s in zip(sound, exchange_s, strict=True):
            known = None if latency_s is None else HostConditions.of_exchange(latency_s)
            state = STATE if key == sound[0] else None
            of_key = Round((0.5,), known, WAITED, device_state=state)
            assert results[key] == Measurement(key, (of_key,), 1.0)
        with refused(CacheDamaged, damaged):
            store.measurements.results(TARGET.key, [damaged])
        (problem,) = store.contents.verify()
        assert damaged in problem and "it is not as it was written" in problem
        assert store.measurements.watched(TARGET.key) == []  # nobody knows when it was
        measure(store, {"p1-later": Round((0.5,), host(1e-3, 7))})
        assert store.measurements.watched(TARGET.key) == [host(1e-3, 7)]


@ON_BOTH
def test_each_second_counts_once_with_complete_conditions(cache: Cache) -> None:
    one, two, three = keys_up_to(4)[1:]
    partly = HostConditions((1e-3,) * (len(KERNELS) - 1) + (None,), 9)
    with open_with_target(cache) as store:
        measure(
            store,
            {one: Round((0.5,), host(1e-3, 7)), two: Round((0.5,), host(4e-3, 7))},  # their mean
            {one: Round((0.5,), host(8e-3, 7)), two: Round((0.5,), host(1e-3, 8))},  # 7 is known
            {one: Round((0.5,), partly), two: Round((0.5,), host(1e-3)), three: Round((0.5,))},
        )
        store.measurements.watch(TARGET.key, [host(3e-3, 10), host(5e-3, 8)])
        watched = store.measurements.watched(TARGET.key)
    assert [of.taken_s for of in watched] == [10, 8, 7]
    latencies_s = [(s,) * len(KERNELS) for s in (3e-3, 1e-3, 2e-3)]
    assert [of.kernels_s for of in watched] == [pytest.approx(of) for of in latencies_s]


def test_targets_are_watched_apart(cache: Cache) -> None:
    other = make_target(threads=4)
    with open_with_target(cache, TARGET, other) as store:
        store.measurements.watch(TARGET.key, [host(1e-3, 7)])
        store.measurements.watch(other.key, [host(2e-3, 7)])
        assert store.measurements.watched(TARGET.key) == [host(1e-3, 7)]
        assert store.measurements.watched(other.key) == [host(2e-3, 7)]


@ON_BOTH
def test_what_was_watched_travels_with_results(cache: Cache, tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    with open_with_target(tmp_path / "there") as there:
        measure(there, {"p1-probe": Round((0.5,), host(1e-3, 7))})
        there.measurements.watch(TARGET.key, [host(2e-3, 8), host(3e-3, 9)])
        there.contents.export(file, [TARGET.key], package="0")
    with open_with_target(cache) as store:
        store.measurements.watch(TARGET.key, [host(5e-3, 8)])
        for _ in range(2):  # the second time there is nothing new
            store.contents.merge(file, lambda brick: None)
            watched = store.measurements.watched(TARGET.key)
            assert watched == [host(3e-3, 9), host(5e-3, 8), host(1e-3, 7)]
        assert store.contents.verify() == []
