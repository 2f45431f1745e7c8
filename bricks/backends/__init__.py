"""Runtimes, one a file behind one small interface (:mod:`bricks.backends.base`).

Those of other packages are found by their entry points (:mod:`bricks.backends.added`).

A runtime is imported by its backend alone, inside the worker process. What must be known of it
before a worker exists (its version, so that the store can be asked) comes from package metadata.
"""

from __future__ import annotations

import os
from importlib import metadata
from pathlib import Path

from bricks.backends import added
from bricks.backends.base import Backend, BackendInfo
from bricks.errors import BackendError, UsageError, suggestion
from bricks.system.environments import Environment

__all__ = ["BACKENDS", "ENVIRONMENTS", "Backend", "BackendInfo", "create", "describe", "names"]

BACKENDS = ("onnxruntime", "mxnet", "mxnet-unfused", "fake")

_MXNET = Environment(
    name="mxnet",
    lock=Path(__file__).parent / "mxnet" / "requirements.lock",
    python="3.11",
    install="bricks backends install mxnet",
)
# Runtimes that cannot share this environment; their version is what the lock file pins.
ENVIRONMENTS = {"mxnet": _MXNET, "mxnet-unfused": _MXNET}


def names() -> tuple[str, ...]:
    """All runtimes there are: those of this package, and then what others add."""
    return (*BACKENDS, *(name for name in added.names() if name not in BACKENDS))


def _added(name: str) -> added.Offer:
    offer = added.offer(name)
    if offer is None:
        raise UsageError(f"no runtime is called {name!r}: {suggestion(name, names())}")
    return offer


def describe(name: str) -> BackendInfo:
    """What is known of a backend, without importing its runtime.

    Raises :class:`BackendError` if that is not installed, and says what to do.
    """
    if name == "fake":
        return BackendInfo("fake", "1", "none", timed=False, parallel=True)
    if name == "onnxruntime":
        try:
            version = metadata.version("onnxruntime")
        except metadata.PackageNotFoundError as exc:
            raise BackendError("onnxruntime is not installed: pip install onnxruntime") from exc
        provider = "CPUExecutionProvider"
        levels = ("all", "extended", "basic", "none")
        return BackendInfo(
            "onnxruntime",
            version,
            provider,
            timed=True,
            parallel=True,
            levels=levels,
            build=_build("onnxruntime"),
        )
    if name in ENVIRONMENTS:
        environment = ENVIRONMENTS[name]
        python = str(environment.required())
        return BackendInfo(
            name,
            environment.pinned(environment.name),
            "oneDNN",
            timed=True,
            brick_optimization="all" if name == "mxnet" else "none",
            python=python,
            bounded_memory=False,  # keeps what earlier models took; crashes where memory is short
        )
    return added.describe(_added(name), name)


def _build(package: str) -> str | None:
    """What an installed package was built for: the tag of its wheel."""
    facts = metadata.distribution(package).read_text("WHEEL") or ""
    tags = [
        line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("Tag:")
    ]
    return ", ".join(tags) or None


def create(
    name: str, *, threads: int, seed: int, workers: int = 1, optimization: str = "all"
) -> Backend:
    """The backend itself; imports its runtime. Meant for the worker process.

    ``workers`` is how many nodes of a model it may run at the same time, ``optimization`` one of
    its levels.
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

        return OnnxRuntimeBackend(
            threads=threads, seed=seed, workers=workers, optimization=optimization
        )
    if name in ("mxnet", "mxnet-unfused"):
        # All of this is read when the library is loaded.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"
        try:
            from bricks.backends.mxnet import MxnetBackend
        except ImportError as exc:
            raise BackendError(
                f"mxnet cannot be imported ({exc}): bricks backends install mxnet"
            ) from exc

        return MxnetBackend(seed=seed, fuse=name == "mxnet")
    return added.create(
        _added(name), name, threads=threads, seed=seed, workers=workers, optimization=optimization
    )
