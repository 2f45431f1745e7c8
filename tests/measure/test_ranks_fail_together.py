"""Ranks that die, hang or fail: the others are ended too, and one line names the cause."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest
from commands import until
from fork_server import ForkServer, children
from refusals import refused

from bricks.errors import WorkerError
from bricks.measure import worker_process
from bricks.measure.collectives import CollectiveCampaign, known_collectives
from bricks.measure.protocol.training import TimeCollective
from bricks.measure.ranks import LocalRanks, loopback
from bricks.measure.supervisor import WorkerDied, WorkerSettings
from bricks.network.collective import Collective
from bricks.store import Store
from bricks.system import Runtime, Target, fingerprint

# Starts so many ranks, whose collectives take so long.
StartRanks = Callable[[int, float], AbstractContextManager[LocalRanks]]


@pytest.fixture
def start(fork_server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StartRanks:
    def launch(_command: object, **options: object) -> object:
        return fork_server.worker(entry="slow_collectives:main", **options)  # type: ignore[arg-type]

    def start(count: int, pace_s: float) -> LocalRanks:
        monkeypatch.setenv("TESTS_COLLECTIVE_S", str(pace_s))
        return LocalRanks(WorkerSettings("fake", 1, 0), loopback(count))

    monkeypatch.setenv("TESTS_BEGUN", str(tmp_path))
    monkeypatch.setattr(worker_process, "launch", launch)
    return start


@pytest.fixture
def slow_ranks(start: StartRanks) -> Iterator[LocalRanks]:
    """Ranks that take minutes for a collective, unless somebody ends them."""
    with start(2, 300.0) as ranks:
        ranks.join()
        yield ranks


def collective(ranks: LocalRanks, timeout_s: float = 300.0) -> None:
    request = TimeCollective("all_reduce", 1024, passes=1, computing=False)
    ranks.ask(request, timeout_s=timeout_s)


def test_a_rank_that_is_killed_ends_the_others(slow_ranks: LocalRanks, tmp_path: Path) -> None:
    victim = children()[1]

    def strike() -> None:
        until((tmp_path / str(victim.pid)).exists)
        victim.send_signal(signal.SIGKILL)

    threading.Thread(target=strike, daemon=True).start()
    with refused(WorkerDied, "rank 1 of 2", "SIGKILL"):
        collective(slow_ranks)
    assert children() == []


def test_a_rank_that_hangs_is_given_up(slow_ranks: LocalRanks) -> None:
    with refused(WorkerDied, "of 2", "0 s"):  # either may be the first
        collective(slow_ranks, timeout_s=0.3)
    assert children() == []


def test_a_rank_that_ended_before_it_was_asked_is_no_rank(slow_ranks: LocalRanks) -> None:
    victim = children()[0]
    victim.kill()
    victim.wait(10)
    with refused(WorkerDied, "rank 0 of 2"):
        collective(slow_ranks)
    slow_ranks.join()  # they can be begun anew
    assert len(children()) == 2


def test_the_error_of_a_rank_is_told_with_its_number(start: StartRanks) -> None:
    with start(3, 0.0) as ranks:
        ranks.join()
        operations = ("all_reduce", "all_reduce", "x")
        with refused(WorkerError, "rank 2 of 3", "KeyError", "x"):
            ranks.ask_each(
                [TimeCollective(name, 1024, 1, False) for name in operations], timeout_s=30
            )


def test_rounds_until_a_rank_dies_are_kept_and_gone_on_with(
    start: StartRanks, tmp_path: Path
) -> None:
    target = Target(fingerprint(), Runtime("fake", "1", "CPU", 1, "none", network=None))
    wanted = [Collective("all_reduce", size, 2) for size in (1024, 4096)]

    with Store.open(tmp_path / "cache") as store:
        store.systems.save_target(target)
        campaign = partial(CollectiveCampaign, store, target_key=target.key, exclusive=False)
        with start(2, 0.05) as ranks:
            victim = children()[0]

            def strike(what: str, share: float) -> None:
                if store.contents.stats().samples >= 6:
                    victim.kill()

            with pytest.raises(WorkerError) as caught:  # the campaign may find it dying, or dead
                campaign(ranks=ranks, progress=strike).run(wanted, computing=False)
            assert "rank 0 of 2" in str(caught.value)
            kept = store.contents.stats()
            assert kept.samples >= 6 and kept.open_claims == 2
        with start(2, 0.0) as ranks:
            done = campaign(ranks=ranks, progress=lambda what, share: None).run(
                wanted, computing=False
            )
        assert len(done.new) == 2
        found = known_collectives(store, target.key)
        assert sum(len(m.samples) for m in found.values()) > kept.samples
        assert store.contents.stats().open_claims == 0 and store.contents.verify() == []
