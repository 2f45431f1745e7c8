"""Hosts that measure together, with a real scheduler and worker processes on loopback."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask
import distributed  # noqa: F401  # else its configuration would go with what is set of it
import psutil
import pytest
from commands import PATIENCE_S, Here, bricks, environment, rounds, started, until
from factories import branching_net, conv_net, embedding_net, mlp, save
from refusals import refused

from bricks import __version__
from bricks.errors import FleetError, UsageError
from bricks.fleet import host as on_host
from bricks.fleet.cluster import checked_address, connected
from bricks.fleet.coordinator import Cluster, Coordinator, HostStatus
from bricks.fleet.report import FleetMeasured
from bricks.measure.conditions import Conditions
from bricks.reading.read import read_model
from bricks.session.options import Options
from bricks.store import Store

CPUS = sorted(os.sched_getaffinity(0))
two_systems = pytest.mark.skipif(len(CPUS) < 2, reason="needs two processors")

# Slow enough that something can happen in the middle.
SLOWLY = {"BRICKS_FAKE_PACE": "0.001"}
# How often Dask's client asks for facts of its own.
INFO_INTERVAL = "distributed.client.scheduler-info-interval"
FAKE = Options(runtime="fake", conditions=Conditions(exclusive=False))


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a scheduler that runs until the end."""
    with scheduling(tmp_path_factory.mktemp("scheduler")) as (address, _):
        yield address


@contextmanager
def scheduling(
    folder: Path, *more: str, **variables: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    file = folder / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    words += more
    process = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *words],
        env=environment(**variables),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield until(lambda: _address(file)), process
    finally:
        process.kill()
        process.wait()


def _address(file: Path) -> str | None:
    with contextlib.suppress(OSError, json.JSONDecodeError):
        return str(json.loads(file.read_text())["address"])
    return None


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """So many bricks that no host holds all that are left while another joins."""
    folder = tmp_path_factory.mktemp("models")
    return [
        save(conv_net(), folder, "conv.onnx"),
        save(mlp(widths=(16, 32, 64, 32, 16, 8)), folder, "mlp.onnx"),
        save(branching_net(), folder, "branching.onnx"),
        save(embedding_net(), folder, "embedding.onnx"),
    ]


@contextmanager
def joined(
    scheduler: str, name: str, cpus: list[int] = CPUS, **variables: str
) -> Iterator[psutil.Process]:
    """A worker that has joined, on these processors: another number of them is another system."""
    with started("worker", scheduler, "--name", name, **variables) as process:
        worker = psutil.Process(process.pid)
        worker.cpu_affinity(cpus)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert "has joined" in line, line + process.stderr.read()
        yield worker
        with contextlib.suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGCONT)


class HeardOf:
    """A cluster of whose hosts the scheduler has just heard, but for the ``silent`` one.

    On a busy machine, a host may give no sign of life for longer than a test is patient; one that
    is lost for it joins again, as another. Those that leave are lost here too.
    """

    def __init__(self, cluster: Cluster, silent: str | None = None) -> None:
        self._cluster, self._silent = cluster, silent
        self.call, self.notify = cluster.call, cluster.notify

    def hosts(self) -> Mapping[str, HostStatus]:
        now = time.monotonic()
        return {
            address: seen if seen.name == self._silent else replace(seen, last_seen=now)
            for address, seen in self._cluster.hosts().items()
        }


@pytest.fixture
def run(
    scheduler: str, here: Here, models: list[Path]
) -> Callable[..., contextlib.AbstractContextManager[Running]]:
    """The work of all models given out in a thread of its own."""

    @contextmanager
    def run(patience_s: float = PATIENCE_S, silent: str | None = None) -> Iterator[Running]:
        running = Running(scheduler, here.cache, models, patience_s, silent)
        running.thread.start()
        try:
            yield running
        finally:
            running.thread.join(timeout=PATIENCE_S)

    return run


class Running:
    """A fleet at work, and what it says."""

    def __init__(
        self,
        scheduler: str,
        cache: Path,
        models: list[Path],
        patience_s: float = PATIENCE_S,
        silent: str | None = None,
    ) -> None:
        self.cache = cache
        self.notes: list[str] = []
        self.outcome: FleetMeasured | Exception | None = None
        self.thread = threading.Thread(
            target=self._run, args=(scheduler, models, patience_s, silent), daemon=True
        )

    def _run(
        self, scheduler: str, models: list[Path], patience_s: float, silent: str | None
    ) -> None:
        try:
            with Store.open(self.cache) as store, connected(scheduler) as cluster:
                read = [read_model(path, name=path.name) for path in models]
                fleet = Coordinator(
                    HeardOf(cluster, silent), store, read, FAKE,
                    patience_s=patience_s, note=self.notes.append,
                )  # fmt: skip
                self.outcome = fleet.run()
        except Exception as exc:  # looked at where it is asked for
            self.outcome = exc

    def until_measuring(self) -> None:
        """Wait until some bricks are measured, and not all of them."""
        until(lambda: rounds(self.cache) or self.outcome)
        assert self.outcome is None, self.outcome

    @property
    def done(self) -> FleetMeasured:
        self.thread.join(timeout=PATIENCE_S)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        assert self.outcome is not None
        return self.outcome


def by_name(done: FleetMeasured) -> dict[str, Any]:
    return {host.name: host for host in done.hosts}


@pytest.fixture(scope="class")
def host(scheduler: str) -> Iterator[psutil.Process]:
    """A host that has joined for all tests of a class."""
    with joined(scheduler, "one") as host:
        yield host


NETWORK = ("interconnect", "measure", "lab", "--backend", "fake", "--max-bytes", 5000, "--json")


class TestWithOneHost:
    """What needs no other host that measures."""

    def test_it_is_there_whatever_else_the_client_asks_the_scheduler(
        self, scheduler: str, host: psutil.Process
    ) -> None:
        with dask.config.set({INFO_INTERVAL: "1ms"}), connected(scheduler) as cluster:
            names = [{seen.name for seen in cluster.hosts().values()} for _ in range(20)]
        assert names == [{"one"}] * 20

    def test_what_it_returned_before_it_hung_is_had(
        self, scheduler: str, host: psutil.Process
    ) -> None:
        with connected(scheduler) as cluster:
            (address,) = cluster.hosts()
            call = cluster.call(address, on_host.greet)
            until(call.done)
            host.suspend()
            assert call.result() == {"package": __version__}
            host.resume()

    @pytest.mark.slow
    def test_a_budget_is_for_it_to_spend(
        self, scheduler: str, host: psutil.Process, here: Here, models: list[Path]
    ) -> None:
        words = ("--scheduler", scheduler, "--budget", 60, "--json")
        done = here("measure", models[0], *words)
        assert done.status == 0
        (target,) = done.json["targets"]
        assert target["new_bricks"] == target["bricks"] > 0
        assert here.plain("cache", "verify", "--cache", here.cache).status == 0

    def test_the_network_between_hosts_needs_a_second_one(
        self, scheduler: str, host: psutil.Process, here: Here
    ) -> None:
        done = here.plain(*NETWORK, "--scheduler", scheduler, "--cache", here.cache)
        assert done.status == 1
        assert "1 hosts have joined, and 2 ranks need one each" in done.complaint

    @pytest.mark.slow
    def test_with_a_second_one_they_measure_the_network_between_them(
        self, scheduler: str, host: psutil.Process, here: Here
    ) -> None:
        with joined(scheduler, "two"):
            done = here.plain(*NETWORK, "--scheduler", scheduler, "--cache", here.cache)
        assert (done.status, done.err) == (0, "")
        assert len(done.json["new"]) == 4 * 2
        identity = done.json["identity"]
        assert identity["kind"] == "loopback" and identity["same_host"]


@two_systems
@pytest.mark.slow
def test_processes_on_two_systems_measure_all_for_each(
    scheduler: str, here: Here, models: list[Path]
) -> None:
    words = ("measure", *models, "--scheduler", scheduler, "--json", "--threads", 1)
    with joined(scheduler, "a", CPUS[:1], **SLOWLY), joined(scheduler, "b", **SLOWLY):
        first, again = here(*words), here(*words)
    assert first.status == 0
    assert all("has joined" in line for line in first.err.splitlines())
    targets, hosts = first.json["targets"], first.json["hosts"]
    assert len(targets) == len(hosts) == 2
    assert all(t["new_bricks"] == t["bricks"] > 0 for t in targets)
    assert all(t["unfinished"] == 0 and not t["failures"] for t in targets)
    assert [(host["new_bricks"], host["left"]) for host in hosts] == [
        (targets[0]["bricks"], None)
    ] * 2
    assert [t["new_bricks"] for t in again.json["targets"]] == [0, 0]
    assert here.plain("cache", "verify", "--cache", here.cache).status == 0
    with Store.open(here.cache) as store:
        assert len(store.systems.all()) == 2


@pytest.mark.slow
def test_a_host_that_is_killed_in_the_middle_loses_its_work_to_another(
    scheduler: str, run: Any
) -> None:
    with joined(scheduler, "victim", **SLOWLY) as victim, joined(scheduler, "heir", **SLOWLY):
        with run() as running:
            running.until_measuring()
            victim.kill()
            done = running.done
    (target,) = done.targets
    assert (target.unfinished, target.given_up) == (0, ())
    assert "ended" in by_name(done)["victim"].left
    assert by_name(done)["heir"].new_bricks > 0
    assert sum(host.new_bricks for host in done.hosts) == target.bricks


@pytest.mark.slow
def test_a_host_that_hangs_loses_its_work_to_another(
    scheduler: str, run: Any, caplog: pytest.LogCaptureFixture
) -> None:
    # So slow that it has not done its first portion when the other's has come in.
    endless = {"BRICKS_FAKE_PACE": "0.05"}
    with joined(scheduler, "hung", **endless) as hung, joined(scheduler, "heir", **SLOWLY):
        with run(patience_s=2.0, silent="hung") as running:
            running.until_measuring()
            hung.suspend()
            done = running.done
    assert done.targets[0].unfinished == 0
    assert by_name(done)["hung"].left == "has given no sign of life for 2 s"
    assert by_name(done)["heir"].new_bricks > 0
    gc.collect()  # when Python would tell of tasks whose errors nobody has seen
    assert not caplog.records


@pytest.mark.slow
def test_a_host_that_joins_late_takes_part(scheduler: str, run: Any) -> None:
    with joined(scheduler, "early", **SLOWLY) as early, run() as running:
        running.until_measuring()
        early.suspend()  # and not long enough to count as gone
        with joined(scheduler, "late", **SLOWLY):
            before = len(rounds(running.cache))
            until(lambda: len(rounds(running.cache)) > before)
            early.resume()
            done = running.done
    assert by_name(done)["late"].new_bricks > 0
    assert sum(host.new_bricks for host in done.hosts) == done.targets[0].bricks


@pytest.mark.slow
def test_where_all_hosts_die_what_was_gathered_is_kept_and_gone_on_with(
    scheduler: str, run: Any
) -> None:
    with joined(scheduler, "only", **SLOWLY) as only, run(patience_s=1.0) as running:
        running.until_measuring()
        only.kill()
        first = running.done
    (target,) = first.targets
    assert 0 < target.unfinished < target.bricks
    with joined(scheduler, "next"), run() as running:
        second = running.done
    assert second.targets[0].unfinished == 0
    assert second.targets[0].new_bricks == target.unfinished


def thread_states(process: psutil.Process) -> list[str]:
    """The kernel's letter for what each thread does: a signal reaches one after the other."""
    folders = Path(f"/proc/{process.pid}/task").iterdir()
    return [(each / "stat").read_text().rpartition(")")[2].split()[0] for each in folders]


@two_systems
@pytest.mark.slow
def test_what_a_host_measured_while_it_became_another_is_not_kept(scheduler: str, run: Any) -> None:
    with joined(scheduler, "shrinking", **SLOWLY) as worker, run(patience_s=1.0) as running:
        running.until_measuring()
        worker.suspend()  # so that it starts no thread that would keep both processors
        until(lambda: all(state == "T" for state in thread_states(worker)))
        for thread in worker.threads():
            os.sched_setaffinity(thread.id, CPUS[:1])
        worker.resume()
        done = running.done
    host = by_name(done)["shrinking"]
    assert any("it became another system: " in line for line in host.changed), running.notes
    assert any("logical_cpus from" in line for line in host.changed)
    assert any("has become another system" in line for line in running.notes)
    old, new = done.targets
    assert old.target.system.key != new.target.system.key
    assert new.unfinished == 0
    assert old.unfinished > 0  # since nobody is left who could


@pytest.mark.slow
def test_a_scheduler_that_ends_in_the_middle_is_one_line(
    here: Here, models: list[Path], tmp_path: Path
) -> None:
    with scheduling(tmp_path) as (address, process), joined(address, "orphan", **SLOWLY):
        running = Running(address, here.cache, models)
        running.thread.start()
        running.until_measuring()
        process.kill()
        with refused(FleetError, address):
            running.done  # noqa: B018  # raises
    assert rounds(here.cache)


def test_without_hosts_it_is_said_how_they_join(scheduler: str, run: Any) -> None:
    with run(patience_s=0.5) as running, refused(FleetError, "bricks worker"):
        running.done  # noqa: B018  # raises


@pytest.mark.slow
def test_without_a_scheduler_both_sides_say_so(here: Here, models: list[Path]) -> None:
    nowhere = "tcp://127.0.0.1:9"
    done = here("measure", models[0], "--scheduler", nowhere)
    assert done.status == 1
    assert done.complaint.startswith(f"no scheduler answers at {nowhere}")
    assert "dask scheduler" in done.complaint
    with started("worker", nowhere, "--wait", 1) as worker:
        _, err = worker.communicate(timeout=PATIENCE_S)
    assert worker.returncode == 1
    assert err.startswith(f"bricks: no scheduler answers at {nowhere}")
    assert len(err.splitlines()) == 1


@pytest.mark.slow
def test_a_worker_that_is_interrupted_leaves_nothing_behind(
    scheduler: str, here: Here, models: list[Path]
) -> None:
    with started("worker", scheduler, "--name", "leaving") as process:
        assert process.stderr is not None
        assert "has joined" in process.stderr.readline()
        assert here("measure", models[0], "--scheduler", scheduler).status == 0
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert err.startswith("bricks: has left tcp://") and len(err.splitlines()) == 1
    until(lambda: not any(child.is_running() for child in children))


def test_without_dask_it_is_said_what_to_install(
    here: Here, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, module, None)
    done = here("measure", models[0], "--scheduler", "tcp://127.0.0.1:9")
    assert done.status == 1
    assert "pip install 'onnx-bricks[fleet]'" in done.complaint


def test_a_scheduler_without_tls_off_this_host_needs_an_explicit_word(here: Here) -> None:
    for address in ("tcp://host:8786", "ws://192.0.2.1:8786", "tcp://[2001:db8::1]:8786"):
        safe = f"tls://{address.partition('://')[2]}"
        with refused(UsageError, address, safe, f"insecure+{address}"):
            checked_address(address)
        assert checked_address(f"insecure+{address}") == address
        assert checked_address(safe) == safe
        for done in (here.plain("worker", address), here("measure", ".", "--scheduler", address)):
            assert done.status == 2 and f"insecure+{address}" in done.complaint
    for place in ("localhost:1", "127.0.0.1:1", "127.8.0.1:1", "[::1]:1"):
        assert checked_address(f"tcp://{place}") == f"tcp://{place}"


TLS = "DISTRIBUTED__COMM__TLS"


def certificates(folder: Path) -> dict[str, str]:
    """Variables that configure Dask with certificates of an authority of their own."""

    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)

    (folder / "names").write_text("subjectAltName=IP:127.0.0.1")
    new = ("-newkey", "rsa:2048", "-nodes", "-subj", "/CN=lab")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem")
    openssl("req", *new, "-keyout", "host.key", "-out", "host.csr")
    signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names")
    openssl("x509", "-req", "-in", "host.csr", *signed, "-out", "host.pem")
    variables = {f"DASK_{TLS}__CA_FILE": str(folder / "ca.pem")}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        variables[f"DASK_{TLS}__{role}__CERT"] = str(folder / "host.pem")
        variables[f"DASK_{TLS}__{role}__KEY"] = str(folder / "host.key")
    return variables


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_hosts_measure_over_tls(tmp_path: Path, models: list[Path]) -> None:
    trusted = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    others = certificates(tmp_path / "other")
    with (
        scheduling(tmp_path, "--protocol", "tls", **trusted) as (address, _),
        joined(address, "host", **trusted),
    ):
        assert address.startswith("tls://")
        words = ("measure", models[1], "--runtime", "fake", "--threads", 1, "--json")
        words += ("--cache", tmp_path / "cache", "--scheduler", address)
        done = bricks(*words, **trusted)
        assert done.status == 0, done.err
        with Store.open(tmp_path / "cache") as store:
            assert store.contents.stats().measurements > 0
        refused_there = bricks(*words, **others)
        assert refused_there.status == 1 and "no scheduler answers" in refused_there.complaint


@pytest.mark.parametrize("role", ["client", "worker"])
def test_who_has_no_certificate_is_told_what_to_configure(
    role: str, here: Here, models: list[Path], tmp_path: Path
) -> None:
    address = "tls://127.0.0.1:9"
    words = ("worker", address) if role == "worker" else ("measure", models[0], "--scheduler")
    words += () if role == "worker" else (address, "--cache", tmp_path / "cache")
    done = here.plain(*words)
    assert done.status == 1
    assert f".{role}.cert" in done.complaint and address in done.complaint
    missing = {f"distributed.comm.tls.{role}.cert": str(tmp_path / "none.pem")}
    with dask.config.set({**missing, "distributed.comm.tls.ca-file": str(tmp_path / "ca.pem")}):
        done = here.plain(*words)
    assert done.status == 1 and "cannot be used (" in done.complaint


def test_what_cannot_be_dealt_out_is_refused(
    here: Here, models: list[Path], tmp_path: Path
) -> None:
    for address in ("host", "host:8786", "http://host:8786", "tcp://host", ""):
        done = here("measure", models[0], "--scheduler", address)
        assert done.status == 2, address
        assert "tls://host:8786" in done.complaint, address
    with pytest.raises(UsageError), connected("127.0.0.1:8786"):
        raise AssertionError("unreachable")
    suite = tmp_path / "private.zip"
    assert here("generate", models[0], "--private", "--out", suite).status == 0
    done = here("measure", suite, "--scheduler", "tcp://127.0.0.1:9")
    assert done.status == 2
    assert "--scheduler" in done.complaint
