import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refused
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.exc import IntegrityError
from store_examples import (
    ON_BOTH,
    Cache,
    back_to_version_7,
    keys_up_to,
    make_brick,
    make_decomposition,
    make_target,
    measure,
    open_with_target,
)

from bricks.decompose.occurrence import Usage
from bricks.errors import StoreError
from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store import SCHEMA_VERSION, CacheStats, Owner, Store, Union
from bricks.store import measurement_rows as ledger
from bricks.store import measurements as readings
from bricks.store.engine import locate
from bricks.system.host_conditions import HostConditions
from bricks.system.network import NetworkFingerprint
from bricks.system.target import Runtime, Target

TARGET = make_target()
HOST = HostConditions((1e-3, 2e-3, 3e-3, 4e-5, 1e-4), taken_s=7)


def test_targets_and_systems_come_back(cache: Cache) -> None:
    one, many, other = make_target(), make_target(threads=4), make_target("other")
    with open_with_target(cache, one, many, other, one) as store:
        assert {t.key: t for t in store.systems.targets()} == {t.key: t for t in (one, many, other)}
        assert store.systems.all() == [one.system, other.system]


def test_a_known_system_takes_new_name_and_recorded_facts(cache: Cache) -> None:
    renamed = replace(TARGET, system=replace(TARGET.system, name="desk", recorded={"kernel": "7"}))
    with open_with_target(cache, TARGET, renamed) as store:
        assert store.systems.targets() == [renamed]


def test_another_build_of_a_runtime_is_the_same_target_and_is_recorded(cache: Cache) -> None:
    built = replace(TARGET, runtime=replace(TARGET.runtime, build="cp311-linux_x86_64"))
    assert built.key == TARGET.key
    with open_with_target(cache, TARGET, built) as store:
        (target,) = store.systems.targets()
    assert target == TARGET
    assert target.runtime.build == "cp311-linux_x86_64"
    assert "build" not in target.runtime.identity


@ON_BOTH
def test_a_decomposition_comes_back_under_the_callers_name(cache: Cache) -> None:
    made = make_decomposition()
    with open_with_target(cache) as store:
        store.plans.save(made, TARGET.key)
    with Store.open(cache) as store:
        loaded = store.plans.load(made.plan.digest, "executed", TARGET.key, name="other.onnx")
        assert loaded == (replace(made.plan, model="other.onnx"), 0.25)
        assert store.plans.load_bricks(made.plan.keys) == made.bricks
        assert store.plans.load(made.plan.digest, "5", TARGET.key, name="x") is None
        assert store.plans.load(made.plan.digest, "executed", "t1-none", name="x") is None
        assert store.plans.load_bricks(["b1-none"]) == {}


def test_the_order_of_a_bricks_inputs_and_unknown_flops_survive(cache: Cache) -> None:
    made = make_decomposition((0,))
    with open_with_target(cache) as store:
        store.plans.save(made, TARGET.key)
        brick = store.plans.load_bricks(["b1-0000"])["b1-0000"]
    assert list(brick.inputs) == ["z", "a"]
    assert brick == make_brick(0) and brick.flops is None


def test_how_models_use_their_bricks_is_known(cache: Cache) -> None:
    made, other = make_decomposition(), make_decomposition((2, 3), "other.onnx", digest="e" * 64)
    with open_with_target(cache) as store:
        for decomposition in (made, other):
            store.plans.save(decomposition, TARGET.key)
        usage = dict(store.plans.usage(TARGET.key, "executed"))
    assert usage == {"net.onnx": made.plan.usage, "other.onnx": other.plan.usage}
    assert usage["net.onnx"]["b1-0001"] == Usage(occurrences=2, copies=2)


@ON_BOTH
def test_saving_a_decomposition_again_is_harmless(cache: Cache) -> None:
    made = make_decomposition()
    with open_with_target(cache) as store:
        store.plans.save(made, TARGET.key)
        store.plans.save(replace(made, wall_s=0.5), TARGET.key)
        store.plans.save(make_decomposition((2, 3), digest="e" * 64), TARGET.key)
        stats = store.contents.stats()
        loaded = store.plans.load(made.plan.digest, "executed", TARGET.key, name="net.onnx")
    assert (stats.plans, stats.bricks) == (2, 3)
    assert loaded == (made.plan, 0.5)


@ON_BOTH
def test_a_decomposition_for_an_unknown_target_is_refused_whole(cache: Cache) -> None:
    with Store.open(cache) as store:
        with refused(StoreError, store.path) as caught:
            store.plans.save(make_decomposition(), "t1-unknown")
        assert isinstance(caught.value.__cause__, IntegrityError)
        assert store.contents.stats().bricks == 0


@ON_BOTH
def test_raw_samples_come_back_bit_for_bit_in_rounds(cache: Cache) -> None:
    keys = ["b1-0001", "m1-whole", "p1-probe"]
    rounds = [(0.1 + 0.2, 1e-9), (5e-324, 3.0, 1.7e308), (1 / 3,)]
    owner = Owner.current()
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, keys, owner)
        for samples in rounds:
            walk = {key: (Round(samples), 0.25) for key in keys}
            store.claims.append_rounds(TARGET.key, walk, owner)
        store.claims.append_rounds(TARGET.key, {keys[0]: (Round(()), 1.25)}, owner)
        assert store.measurements.results(TARGET.key, keys) == {}
        store.claims.finish(TARGET.key, keys, owner)
    with Store.open(cache) as store:
        results = store.measurements.results(TARGET.key, [*reversed(keys), "b1-none"])
    assert list(results) == keys[::-1]
    assert results[keys[0]] == Measurement(keys[0], tuple(map(Round, rounds)), 2.0)
    assert results[keys[2]] == Measurement(keys[2], tuple(map(Round, rounds)), 0.75)


def test_the_conditions_of_a_round_come_back(cache: Cache) -> None:
    owner = Owner.current()
    rounds = (
        Round((0.5,), HOST, 0.25),
        Round((0.5,), HostConditions.of_exchange(0.002)),
        Round((0.5,), None, 0.0),
        Round((0.5,)),
    )
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, ["b1-0001"], owner)
        for round_ in rounds:
            store.claims.append_rounds(TARGET.key, {"b1-0001": (round_, 1.0)}, owner)
        store.claims.finish(TARGET.key, ["b1-0001"], owner)
        (measurement,) = store.measurements.results(TARGET.key, ["b1-0001"]).values()
    assert measurement == Measurement("b1-0001", rounds, 4.0)


def test_conditions_that_cannot_be_are_not_kept(cache: Cache) -> None:
    owner, inf = Owner.current(), float("inf")
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, ["b1-0001"], owner)
        hosts = (HostConditions((1e-3,) * 4 + (wrong_s,), 7) for wrong_s in (0.0, -1.0, inf, True))
        for wrong in (*hosts, HostConditions((1e-3,) * 4), HostConditions((1e-3,) * 5, -7), -0.1):
            known = isinstance(wrong, HostConditions)
            wrong_round = Round((0.5,), wrong) if known else Round((0.5,), None, wrong)
            with refused(StoreError, "b1-0001"):
                store.claims.append_rounds(TARGET.key, {"b1-0001": (wrong_round, 1.0)}, owner)
        assert store.contents.stats().samples == 0
        assert store.measurements.watched(TARGET.key) == []


@ON_BOTH
def test_what_is_done_can_be_supplemented_by_anybody(cache: Cache) -> None:
    owner = Owner.current()
    again = {key: (Round((0.25,), HOST), 3.0) for key in ("b1-0001", "b1-0002", "b1-0003")}
    with open_with_target(cache) as store:
        measure(store, TARGET, ["b1-0001"], 0.5)
        store.claims.claim(TARGET.key, ["b1-0002"], owner)  # somebody is at it: left alone
        store.measurements.supplement(TARGET.key, again)
        results = store.measurements.results(TARGET.key, sorted(again))
        assert store.claims.claim(TARGET.key, ["b1-0002"], owner)[0].rounds == ()
    assert results == {
        "b1-0001": Measurement("b1-0001", (Round((0.5,)), Round((0.25,), HOST)), 4.0),
    }


@ON_BOTH
def test_what_is_no_latency_is_not_kept(cache: Cache) -> None:
    owner = Owner.current()
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, ["b1-0001", "b1-0002"], owner)
        for sample in (0.0, -1.0, float("nan"), float("inf"), True, "0.1"):
            walk = {"b1-0001": (Round((0.5,)), 1.0), "b1-0002": (Round((sample,)), 1.0)}
            with refused(StoreError, "b1-0002", repr(sample)):
                store.claims.append_rounds(TARGET.key, walk, owner)
            assert store.contents.stats().samples == 0
        with refused(StoreError, "b1-0001"):
            store.claims.finish(TARGET.key, ["b1-0001"], owner)


def test_results_never_mix_targets(cache: Cache) -> None:
    one, many = make_target(), make_target(threads=4)
    with open_with_target(cache, one, many) as store:
        measure(store, one, ["b1-0001"], 0.5)
        assert store.measurements.results(many.key, ["b1-0001"]) == {}
        measure(store, many, ["b1-0001", "b1-0002"], 0.125)
        results = [store.measurements.results(t.key, ["b1-0001", "b1-0002"]) for t in (one, many)]
    assert results[0] == {"b1-0001": Measurement("b1-0001", (Round((0.5,)),), 1.0)}
    assert {m.rounds for m in results[1].values() if isinstance(m, Measurement)} == {
        (Round((0.125,)),)
    }
    assert len(results[1]) == 2


def test_results_of_another_protocol_are_not_used(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_with_target(cache) as store:
        measure(store, TARGET, ["b1-0001"])
        for module in (ledger, readings):
            monkeypatch.setattr(module, "PROTOCOL", PROTOCOL + 1)
        assert store.measurements.results(TARGET.key, ["b1-0001"]) == {}
        assert [c.rounds for c in store.claims.claim(TARGET.key, ["b1-0001"], Owner.current())] == [
            ()
        ]


def test_failures_are_reported_and_can_be_forgotten(cache: Cache) -> None:
    owner = Owner.current()
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, ["b1-0001", "b1-0002"], owner)
        store.claims.append_rounds(TARGET.key, {"b1-0001": (Round((0.5,)), 1.0)}, owner)
        store.claims.fail(TARGET.key, "b1-0001", "out of\n  memory", owner)
        failed = {"b1-0001": Failure("b1-0001", "out of memory")}
        assert store.measurements.results(TARGET.key, ["b1-0001", "b1-0002"]) == failed
        assert store.claims.claim(TARGET.key, ["b1-0001"], owner) == []
        assert store.measurements.forget_failures(TARGET.key, ["b1-0001", "b1-0002"]) == 1
        assert store.measurements.forget_failures(TARGET.key, ["b1-0001", "b1-0002"]) == 0
        (claim,) = store.claims.claim(TARGET.key, ["b1-0001"], owner)
        assert (claim.rounds, claim.wall_s) == ((), 0.0)
        assert store.contents.stats().samples == 0


@ON_BOTH
def test_stats_count_everything(cache: Cache) -> None:
    owner = Owner.current()
    with open_with_target(cache) as store:
        store.plans.save(make_decomposition(), TARGET.key)
        measure(store, TARGET, ["b1-0001", "b1-0002"])
        store.claims.claim(TARGET.key, ["b1-0003", "b1-0004"], owner)
        store.claims.fail(TARGET.key, "b1-0003", "no", owner)
        stats = store.contents.stats()
    assert stats == CacheStats(
        path=stats.path,
        schema_version=SCHEMA_VERSION,
        size_bytes=stats.size_bytes,
        systems=1,
        networks=0,
        targets=1,
        plans=1,
        bricks=2,
        measurements=2,
        failures=1,
        open_claims=1,
        samples=2,
    )
    assert stats.size_bytes > 4096


@ON_BOTH
def test_thousands_of_keys_are_fine_in_one_call(cache: Cache) -> None:
    keys = keys_up_to(2000)
    with open_with_target(cache) as store:
        measure(store, TARGET, keys)
        assert list(store.measurements.results(TARGET.key, keys)) == keys
        assert store.measurements.results(TARGET.key, []) == {}
        assert store.claims.claim(TARGET.key, [], Owner.current()) == []
        assert store.measurements.forget_failures(TARGET.key, keys) == 0


def test_a_folder_is_made_and_the_database_file_lies_in_it(tmp_path: Path) -> None:
    with open_with_target(tmp_path / "a" / "b") as store:
        assert store.contents.stats().path == str(tmp_path / "a" / "b" / "bricks.sqlite")
    assert (tmp_path / "a" / "b" / "bricks.sqlite").is_file()


def test_a_database_file_can_be_named_by_url(tmp_path: Path) -> None:
    with Store.open(f"sqlite:///{tmp_path}/team.db") as store:
        store.systems.save_target(TARGET)
        assert store.contents.stats().size_bytes > 0
    with Store.open(f"sqlite:///{tmp_path}/team.db") as store:
        assert store.systems.targets() == [TARGET]


def test_the_store_loads_no_model_library() -> None:
    code = (
        "import sys, bricks.store;"
        "print({'onnx', 'onnxruntime', 'networkx', 'numpy'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "set()"


@ON_BOTH
def test_a_network_is_kept_and_an_older_cache_gets_the_table_for_it(cache: Cache) -> None:
    network = NetworkFingerprint("lan", {"kind": "veth", "mtu": 1500}, {"speed_mbps": None})
    target = Target(TARGET.system, Runtime("gloo", "2", "CPU", 1, "none", network=network.key))
    with open_with_target(cache) as store:
        store.plans.save(make_decomposition(), TARGET.key)
        measure(store, TARGET, ["b1-0001"])
    engine = create_engine(locate(cache))
    with engine.begin() as connection:
        back_to_version_7(connection)
        connection.execute(text("DROP TABLE networks"))
        connection.execute(text("ALTER TABLE rounds DROP COLUMN device_state"))
        connection.execute(
            text("UPDATE bricks_cache_info SET value = '5' WHERE name = 'schema_version'")
        )
    engine.dispose()
    with Store.open(cache) as store:
        assert store.systems.network_targets() == []
        store.systems.save_network(network)
        store.systems.save_target(target)
        store.systems.save_network(replace(network, name="another"))  # it keeps its first name
        assert store.systems.network_targets() == [(network, target)]
        assert store.systems.targets() == [TARGET]
        measure(store, target, ["c1-all_reduce-1024-2-alone"])
        stats = store.contents.stats()
        assert (stats.schema_version, stats.networks, stats.measurements) == (SCHEMA_VERSION, 1, 2)
        assert store.contents.verify() == []


@contextmanager
def another_process_between_two_queries(does: Callable[[], None]) -> Iterator[None]:
    """Let something happen once, right after the next query of a store."""
    waiting = [does]

    def happen(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if waiting and statement.startswith("SELECT"):
            waiting.pop()()

    event.listen(Engine, "after_cursor_execute", happen)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", happen)
    assert not waiting


@ON_BOTH
def test_a_target_that_another_process_adds_between_two_queries_is_whole_or_absent(
    cache: Cache,
) -> None:
    network = NetworkFingerprint("lan", {"kind": "veth", "mtu": 1500}, {"speed_mbps": None})
    new = make_target("new")
    ranks = Target(new.system, Runtime("gloo", "2", "CPU", 1, "none", network=network.key))
    with open_with_target(cache) as store, Store.open(cache) as other:
        known = Union(store)
        with another_process_between_two_queries(lambda: other.systems.save_target(new)):
            assert known.systems.targets() == [TARGET]
        assert known.systems.targets() == [TARGET, new]

        def add() -> None:
            other.systems.save_network(network)
            other.systems.save_target(ranks)

        with another_process_between_two_queries(add):
            assert store.systems.network_targets() == []
        assert store.systems.network_targets() == [(network, ranks)]
