import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiers
from caches import FILE, MODEL
from commands import Here, bricks
from database_server import NoServer, Server, running
from fork_server import ForkServer
from hypothesis import settings
from rough import measuring_calls_roughly
from store_examples import Cache

from bricks.measure import timing_lock, worker_process
from bricks.system.allocator import TUNABLES

# A library for lines that are typed tells how wide it takes the terminal to be, and processes that
# run tests side by side inherit that; commands would take it for what somebody asks for.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# What ships with the package is of real hosts, one of which may be this one: tests that read it say
# so. (NOWHERE is no folder.)
NOWHERE = os.environ["BRICKS_PUBLISHED"] = os.devnull

# Processes of all tests share what they derive from files, which is nobody else's.
if "BRICKS_DERIVED" not in os.environ:
    _derived = tempfile.TemporaryDirectory(prefix="bricks-derived-", ignore_cleanup_errors=True)
    os.environ["BRICKS_DERIVED"] = _derived.name
DERIVED = os.environ["BRICKS_DERIVED"]


def pytest_configure(config: pytest.Config) -> None:
    tiers.quick = config.option.markexpr == "not slow"
    # No example is too late on a busy host; `make test` draws fewer of them, always the same.
    drawn = {"max_examples": tiers.QUICK_EXAMPLES, "derandomize": True} if tiers.quick else {}
    settings.register_profile("tests", settings.default, deadline=None, **drawn)
    settings.load_profile("tests")


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody's shell says about caches and the zoo must not decide what tests do."""
    for name in os.environ:
        if name.startswith("BRICKS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BRICKS_PUBLISHED", NOWHERE)
    monkeypatch.setenv("BRICKS_DERIVED", DERIVED)


@pytest.fixture(autouse=True, scope="session")
def _nobody_to_wait_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests side by side don't wait for each other's timings: none asserts a time."""
    folder = tmp_path_factory.mktemp("turns")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing_lock, "FOLDERS", (folder,))
        patch.setenv("TESTS_LOCKS", str(folder))
        yield


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    """What starts processes as forks; it begins with the first."""
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(autouse=True, scope="session")
def _workers_are_forks(fork_server: ForkServer) -> Iterator[None]:
    """Of runtimes in this Python: importing is most of the time of such a worker.

    What is told to return memory to the system, or to keep it, is told so as it starts.
    """
    *command, _ = worker_process.worker_command(sys.executable, "any")
    original = worker_process.launch

    def launch(words: list[str], **options: Any) -> Any:
        if words[:-1] == command and options["env"].get(TUNABLES) == os.environ.get(TUNABLES):
            return fork_server.worker(**options)
        return original(words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_process, "launch", launch)
        yield


@pytest.fixture(autouse=True, scope="session")
def _calls_are_measured_roughly() -> Iterator[None]:
    """In `make test`, of which none looks at how well it knows them."""
    with measuring_calls_roughly() if tiers.quick else contextlib.nullcontext():
        yield


@pytest.fixture(autouse=True)
def _no_networks_of_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """They follow measurements of more than a second; a test of their own asks for one."""
    monkeypatch.setattr("bricks.session.campaigns.REFERENCE_NETWORKS", ())


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    """Commands in this process, on a cache of their own."""
    return Here(tmp_path / "cache", capsys)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A PostgreSQL server of the tests' own; where there can be none, tests are skipped."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running())
        except NoServer as exc:
            pytest.skip(f"no PostgreSQL to test with: {exc}")
        yield server


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Cache:
    """Where a new cache can be: what holds for one kind of database must hold for the other.

    The second runs in `make test` for tests that are ``store_examples.ON_BOTH`` alone.
    """
    if request.param == "sqlite":
        return tmp_path / "cache"
    server: Server = request.getfixturevalue("postgresql")
    return server.new_database()


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The file of a cache that knows a real model, measured by the fake runtime."""
    folder = tmp_path_factory.mktemp("whole")
    assert bricks("measure", MODEL, "--runtime", "fake", "--cache", folder).status == 0
    return (folder / FILE).read_bytes()
