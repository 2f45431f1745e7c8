"""Runtimes, one a file behind one small interface (:mod:`bricks.backends.base`).

A runtime is imported by its backend alone, inside the worker process. What must be known of it
before a worker exists (its version, so that the store can be asked) comes from package metadata.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib import metadata

from bricks.backends.base import Backend
from bricks.errors import BackendError, UsageError

__all__ = ["BACKENDS", "Backend", "BackendInfo", "create", "describe"]

BACKENDS = ("onnxruntime", "fake")


@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What is known of a backend without starting it.

    ``real`` is whether it takes real time, ``parallel`` whether it can run nodes side by side.
    """

    name: str
    version: str
    provider: str
    real: bool
    parallel: bool = False


def describe(name: str) -> BackendInfo:
    """Name, version and execution provider of a backend, without importing its runtime."""
    if name == "fake":
        return BackendInfo("fake", "1", "none", real=False, parallel=True)
    if name == "onnxruntime":
        try:
            version = metadata.version("onnxruntime")
        except metadata.PackageNotFoundError as exc:
            raise BackendError("onnxruntime is not installed: pip install onnxruntime") from exc
        provider = "CPUExecutionProvider"
        return BackendInfo("onnxruntime", version, provider, real=True, parallel=True)
    raise UsageError(f"no runtime is called {name!r}: choose one of {', '.join(BACKENDS)}")


def create(name: str, *, threads: int, seed: int, workers: int = 1) -> Backend:
    """The backend itself; imports its runtime. Meant for the worker process.

    ``workers`` is how many nodes of a model it may run at the same time.
    """
    if name == "fake":
        from bricks.backends.fake import FakeBackend

        return FakeBackend()
    if name == "onnxruntime":
        # Whether a model is measured is the user's own affair; and it would write to the disk.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            from bricks.backends.onnxruntime import OnnxRuntimeBackend
        except ImportError as exc:
            raise BackendError(f"onnxruntime cannot be imported ({exc}): reinstall it") from exc

        return OnnxRuntimeBackend(threads=threads, seed=seed, workers=workers)
    raise UsageError(f"no runtime is called {name!r}: choose one of {', '.join(BACKENDS)}")
