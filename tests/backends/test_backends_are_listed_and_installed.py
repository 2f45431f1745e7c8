from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import PATIENCE_S, Here, chain, until
from factories import save
from refusals import refused

from bricks.backends import built_in, describe, offer
from bricks.errors import BackendError
from bricks.system import environments
from bricks.system.environments import CommandFailed, Environment
from bricks.system.processor import Processor


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of environments in which there is none."""
    folder = tmp_path / "environments"
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(folder))
    return folder


def environment(tmp_path: Path, requirements: str = "", python: str = "3.11") -> Environment:
    lock = tmp_path / "requirements.lock"
    lock.write_text(requirements)
    return Environment("mine", lock, python, "bricks backends install mine")


def test_all_runtimes_are_listed(here: Here, nowhere: Path) -> None:
    rows = {row["name"]: row for row in here.plain("backends", "list", "--json").json["backends"]}
    assert tuple(rows) == built_in()
    assert all(row["version"] for row in rows.values())
    for name, row in rows.items():
        needed = offer(name).environment
        assert row["installed"] == (needed is None)
        assert (row["missing"] is None) == row["installed"]
        if needed is not None:
            assert row["missing"].endswith(f": {needed.install}")
    shown = here.plain("backends", "list")
    assert shown.status == 0
    assert "mxnet" in shown.out and "bricks backends install mxnet" in shown.out


def test_a_runtime_that_is_not_installed_is_one_line(
    here: Here, nowhere: Path, tmp_path: Path
) -> None:
    path = save(chain("Relu", "Neg"), tmp_path, "pair.onnx")
    done = here("measure", path, runtime="mxnet")
    assert done.status == 1
    assert done.complaint == (
        "the environment 'mxnet' is not installed: bricks backends install mxnet"
    )


@pytest.mark.parametrize(("flags", "installed"), [("fpu avx512_bf16", True), ("fpu avx2", False)])
def test_bfloat16_is_refused_where_the_processor_lacks_it(
    here: Here, monkeypatch: pytest.MonkeyPatch, flags: str, installed: bool
) -> None:
    monkeypatch.setattr(Environment, "required", lambda self: Path("python"))
    processor = Processor(name="one", flags=frozenset(flags.split()))
    monkeypatch.setattr("bricks.system.processor.read_processor", lambda: processor)
    if installed:
        assert describe("openvino-bf16").provider == "CPU bf16"
        return
    with refused(BackendError, "openvino-bf16", "avx512_bf16", "amx_bf16"):
        describe("openvino-bf16")


def test_unknown_runtimes_are_wrong_usage(here: Here) -> None:
    done = here.plain("backends", "install", "mxnett")
    assert done.status == 2
    assert done.complaint.startswith("no runtime is called 'mxnett': did you mean mxnet?")


def test_a_runtime_without_an_environment_is_installed(here: Here) -> None:
    done = here.plain("backends", "install", "onnxruntime", "--json")
    assert (done.status, done.json["installed"], done.json["new"]) == (0, True, False)


@pytest.mark.slow
def test_an_environment_is_made_once(tmp_path: Path, nowhere: Path) -> None:
    mine, said = environment(tmp_path), []
    assert mine.interpreter is None
    mine.folder.mkdir(parents=True)
    (mine.folder / "half").touch()  # as an interrupted installation leaves it
    python, new = environments.install(mine, said.append)
    assert new and python.exists() and not (mine.folder / "half").exists()
    assert len(said) == 2
    assert environments.install(mine, said.append) == (python, False)
    assert len(said) == 2


def test_who_waits_for_another_installation_says_so(tmp_path: Path, nowhere: Path) -> None:
    """The other process goes on as soon as it is waited for."""
    other, folder, said = threading.Event(), tmp_path / "made", list[str]()

    def making() -> None:
        other.set()
        until(lambda: bool(said))
        folder.mkdir()

    with ThreadPoolExecutor() as pool:
        done = pool.submit(environments.made_once, "mine", folder, making, print)
        assert other.wait(PATIENCE_S)
        assert not environments.made_once("mine", folder, lambda: None, said.append)
        assert done.result()
    assert len(said) == 1 and "mine" in said[0]


def test_another_lock_file_is_another_environment(tmp_path: Path, nowhere: Path) -> None:
    first = environment(tmp_path).folder
    assert environment(tmp_path, "# something else").folder != first
    assert first.parent == nowhere


@pytest.mark.slow
def test_an_installation_that_fails_says_why(tmp_path: Path, nowhere: Path) -> None:
    mine = environment(tmp_path, "./no/such/package --hash=sha256:00")
    with refused(CommandFailed, "mine", "./no/such/package"):
        environments.install(mine)
    assert mine.interpreter is None


def test_a_python_that_is_not_there_is_named(tmp_path: Path, nowhere: Path) -> None:
    with refused(BackendError, "mine", "python3.99"):
        environments.install(environment(tmp_path, python="3.99"))


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "file"))
    with refused(BackendError, "mine", tmp_path / "file", "BRICKS_ENVIRONMENTS"):
        environments.install(environment(tmp_path))


def test_versions_come_from_the_lock_file(tmp_path: Path) -> None:
    assert environment(tmp_path, "mine==1.2.3 \\\n").pinned("mine") == "1.2.3"
    with refused(BackendError, "other", tmp_path / "requirements.lock"):
        environment(tmp_path, "mine==1.2.3").pinned("other")
