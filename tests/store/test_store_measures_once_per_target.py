import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
from fork_server import ForkServer
from refusals import refused
from sqlalchemy.exc import IntegrityError
from store_examples import ON_BOTH, Cache, keys_up_to, make_target, measure, open_with_target
from store_processes import started

from bricks.errors import StoreError
from bricks.samples.measurement import Round
from bricks.store import Claim, Owner, Store, alive

TARGET = make_target()
KEYS = keys_up_to(200)


@ON_BOTH
def test_racing_processes_claim_each_key_once(cache: Cache, fork_server: ForkServer) -> None:
    open_with_target(cache).close()
    with started(fork_server, 2, "race", cache, TARGET.key) as racers:
        for racer in racers:
            racer.go_on()
        claimed = [racer.says("done") for racer in racers]
    # A racer reclaims what it holds, since its windows overlap; what matters is whose a key is.
    first, second = (set(keys) for keys in claimed)
    assert not first & second
    assert sorted(first | second) == KEYS


@ON_BOTH
def test_racing_processes_can_make_the_cache_together(
    cache: Cache, fork_server: ForkServer
) -> None:
    with started(fork_server, 3, "open_it", cache) as openers:
        for opener in openers:
            opener.go_on()
        assert [opener.fork.wait(60) for opener in openers] == [0, 0, 0]


@ON_BOTH
def test_a_killed_run_leaves_its_rounds_and_blocks_nobody(
    cache: Cache, fork_server: ForkServer
) -> None:
    me = Owner.current()
    with (
        open_with_target(cache) as store,
        started(fork_server, 1, "hold", cache, TARGET.key) as (holder,),
    ):
        assert store.claims.claim(TARGET.key, KEYS, me) == []
        holder.kill()
        claims = store.claims.claim(TARGET.key, KEYS, me)
        assert [claim.key for claim in claims] == KEYS
        assert {claim.rounds[0] for claim in claims} == {Round((0.5, 0.25))}
        assert {len(claim.rounds) for claim in claims[20:]} == {1}
        # The walk that was being written when the kill came is there for all of its keys, or none.
        assert len({claim.rounds for claim in claims[:20]}) == 1
        assert {c.wall_s for c in claims} <= {1.5, 1 + len(claims[0].rounds) * 0.5}
        store.claims.append_rounds(TARGET.key, {KEYS[0]: (Round((1.0,)), 1.0)}, me)
        store.claims.finish(TARGET.key, KEYS, me)
        assert list(store.measurements.results(TARGET.key, KEYS)) == KEYS
        unknown = "the brick is unknown"  # since this test measures bricks that it never saved
        assert all(problem.endswith(unknown) for problem in store.contents.verify())


def test_a_measured_key_is_never_claimed_again(cache: Cache) -> None:
    with open_with_target(cache) as store:
        measure(store, TARGET, KEYS[:2])
        claims = store.claims.claim(TARGET.key, KEYS[:4], Owner.current())
        assert [claim.key for claim in claims] == KEYS[2:4]


def test_owners_in_one_process_are_distinguished(cache: Cache) -> None:
    one, two = Owner.current(), Owner.current()
    with open_with_target(cache) as first, Store.open(cache) as second:
        assert len(first.claims.claim(TARGET.key, KEYS[:3], one)) == 3
        assert second.claims.claim(TARGET.key, KEYS[:3], two) == []
        assert len(first.claims.claim(TARGET.key, KEYS[:3], one)) == 3


@ON_BOTH
def test_released_claims_are_gone_on_with(cache: Cache) -> None:
    one, two = Owner.current(), Owner.current()
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, KEYS[:2], one)
        store.claims.append_rounds(TARGET.key, {KEYS[0]: (Round((0.5,)), 2.0)}, one)
        store.claims.release(TARGET.key, KEYS[:2], one)
        expected = [Claim(KEYS[0], (Round((0.5,)),), 2.0), Claim(KEYS[1], (), 0.0)]
        assert store.claims.claim(TARGET.key, KEYS[:2], two) == expected
        store.claims.append_rounds(TARGET.key, {KEYS[0]: (Round((0.25,)), 1.0)}, two)
        store.claims.release(TARGET.key, KEYS[:2], one)  # not its own any more: nothing happens
        store.claims.finish(TARGET.key, KEYS[:1], two)
        measured = store.measurements.results(TARGET.key, KEYS)[KEYS[0]]
        assert measured.rounds == (Round((0.5,)), Round((0.25,)))  # no failure


def test_on_another_host_only_the_lease_tells(cache: Cache) -> None:
    far = replace(Owner.current(), host="elsewhere", pid=2**22 + 1, token="far")
    me = Owner.current()
    with open_with_target(cache) as store:
        store.claims.claim(TARGET.key, KEYS[:2], far)
        assert store.claims.claim(TARGET.key, KEYS[:2], me) == []
    with Store.open(cache, lease_s=-1.0) as store:
        store.claims.renew(TARGET.key, far)
        assert len(store.claims.claim(TARGET.key, KEYS[:2], me)) == 2


def test_a_round_renews_the_lease_of_all_that_its_owner_holds(cache: Cache) -> None:
    far, me = replace(Owner.current(), host="elsewhere"), Owner.current()
    with open_with_target(cache, lease_s=-1.0) as store:
        store.claims.claim(TARGET.key, KEYS[:2], far)
    with Store.open(cache) as store:
        store.claims.append_rounds(TARGET.key, {KEYS[0]: (Round((0.5,)), 1.0)}, far)
        assert store.claims.claim(TARGET.key, KEYS[:2], me) == []


@ON_BOTH
def test_who_was_taken_over_is_told_and_changes_nothing(cache: Cache) -> None:
    slow, fast = Owner.current(), Owner.current()
    with open_with_target(cache, lease_s=-1.0) as store:
        store.claims.claim(TARGET.key, KEYS[:2], slow)
        store.claims.append_rounds(
            TARGET.key, {key: (Round((0.5,)), 1.0) for key in KEYS[:2]}, slow
        )
        store.claims.claim(TARGET.key, KEYS[1:2], fast)
        before = store.contents.stats()
        walk = {key: (Round((0.5,)), 1.0) for key in KEYS[:2]}
        for action in (
            lambda: store.claims.append_rounds(TARGET.key, walk, slow),
            lambda: store.claims.finish(TARGET.key, KEYS[:2], slow),
            lambda: store.claims.fail(TARGET.key, KEYS[1], "no", slow),
        ):
            with refused(StoreError, KEYS[1]) as caught:
                action()
            assert KEYS[0] not in str(caught.value)
            assert replace(store.contents.stats(), size_bytes=0) == replace(before, size_bytes=0)
        store.claims.finish(TARGET.key, KEYS[1:2], fast)


@ON_BOTH
def test_a_claim_on_an_unknown_target_is_refused(cache: Cache) -> None:
    with Store.open(cache) as store, refused(StoreError, store.path) as caught:
        store.claims.claim(TARGET.key, KEYS[:1], Owner.current())
    assert isinstance(caught.value.__cause__, IntegrityError)


def test_a_process_lives_only_under_its_own_start_time() -> None:
    me = Owner.current()
    # Seen to be dead, but not waited for: until then a killed process still has its number.
    dead = os.posix_spawn(sys.executable, [sys.executable, "-c", ""], os.environ)
    os.waitid(os.P_PID, dead, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(dead).status() == psutil.STATUS_ZOMBIE
    started_s = float(Path(f"/proc/{dead}/stat").read_text().rpartition(")")[2].split()[19])
    assert not alive(replace(me, pid=dead, started_s=started_s / os.sysconf("SC_CLK_TCK")))
    os.waitpid(dead, 0)
    assert alive(me)
    assert not alive(replace(me, started_s=me.started_s - 3600))
    assert not alive(replace(me, pid=2**22 + 1))
    assert alive(replace(me, host="elsewhere", pid=2**22 + 1))
    assert Owner.current().host == me.host


def test_what_is_written_later_is_there_for_processes_that_looked_before(tmp_path: Path) -> None:
    count = "SELECT count(*) FROM measurements"
    program = (
        f"import sqlite3; print(*sqlite3.connect('bricks.sqlite').execute('{count}').fetchone())"
    )

    def counted() -> int:
        output = subprocess.check_output([sys.executable, "-c", program], cwd=tmp_path, text=True)
        return int(output)

    open_with_target(tmp_path).close()
    with Store.open(tmp_path) as store:
        for number, key in enumerate(KEYS[:2]):
            assert len(store.systems.all()) == 1
            # The last that closes a file removes its log, unless it sees the locks of others.
            assert counted() == number
            measure(store, TARGET, [key])
        assert counted() == 2
