"""A runtime runs in a Python of the user, which stays as it is; what it lacks is one line."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import older_onnxruntime
import pytest
import torch_environment
from commands import Here, bricks
from factories import mlp, save
from refusals import refused

from bricks import Bench
from bricks.backends import describe, offer
from bricks.backends.offer import unimportable
from bricks.backends.users_python import OWN, VARIABLE
from bricks.errors import BackendError, UsageError
from bricks.system import environments
from bricks.system.worker_packages import inspected, worker_packages

CUDA = "__version__ = '2.11.0+cu130'\ndebug = False\ncuda: Optional[str] = '13.0'\n"
CPU = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n"

ORT = "onnxruntime"


@pytest.fixture(autouse=True)
def _nothing_is_active(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in (VARIABLE, "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BRICKS_ENVIRONMENTS", str(tmp_path / "environments"))
    inspected.cache_clear()


def with_torch(folder: Path, version: str) -> Path:
    """A Python that has a PyTorch with this ``version.py``, and nothing else."""
    number = version.split("'")[1].partition("+")[0]
    site = folder / "site"
    (site / "torch").mkdir(parents=True)
    (site / "torch" / "__init__.py").write_text("raise ImportError('it was imported')")
    (site / "torch" / "version.py").write_text(version)
    facts = site / f"torch-{number}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Name: torch\nVersion: {number}\n")
    return script(folder, f'PYTHONPATH={site} exec {sys.executable} -S "$@"')


def script(folder: Path, line: str) -> Path:
    """A program at ``bin/python`` of a folder, as environments have it."""
    command = folder / "bin" / "python"
    command.parent.mkdir(parents=True, exist_ok=True)
    command.write_text(f"#!/bin/sh\n{line}\n")
    command.chmod(0o755)
    return command


def that_says(folder: Path, version: list[int], **packages: str) -> Path:
    """A Python of another ``version`` with other ``packages``."""
    have = {name.replace("_", "-"): [v, None, None] for name, v in packages.items()}
    return script(folder, f"echo '{json.dumps(['cpython', version, have])}'")


def with_onnxruntime(folder: Path) -> Path:
    """An environment without any package but the runtime: what bricks needs there, it lacks."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for file in metadata.files(ORT) or ():
        link = site / file.parts[0]
        if file.parts[0] != ".." and not link.exists():
            link.symlink_to(metadata.distribution(ORT).locate_file(file.parts[0]))
    return folder / "bin" / "python"


def test_the_version_is_read_without_importing(tmp_path: Path) -> None:
    python = with_torch(tmp_path, CPU)
    info = describe("torch", python=str(python))
    own = "{}.{}".format(*sys.version_info)
    assert (info.version, info.python) == ("2.13.0+cpu", str(python))
    assert info.python_version == (None if own == "3.11" else own)


def test_the_folder_of_an_environment_names_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = with_torch(tmp_path / "venv", CPU)
    (tmp_path / "link").symlink_to(tmp_path / "venv")
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "venv", "venv", "./venv", "venv/../venv/bin/python", "link"):
        assert describe("torch", python=str(path)).python == str(python)


def test_a_runtime_that_cannot_be_imported_is_repaired_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = offer("torch").environment
    assert environment is not None
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    said = str(unimportable(environment, ImportError("no library")))
    assert str(python) in said and "no library" in said and "--python" in said
    assert environment.install not in said


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "CONDA_PREFIX"])
def test_an_active_one_is_taken_where_it_has_the_runtime(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = with_torch(tmp_path, CPU)
    monkeypatch.setenv(name, str(tmp_path))
    info = describe("torch")
    assert (info.python, info.users) == (str(python), True)
    assert info.note is not None and str(python) in info.note
    other = describe(ORT)
    assert (other.python, other.users) == (sys.executable, False)
    assert other.note is not None and str(tmp_path) in other.note and ORT in other.note
    assert describe(ORT, python=OWN).note is None


def test_one_that_is_set_must_have_the_runtime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = with_torch(tmp_path, CPU)
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv("VIRTUAL_ENV", str(with_onnxruntime(tmp_path / "other").parents[1]))
    assert describe("torch").python == str(python)
    with refused(BackendError, VARIABLE, python, ORT, f"--python {OWN}", f"{VARIABLE}={OWN}"):
        describe(ORT)
    assert describe("fake").note is None  # it runs in its own Python alone


def test_the_installed_runtime_can_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(with_onnxruntime(tmp_path)))
    assert describe(ORT).python == str(tmp_path / "bin" / "python")
    assert describe(ORT, python=OWN).python == sys.executable
    monkeypatch.setenv(VARIABLE, OWN)
    assert describe(ORT).python == sys.executable


def test_a_gpu_needs_a_pytorch_for_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bricks.backends.torch import OFFER
    from bricks.system.accelerator import CUDA as GPU

    monkeypatch.setattr(type(OFFER), "accelerator", lambda self: None)
    python = with_torch(tmp_path / "cuda", CUDA)
    assert describe("torch", GPU, str(python)).version == "2.11.0+cu130"
    other = with_torch(tmp_path / "cpu", CPU)
    with refused(BackendError, other, "2.13.0+cpu", "--python", VARIABLE):
        describe("torch", GPU, str(other))
    with refused(BackendError, "--device cuda", "--python", VARIABLE):
        describe("torch", GPU)


def test_what_cannot_run_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = with_torch(tmp_path / "old", "__version__ = '2.3.1'\n")
    with refused(BackendError, old, "torch", "2.3.1", "2.4"):
        describe("torch", python=str(old))
    with refused(BackendError, old, ORT, "--python"):
        describe(ORT, python=str(old))
    python = that_says(tmp_path / "38", [3, 8], torch="2.4.1")
    with refused(BackendError, python, "3.8", "3.9"):
        describe("torch", python=str(python))
    python = that_says(tmp_path / "numpy", [3, 12], torch="2.8.0", numpy="1.20.0")
    with refused(BackendError, python, "numpy", "1.20.0", "1.26"):
        describe("torch", python=str(python))
    (tmp_path / "text").write_text("no program")
    (tmp_path / "empty").mkdir()
    for path in ("/nowhere/python", "python-nowhere", tmp_path / "text", tmp_path / "empty"):
        with refused(BackendError, "--python", path):
            describe("torch", python=str(path))
    ancient = that_says(tmp_path / "27", [2, 7])
    with refused(BackendError, ancient, "2.7", "3.9"):
        describe("torch", python=str(ancient))
    with refused(BackendError, script(tmp_path / "none", "exit 3")):
        describe("torch", python=str(tmp_path / "none"))
    with refused(BackendError, "mxnet", "--python"):
        describe("mxnet", python=str(old))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "old"))
    with refused(BackendError, "2.3.1", f"--python {OWN}", f"{VARIABLE}={OWN}"):
        describe("torch")
    monkeypatch.setenv(VARIABLE, "/nowhere/python")
    with refused(BackendError, VARIABLE, "/nowhere/python"):
        describe("torch")


def test_what_a_worker_needs_travels(tmp_path: Path) -> None:
    python = with_onnxruntime(tmp_path / "users")
    before = {path: path.lstat().st_mtime_ns for path in (tmp_path / "users").rglob("*")}
    model = save(mlp(), tmp_path)
    with Bench(tmp_path / "cache", threads=1, python=str(python)) as bench:
        estimate = bench.predict(bench.read(model))
        assert bench.target.runtime == describe_target(bench, OWN)
    assert estimate.latency_s.value > 0
    folder = worker_packages(str(python))
    assert folder is not None and folder.parent == environments.root()
    assert {"numpy", "onnx", "psutil"} <= {entry.name for entry in folder.iterdir()}
    after = {path: path.lstat().st_mtime_ns for path in (tmp_path / "users").rglob("*")}
    assert after == before


def describe_target(bench: Bench, python: str) -> object:
    """The runtime of the same target in another Python: of the same version, it is the same."""
    with bench.workspace.with_options(python=python) as workspace:
        return workspace.runtime


def test_an_answer_says_which_python_ran(here: Here, tmp_path: Path) -> None:
    python = with_onnxruntime(tmp_path / "users")
    model = save(mlp(), tmp_path)
    words = ("predict", model, "--threads", 1, "--json")
    done = here(*words, "--python", python, runtime=ORT)
    assert done.status == 0, done.err
    assert str(python) in done.err
    assert done.json["python"] == str(python)
    assert "python" not in here(*words, runtime=ORT).json


def test_runtimes_with_a_python_of_their_own_refuse(tmp_path: Path) -> None:
    with refused(BackendError, "fake", "--python"), Bench(runtime="fake", python=str(tmp_path)):
        pass
    with pytest.raises(UsageError):
        describe("nowhere", python=str(tmp_path))


def test_a_program_imports_what_its_author_has(
    here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BRICKS_ENVIRONMENTS")
    torch = torch_environment.python()
    users = tmp_path / "users"
    subprocess.run([str(torch), "-m", "venv", "--without-pip", str(users)], check=True)
    (site,) = users.glob("lib/python*/site-packages")
    (packages,) = torch.parent.parent.glob("lib/python*/site-packages")
    (site / "torch.pth").write_text(f"{packages}\n")
    (site / "authors_layers.py").write_text(
        "import torch\ndef layer(): return torch.nn.Linear(8, 8)\n"
    )
    program = tmp_path / "own.py"
    program.write_text(
        "import authors_layers, torch\n"
        "def step(batch=2):\n"
        "    return {'module': authors_layers.layer(), 'inputs': (torch.ones(batch, 8),)}\n"
    )
    words = ("decompose", f"{program}:step", "--verify")
    done = here(*words, runtime=None)
    assert (done.status, done.out) == (1, "")
    for fact in ("authors_layers", "--python", VARIABLE):
        assert fact in done.complaint
    done = here(*words, "--python", users, runtime=None)
    assert done.status == 0, done.err
    assert "bit by bit" in done.out
    monkeypatch.setenv("VIRTUAL_ENV", str(users))
    assert here(*words, runtime=None).status == 0


@pytest.mark.slow
def test_another_version_of_onnxruntime_is_another_target(tmp_path: Path) -> None:
    """A fresh environment gets it with pip, as a user would; bricks gets what it lacks."""
    folder = tmp_path / "users"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    wanted = f"{ORT}=={older_onnxruntime.VERSION}"
    pip = [str(python), "-m", "pip", "install", "--quiet", wanted]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip(f"{wanted} cannot be installed here")
    done = bricks(
        "compare", save(mlp(), tmp_path), "--threads", 1, "--python", python, "--json",
        "--cache", tmp_path / "cache", BRICKS_ENVIRONMENTS=str(tmp_path / "environments"),
    )  # fmt: skip
    assert done.status == 0, done.err
    assert done.json["runtime"]["version"] == older_onnxruntime.VERSION
    assert str(python) in done.err
