"""Ranks that die, hang or fail: the others are ended too, and one line names the cause."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bricks.errors import WorkerError
from bricks.measure.collectives import CollectiveCampaign, known_collectives
from bricks.measure.ranks import LocalRanks, loopback
from bricks.measure.supervisor import WorkerSettings
from bricks.network.collective import Collective
from bricks.store import Store
from bricks.system import Runtime, Target, fingerprint

SLEEP = (
    "import time; from bricks.backends import fake_collectives as f;"
    "old = f.FakeCollectives.time;"
    "f.FakeCollectives.time = lambda *a: (time.sleep({}), old(*a))[1];"
    "from bricks.measure.worker.loop import main; main()"
)


def settings(pace_s: float = 0.0) -> WorkerSettings:
    return WorkerSettings("fake", 1, 0, command=(sys.executable, "-c", SLEEP.format(pace_s)))


@pytest.fixture
def slow_ranks() -> Iterator[LocalRanks]:
    """Ranks that take a minute for a collective, unless somebody ends them."""
    with LocalRanks(settings(60.0), loopback(2)) as ranks:
        ranks.join()
        yield ranks


def children() -> list[psutil.Process]:
    found = psutil.Process().children()
    return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]


def collective(ranks: LocalRanks, timeout_s: float = 60.0) -> None:
    ranks.ask(
        "time_collective",
        timeout_s=timeout_s,
        operation="all_reduce",
        num_bytes=1024,
        passes=1,
        computing=False,
    )


def test_a_rank_that_is_killed_ends_the_others(slow_ranks: LocalRanks) -> None:
    victim = children()[1]
    threading.Timer(0.2, lambda: victim.send_signal(signal.SIGKILL)).start()
    with pytest.raises(WorkerError, match=r"rank 1 of 2: its process was killed \(SIGKILL\)"):
        collective(slow_ranks)
    assert children() == []


def test_a_rank_that_hangs_is_given_up(slow_ranks: LocalRanks) -> None:
    with pytest.raises(WorkerError, match="rank 0 of 2: it did not finish within 0 s"):
        collective(slow_ranks, timeout_s=0.3)
    assert children() == []


def test_a_rank_that_ended_before_it_was_asked_is_no_rank(slow_ranks: LocalRanks) -> None:
    victim = children()[0]
    victim.kill()
    victim.wait(10)
    with pytest.raises(WorkerError, match="rank 0 of 2 has ended"):
        collective(slow_ranks)
    slow_ranks.join()  # they can be begun anew
    assert len(children()) == 2


def test_the_error_of_a_rank_is_told_with_its_number() -> None:
    with LocalRanks(settings(), loopback(3)) as ranks:
        ranks.join()
        fields = [{"passes": 1, "operation": name} for name in ("all_reduce", "all_reduce", "x")]
        with pytest.raises(WorkerError, match="rank 2 of 3: KeyError"):
            ranks.ask_each(
                "time_collective",
                [{**own, "num_bytes": 1024, "computing": False} for own in fields],
                timeout_s=30,
            )


def test_rounds_until_a_rank_dies_are_kept_and_gone_on_with(tmp_path: Path) -> None:
    target = Target(fingerprint(), Runtime("fake", "1", "CPU", 1, "none", network=None))
    wanted = [Collective("all_reduce", size, 2) for size in (1024, 4096)]

    with Store.open(tmp_path) as store:
        store.save_target(target)
        with LocalRanks(settings(0.05), loopback(2)) as ranks:
            campaign = CollectiveCampaign(
                store, ranks, target.key, lambda what, share: None, exclusive=False
            )
            victim = children()[0]

            def strike() -> None:
                while store.stats().samples < 6:
                    time.sleep(0.02)
                os.kill(victim.pid, signal.SIGKILL)

            threading.Thread(target=strike, daemon=True).start()
            with pytest.raises(WorkerError, match="rank 0 of 2"):
                campaign.run(wanted, computing=False)
            kept = store.stats()
            assert kept.samples >= 6 and kept.open_claims == 2
        with LocalRanks(settings(), loopback(2)) as ranks:
            campaign = CollectiveCampaign(
                store, ranks, target.key, lambda what, share: None, exclusive=False
            )
            done = campaign.run(wanted, computing=False)
        assert len(done.new) == 2
        found = known_collectives(store, target.key)
        assert sum(len(m.samples) for m in found.values()) > kept.samples
        assert store.stats().open_claims == 0 and store.verify() == []
