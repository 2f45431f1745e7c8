import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import pytest
from store_examples import Cache, keys_up_to, make_target, measure, open_with_target

from bricks.errors import StoreError
from bricks.samples.measurement import Round
from bricks.store import Claim, Owner, Store, alive

TARGET = make_target()
KEYS = keys_up_to(200)

RACER = """
import sys
from bricks.store import Owner, Store
folder, target = sys.argv[1:]
with Store.open(folder) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    owner = Owner.current()
    keys = [f"b1-{number:04x}" for number in range(200)]
    for start in range(0, 200, 8):
        for claim in store.claim(target, keys[start:start + 16], owner):
            print(claim.key, flush=True)
    print("done", flush=True)
    sys.stdin.readline()
"""

HOLDER = """
import sys
from bricks.samples.measurement import Round
from bricks.store import Owner, Store
folder, target = sys.argv[1:]
store = Store.open(folder)
owner = Owner.current()
keys = [f"b1-{number:04x}" for number in range(200)]
store.claim(target, keys, owner)
store.append_rounds(target, {key: (Round((0.5, 0.25)), 1.5) for key in keys}, owner)
print("ready", flush=True)
while True:
    store.append_rounds(target, {key: (Round((0.125,)), 0.5) for key in keys[:20]}, owner)
"""

OPENER = """
import sys
from bricks.store import Store
print("ready", flush=True)
sys.stdin.readline()
Store.open(sys.argv[1]).close()
"""


@contextmanager
def started(count: int, script: str, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that have said that they are ready; however the test ends, they end too."""
    with ExitStack() as stack:
        processes: list[subprocess.Popen[str]] = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, "-c", script, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            read_until(process, "ready")
        yield processes


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def read_until(process: subprocess.Popen[str], end: str) -> list[str]:
    assert process.stdout is not None
    lines: list[str] = []
    for line in process.stdout:
        if line.strip() == end:
            return lines
        lines.append(line.strip())
    raise AssertionError(f"the process ended before it said {end!r}")


def test_racing_processes_claim_each_key_once(cache: Cache) -> None:
    open_with_target(cache).close()
    with started(2, RACER, str(cache), TARGET.key) as racers:
        for racer in racers:
            go_on(racer)
        claimed = [read_until(racer, "done") for racer in racers]
    # A racer reclaims what it holds, since its windows overlap; what matters is whose a key is.
    first, second = (set(keys) for keys in claimed)
    assert not first & second
    assert sorted(first | second) == KEYS


def test_racing_processes_can_make_the_cache_together(cache: Cache) -> None:
    with started(3, OPENER, str(cache)) as openers:
        for opener in openers:
            go_on(opener)
        assert [opener.wait(timeout=30) for opener in openers] == [0, 0, 0]


def test_a_killed_run_leaves_its_rounds_and_blocks_nobody(cache: Cache) -> None:
    me = Owner.current()
    with (
        open_with_target(cache) as store,
        started(1, HOLDER, str(cache), TARGET.key) as (holder,),
    ):
        assert store.claim(TARGET.key, KEYS, me) == []
        # Seen to be dead, but not waited for: until then a killed process still has its number.
        os.kill(holder.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        claims = store.claim(TARGET.key, KEYS, me)
        assert [claim.key for claim in claims] == KEYS
        assert {claim.rounds[0] for claim in claims} == {Round((0.5, 0.25))}
        assert {len(claim.rounds) for claim in claims[20:]} == {1}
        # The walk that was being written when the kill came is there for all of its keys, or none.
        assert len({claim.rounds for claim in claims[:20]}) == 1
        assert {c.wall_s for c in claims} <= {1.5, 1 + len(claims[0].rounds) * 0.5}
        store.append_rounds(TARGET.key, {KEYS[0]: (Round((1.0,)), 1.0)}, me)
        store.finish(TARGET.key, KEYS, me)
        assert list(store.results(TARGET.key, KEYS)) == KEYS
        unknown = "the brick is unknown"  # since this test measures bricks that it never saved
        assert all(problem.endswith(unknown) for problem in store.verify())


def test_a_measured_key_is_never_claimed_again(cache: Cache) -> None:
    with open_with_target(cache) as store:
        measure(store, TARGET, KEYS[:2])
        claims = store.claim(TARGET.key, KEYS[:4], Owner.current())
        assert [claim.key for claim in claims] == KEYS[2:4]


def test_owners_in_one_process_are_distinguished(cache: Cache) -> None:
    one, two = Owner.current(), Owner.current()
    with open_with_target(cache) as first, Store.open(cache) as second:
        assert len(first.claim(TARGET.key, KEYS[:3], one)) == 3
        assert second.claim(TARGET.key, KEYS[:3], two) == []
        assert len(first.claim(TARGET.key, KEYS[:3], one)) == 3


def test_released_claims_are_gone_on_with(cache: Cache) -> None:
    one, two = Owner.current(), Owner.current()
    with open_with_target(cache) as store:
        store.claim(TARGET.key, KEYS[:2], one)
        store.append_rounds(TARGET.key, {KEYS[0]: (Round((0.5,)), 2.0)}, one)
        store.release(TARGET.key, KEYS[:2], one)
        expected = [Claim(KEYS[0], (Round((0.5,)),), 2.0), Claim(KEYS[1], (), 0.0)]
        assert store.claim(TARGET.key, KEYS[:2], two) == expected
        store.append_rounds(TARGET.key, {KEYS[0]: (Round((0.25,)), 1.0)}, two)
        store.release(TARGET.key, KEYS[:2], one)  # not its own any more: nothing happens
        store.finish(TARGET.key, KEYS[:1], two)
        measured = store.results(TARGET.key, KEYS)[KEYS[0]]
        assert measured.rounds == (Round((0.5,)), Round((0.25,)))  # no failure


def test_on_another_host_only_the_lease_tells(cache: Cache) -> None:
    far = replace(Owner.current(), host="elsewhere", pid=2**22 + 1, token="far")
    me = Owner.current()
    with open_with_target(cache) as store:
        store.claim(TARGET.key, KEYS[:2], far)
        assert store.claim(TARGET.key, KEYS[:2], me) == []
    with Store.open(cache, lease_s=-1.0) as store:
        store.renew(TARGET.key, far)
        assert len(store.claim(TARGET.key, KEYS[:2], me)) == 2


def test_a_round_renews_the_lease_of_all_that_its_owner_holds(cache: Cache) -> None:
    far, me = replace(Owner.current(), host="elsewhere"), Owner.current()
    with open_with_target(cache, lease_s=-1.0) as store:
        store.claim(TARGET.key, KEYS[:2], far)
    with Store.open(cache) as store:
        store.append_rounds(TARGET.key, {KEYS[0]: (Round((0.5,)), 1.0)}, far)
        assert store.claim(TARGET.key, KEYS[:2], me) == []


@pytest.mark.parametrize("action", ["append", "finish", "fail"])
def test_who_was_taken_over_is_told_and_changes_nothing(cache: Cache, action: str) -> None:
    slow, fast = Owner.current(), Owner.current()
    with open_with_target(cache, lease_s=-1.0) as store:
        store.claim(TARGET.key, KEYS[:2], slow)
        store.append_rounds(TARGET.key, {key: (Round((0.5,)), 1.0) for key in KEYS[:2]}, slow)
        store.claim(TARGET.key, KEYS[1:2], fast)
        before = store.stats()
        with pytest.raises(StoreError, match=f"{KEYS[1]}.*another run took"):
            if action == "append":
                walk = {key: (Round((0.5,)), 1.0) for key in KEYS[:2]}
                store.append_rounds(TARGET.key, walk, slow)
            elif action == "finish":
                store.finish(TARGET.key, KEYS[:2], slow)
            else:
                store.fail(TARGET.key, KEYS[1], "no", slow)
        assert replace(store.stats(), size_bytes=0) == replace(before, size_bytes=0)
        store.finish(TARGET.key, KEYS[1:2], fast)


def test_a_claim_on_an_unknown_target_is_refused(cache: Cache) -> None:
    with Store.open(cache) as store, pytest.raises(StoreError, match="was its target saved"):
        store.claim(TARGET.key, KEYS[:1], Owner.current())


def test_a_process_lives_only_under_its_own_start_time() -> None:
    me = Owner.current()
    assert alive(me)
    assert not alive(replace(me, started_s=me.started_s - 3600))
    assert not alive(replace(me, pid=2**22 + 1))
    assert alive(replace(me, host="elsewhere", pid=2**22 + 1))
    assert Owner.current().host == me.host
