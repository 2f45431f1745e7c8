"""Runtimes, one per module, behind one small interface (:mod:`bricks.backends.base`).

Other packages register runtimes through entry points (:mod:`bricks.backends.catalogue`).

Only the backend imports its runtime, and only inside the worker process. Facts that are needed
before a worker exists (the version, which store lookups need) come from package metadata.
"""

from __future__ import annotations

import os
import shutil
from importlib import metadata
from pathlib import Path

from bricks.backends import catalogue
from bricks.backends.base import Backend, BackendInfo
from bricks.errors import BackendError, UsageError, suggestion
from bricks.system.environments import Environment
from bricks.system.processor import read_processor

__all__ = ["BACKENDS", "ENVIRONMENTS", "Backend", "BackendInfo", "create", "describe", "names"]

BACKENDS = (
    "onnxruntime", "openvino", "openvino-bf16", "mxnet", "mxnet-unfused", "torch", "torch-compiled",
    "fake",
)  # fmt: skip

_MXNET = Environment(
    name="mxnet",
    lock=Path(__file__).parent / "mxnet" / "requirements.lock",
    python="3.11",
    install="bricks backends install mxnet",
)
_TORCH = Environment(
    name="torch",
    lock=Path(__file__).parent / "torch" / "requirements.lock",
    python="3.11",
    install="bricks backends install torch",
)
_OPENVINO = Environment(
    name="openvino",
    lock=Path(__file__).parent / "openvino" / "requirements.lock",
    python="3.11",
    install="bricks backends install openvino",
)
# Runtimes that do not share this environment; a lock file pins their version.
ENVIRONMENTS = {
    "openvino": _OPENVINO, "openvino-bf16": _OPENVINO,
    "mxnet": _MXNET, "mxnet-unfused": _MXNET,
    "torch": _TORCH, "torch-compiled": _TORCH,
}  # fmt: skip
# The precision in which OpenVINO computes: its own choice depends on the processor.
_PRECISIONS = {"openvino": "f32", "openvino-bf16": "bf16"}
# The instruction sets of processors that compute in bfloat16.
_BFLOAT16 = ("avx512_bf16", "amx_bf16")
# Runtimes that run recorded programs.
_PROGRAMS = ("torch", "torch-compiled")


def cxx_compiler() -> str | None:
    """The C++ compiler that PyTorch's compiler would use; None if there is none."""
    chosen = os.environ.get("CXX")
    return next((c for c in (chosen, "g++", "clang++") if c and shutil.which(c)), None)


def names() -> tuple[str, ...]:
    """All runtimes: those of this package, then those that other packages add."""
    return (*BACKENDS, *(name for name in catalogue.names() if name not in BACKENDS))


def _added(name: str) -> catalogue.Offer:
    offer = catalogue.offer(name)
    if offer is None:
        raise UsageError(f"no runtime is called {name!r}: {suggestion(name, names())}")
    return offer


def describe(name: str) -> BackendInfo:
    """The facts about a backend, without importing its runtime.

    Raises :class:`BackendError` if the runtime is not installed; the message says how to fix it.
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
    if name in _PROGRAMS:
        if name == "torch-compiled" and cxx_compiler() is None:
            raise BackendError(
                "torch-compiled needs a C++ compiler, and there is none: install g++ or clang++, or"
                " name one in CXX"
            )
        return BackendInfo(
            name,
            _TORCH.pinned("torch"),
            "CPU",
            timed=True,
            brick_optimization="none",
            python=str(_TORCH.required()),
            bounded_memory=False,  # a program takes what it takes: nothing tells ahead
            programs=True,
        )
    if name in _PRECISIONS:
        python = str(_OPENVINO.required())
        if _PRECISIONS[name] == "bf16" and not read_processor().flags.intersection(_BFLOAT16):
            raise BackendError(
                "openvino-bf16 needs a processor with instructions for bfloat16"
                f" ({' or '.join(_BFLOAT16)}), and this one has none: use openvino"
            )
        return BackendInfo(
            name,
            _OPENVINO.pinned("openvino"),
            f"CPU {_PRECISIONS[name]}",
            timed=True,
            brick_optimization="all",
            python=python,
            bounded_memory=False,  # what compiled models keep is not told ahead
            cutting_times=6,
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
            bounded_memory=False,  # keeps memory of earlier models; crashes when memory is short
        )
    return catalogue.describe(_added(name), name)


def _build(package: str) -> str | None:
    """The platform that an installed package was built for: the tag of its wheel."""
    facts = metadata.distribution(package).read_text("WHEEL") or ""
    tags = [
        line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("Tag:")
    ]
    return ", ".join(tags) or None


def create(
    name: str, *, threads: int, seed: int, workers: int = 1, optimization: str = "all"
) -> Backend:
    """The backend called ``name``; imports its runtime, so call it in the worker process.

    ``workers`` is the number of nodes of a model that it may run at the same time, ``optimization``
    one of its levels.
    """
    if name == "fake":
        from bricks.backends.fake.backend import FakeBackend

        return FakeBackend()
    if name == "onnxruntime":
        # Measurements are private to the user, and telemetry would write to the disk.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        try:
            from bricks.backends.onnxruntime.backend import OnnxRuntimeBackend
        except ImportError as exc:
            raise BackendError(f"onnxruntime cannot be imported ({exc}): reinstall it") from exc

        return OnnxRuntimeBackend(
            threads=threads, seed=seed, workers=workers, optimization=optimization
        )
    if name in ("mxnet", "mxnet-unfused"):
        # The library reads these variables when it is loaded.
        os.environ["OMP_NUM_THREADS"] = str(threads)
        os.environ["MXNET_ENGINE_TYPE"] = "NaiveEngine"
        try:
            from bricks.backends.mxnet.backend import MxnetBackend
        except ImportError as exc:
            raise BackendError(
                f"mxnet cannot be imported ({exc}): bricks backends install mxnet"
            ) from exc

        return MxnetBackend(seed=seed, fuse=name == "mxnet")
    if name in _PRECISIONS:
        try:
            from bricks.backends.openvino.backend import OpenvinoBackend
        except ImportError as exc:
            raise BackendError(
                f"openvino cannot be imported ({exc}): bricks backends install openvino"
            ) from exc

        return OpenvinoBackend(threads=threads, seed=seed, precision=_PRECISIONS[name])
    if name in _PROGRAMS:
        # The libraries read these variables when they are loaded.
        os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = str(threads)
        try:
            from bricks.backends.torch.backend import TorchBackend
        except ImportError as exc:
            raise BackendError(
                f"torch cannot be imported ({exc}): bricks backends install torch"
            ) from exc

        return TorchBackend(threads=threads, seed=seed, compiled=name == "torch-compiled")
    return catalogue.create(
        _added(name), name, threads=threads, seed=seed, workers=workers, optimization=optimization
    )
