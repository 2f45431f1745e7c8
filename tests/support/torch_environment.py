"""PyTorch's environment, for tests of what really runs there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import runtime_environments

from bricks import Bench
from bricks.measure.supervisor import Supervisor
from bricks.session.workspace import Workspace
from bricks.sources import recorder as recording

PROGRAMS = Path(__file__).resolve().parent / "programs.py"


def python() -> Path:
    """PyTorch's environment's Python; tests are skipped, or install it, where it is not there."""
    return runtime_environments.python("torch")


@contextmanager
def one_recorder() -> Iterator[None]:
    """Meanwhile one process records all programs, where otherwise each starts its own."""
    python()
    original = recording.ProgramRecorder
    shared = original(runtime="torch", threads=1, seed=0)

    def recorder(*, runtime: str, **settings: Any) -> Any:
        if (runtime, settings) == (
            "torch",
            {"threads": 1, "seed": 0, "device": "cpu", "python": None},
        ):
            return nullcontext(shared)
        return original(runtime=runtime, **settings)

    with shared, pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "ProgramRecorder", recorder)
        yield


@contextmanager
def one_worker() -> Iterator[Supervisor]:
    """Meanwhile one process works for all benches, where otherwise each use starts its own."""
    python()
    with TemporaryDirectory() as folder, Bench(folder, runtime="torch", threads=1) as bench:
        with bench.workspace.worker() as worker, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Workspace, "worker", lambda _: nullcontext(worker))
            yield worker


def program(name: str) -> str:
    """The program called ``name`` of the tests, as a command takes it."""
    return f"{PROGRAMS}:{name}"


TRAINING_PROGRAMS = PROGRAMS.with_name("training_programs.py")


def workload(name: str) -> str:
    """The workload called ``name`` that can be trained, as a command takes it."""
    return f"{TRAINING_PROGRAMS}:{name}"
