import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from caches import FILE, MODEL
from commands import Here, bricks
from database_server import NoServer, Server, running
from store_examples import Cache

from bricks.measure import timing_lock

# A library for lines that are typed tells how wide it takes the terminal to be, and processes that
# run tests side by side inherit that; commands would take it for what somebody asks for.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# What ships with the package is of real hosts, one of which may be this one: tests that read it say
# so. (NOWHERE is no folder.)
NOWHERE = os.environ["BRICKS_PUBLISHED"] = os.devnull

# Where tests run side by side, those of these files stay together in one process, and begin first;
# all others go one by one to whichever process is free. (The groups that xdist has for this do
# nothing with some versions of pytest, and say nothing.)
TOGETHER = {
    # All look at one site, which is built once.
    "test_documentation_is_whole.py": "documentation",
    # All look at what one fixture finds in minutes.
    "test_every_operator_test_case_conforms.py": "conformance",
    # Each command stands on those before it.
    "test_diff_page_works_as_written.py": "diff page",
    # All look at one report, in one browser.
    "test_reports_are_one_page.py": "report",
    # Copies of gradients are measured once for all.
    "test_cli_scales_over_ranks.py": "scaling",
    # All need one scheduler.
    "test_a_fleet_measures_each_brick_once_per_system.py": "fleet",
    # One process of a host times at a time: these would wait for each other.
    "test_measuring_stays_within_its_memory.py": "timing",
    "test_measuring_with_onnxruntime.py": "timing",
    "test_notebooks_run_from_top_to_bottom.py": "timing",
    "test_backend_guide_works_as_written.py": "timing",
    "test_readme_works_as_written.py": "timing",
    "test_two_versions_of_onnxruntime_are_compared.py": "timing",
    "test_tutorial_works_as_written.py": "timing",
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Scheduling by what belongs together, for tests that run side by side."""
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0].rpartition("/")[2]
            return TOGETHER.get(file, nodeid)

    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def _nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """What somebody's shell says about caches and the zoo must not decide what tests do."""
    for name in os.environ:
        if name.startswith("BRICKS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BRICKS_PUBLISHED", NOWHERE)


@pytest.fixture(autouse=True, scope="session")
def _nobody_to_wait_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests side by side don't wait for each other's timings: none asserts a time.

    Commands that are processes of their own do wait.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing_lock, "FOLDERS", (tmp_path_factory.mktemp("turns"),))
        yield


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


@pytest.fixture(params=["sqlite", "postgresql"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Cache:
    """Where a new cache can be: what holds for one kind of database must hold for the other."""
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
