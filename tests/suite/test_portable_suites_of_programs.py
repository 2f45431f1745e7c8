"""Portable suites of recorded programs: on the processor, and on a GPU that is simulated."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch_environment
from commands import ROOT, Here

from bricks.cli import main
from bricks.samples.call_overhead import DEVICE_PROBES
from bricks.samples.measurement import Measurement
from bricks.store import Store
from bricks.suite.portable import RunResults
from bricks.system.accelerator import AcceleratorState

SUPPORT = ROOT / "tests" / "support"
PATIENCE_S = 300


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A suite of a small program of the zoo, whose code is along."""
    torch_environment.python()
    folder = tmp_path_factory.mktemp("programs")
    words = ["--runtime", "torch", "--threads", "1", "--cache", str(folder / "cache")]
    out = folder / "suite.pyz"
    assert main.run(["generate", "torch_keyword_spotting", "--portable", str(out), *words]) == 0
    return out


def ran(words: list[str], folder: Path, python_path: str) -> str:
    """What the Python of PyTorch prints."""
    environment = {**os.environ, "PYTHONPATH": python_path}
    done = subprocess.run(
        [str(torch_environment.python()), *words],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_writing_a_suite_names_programs_that_a_gpu_cannot_be_given(
    here: Here, tmp_path: Path
) -> None:
    torch_environment.python()
    out = tmp_path / "suite.pyz"
    ran = here("generate", "torch_lstm", "--portable", out, runtime="torch")
    assert (ran.status, out.is_file()) == (0, True)
    assert ran.complaint.startswith("not for CUDA: torch_lstm: it is not known how CUDA runs 2 ")


@pytest.mark.slow
def test_a_program_is_measured_next_to_its_steps_and_predicted_from(
    here: Here, suite: Path, tmp_path: Path
) -> None:
    """PyTorch's Python has neither this package nor what it needs."""
    words = ["--threads", "1", "--minutes", "0.5", "--name", "elsewhere"]
    printed = ran([str(suite), *words], tmp_path, "")
    assert "a real step takes" in printed
    results = tmp_path / "results.jsonl"
    assert here("cache", "import", results, runtime=None).status == 0
    asked = here(
        "predict", "torch_keyword_spotting", "--on", "elsewhere", "--threads", 1, "--json",
        runtime="torch",
    )  # fmt: skip
    assert asked.status == 0, asked.err
    (row,) = asked.json["models"]
    assert row["measured_share"] > 0.9


@pytest.mark.slow
def test_a_gpu_has_kernels_in_each_state_of_its_cache_and_its_clock(
    here: Here, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMULATED_THROTTLE", "power")
    out = tmp_path / "results.jsonl"
    ran([str(SUPPORT / "simulated_suite.py"), str(suite), str(out)], tmp_path, f"{ROOT}:{SUPPORT}")
    assert here("cache", "import", out, runtime=None).status == 0
    with Store.open(here.cache) as store:
        (target,) = store.systems.targets()
        assert target.system.name == "simulated-gpu"
        assert target.runtime.provider == "CUDA"
        keys = {each["brick"] for each in RunResults.read(out).of("round")}
        results = store.measurements.results(target.key, sorted(keys))
        known = {key: of for key, of in results.items() if isinstance(of, Measurement)}
        assert len(known) == len(results)
        states = {
            displaced
            for key, measured in known.items()
            if key.startswith("b1-")
            for displaced in measured.kernels_by_displaced
        }
        assert states == {None, 0, 1 << 28}
        (step,) = (measured for key, measured in known.items() if key.startswith("m1-"))
        assert step.kernels()
        timed = [step, *(of for key, of in known.items() if key.startswith("b1-"))]
        assert {of.throttled for of in timed} == {AcceleratorState(1e9, 100.0, ("power",))}
        assert set(DEVICE_PROBES.values()) & set(known)


def test_the_calls_of_cuda_are_along_and_no_path_of_the_user(suite: Path) -> None:
    with zipfile.ZipFile(suite) as file:
        names = file.namelist()
        content = file.read("suite.json").decode()
    assert any(name.startswith("groups/CUDA/") for name in names)
    assert "code/torch/speech.py" in names
    assert str(ROOT) not in content
