"""Network namespaces with shaped interfaces: made, used by ranks that communicate, and removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch_environment
from commands import environment, until
from refusals import refused

from bricks.errors import WorkerError
from bricks.measure import ranks as here
from bricks.measure.protocol.training import ReadInterface, TimeCollective
from bricks.measure.ranks import LocalRanks, namespaces, refuse_without_namespaces, remove_stale
from bricks.measure.supervisor import WorkerSettings
from bricks.system.interface import InterfaceFacts, interface_facts


def reason() -> str | None:
    try:
        refuse_without_namespaces()
    except WorkerError as exc:
        return str(exc)
    return None


# Only root may make them, with iproute2, as CI has both.
needs_namespaces = pytest.mark.skipif(reason() is not None, reason=str(reason()))


def ours(pid: int) -> list[str]:
    return [path.name for path in here.FOLDER.glob(f"bricks-{pid}-*")]


@needs_namespaces
def test_ranks_have_an_interface_each_whose_rate_the_kernel_tells() -> None:
    with namespaces(2, 100_000_000) as places:
        assert len(ours(os.getpid())) == 3
        with LocalRanks(WorkerSettings("fake", 1, 0), places) as ranks:
            told = ranks.ask(ReadInterface(places[0].interface), timeout_s=60)
    assert len(told) == 2
    for facts in told:
        assert (facts.kind, facts.mtu, facts.rate_bps) == ("veth", 1500, 100_000_000)
    assert ours(os.getpid()) == []


@needs_namespaces
@pytest.mark.slow
def test_ranks_communicate_between_namespaces() -> None:
    command = (str(torch_environment.python()), "-m", "bricks.measure.worker")
    with namespaces(2, 100_000_000) as places:
        with LocalRanks(WorkerSettings("torch", 1, 0, command=command), places) as ranks:
            ranks.join()
            for computing in (False, True):
                for operation in ("all_reduce", "broadcast", "all_gather", "reduce_scatter"):
                    request = TimeCollective(operation, 100_000, 1, computing)
                    told = ranks.ask(request, timeout_s=60)
                    assert all(answer.samples[0] > 0 for answer in told)
    assert ours(os.getpid()) == []


@needs_namespaces
def test_namespaces_of_a_killed_process_are_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import time; from bricks.measure.ranks import namespaces\n"
        "with namespaces(2, None): print('made', flush=True); time.sleep(600)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment()
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"made\n"
        left = ours(process.pid)
        assert len(left) == 3
        inside = subprocess.Popen(["ip", "netns", "exec", left[0], "sleep", "600"])
        assert remove_stale() == []  # its maker lives
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    until(lambda: set(left) <= set(remove_stale()) or not ours(process.pid))
    assert ours(process.pid) == []
    assert inside.wait(10) == -signal.SIGKILL


@needs_namespaces
def test_what_the_kernel_refuses_is_one_line_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(here, "QUEUE", "never")
    with refused(WorkerError, "tc", "never"):
        with namespaces(2, 1_000_000):
            raise AssertionError
    assert ours(os.getpid()) == []


def test_without_root_or_programs_one_line_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(here.shutil, "which", lambda name: f"/bin/{name}")
    with refused(WorkerError, "root", "loopback"):
        refuse_without_namespaces()
    monkeypatch.setattr(here.shutil, "which", lambda name: None)
    with refused(WorkerError, "ip", "iproute2", "loopback"):
        refuse_without_namespaces()


def test_the_loopback_interface_is_known_as_such() -> None:
    facts = interface_facts("lo")
    assert (facts.kind, facts.rate_bps) == ("loopback", None)
    assert interface_facts("nowhere0") == InterfaceFacts(None, None, None, None)
