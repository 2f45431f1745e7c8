"""Kernels that PyTorch's compiler (Inductor) makes: watched in a recorded step, and run again.

A compiled program calls C++ functions that no dispatcher sees. While they are watched, each call
goes to the recorder. Their source does not travel: it would be foreign code for whoever measures.
It stays in the data folder of this user, under its digest, which is all that a brick holds. What
the C++ compiler makes of it stays there too, so that not every process compiles it again. Must not
know how calls are recorded.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bricks.errors import BackendError, first_line
from bricks.system.environments import root

# The name of a kernel's file: a brick from elsewhere must not name another one.
_KEY = re.compile(r"[0-9a-f]{32}")
# Specialisations of one function; after as many, PyTorch runs it without compiling.
_SPECIALISATIONS = 64

# Called with a kernel's digest, the C types of its arguments, and these.
Watcher = Callable[[str, Sequence[str], Sequence[Any]], None]


class WatchedKernel:
    """A kernel whose calls are told to a watcher while there is one."""

    watcher: Watcher | None = None

    def __init__(self, kernel: Callable[..., None], key: str, types: Sequence[str]) -> None:
        self._kernel, self._key, self._types = kernel, key, tuple(types)

    def __call__(self, *arguments: Any) -> None:
        """Run it."""
        self._kernel(*arguments)
        if WatchedKernel.watcher is not None:
            WatchedKernel.watcher(self._key, self._types, arguments)


@contextmanager
def kernels_kept() -> Iterator[None]:
    """Meanwhile, kernels that are compiled are kept by their digest, and can be watched."""
    compiler = inductor().async_compile.AsyncCompile
    original = compiler.cpp_pybinding

    def kept(self: Any, types: Sequence[str], source: str) -> WatchedKernel:
        kernel = original(self, types, source)
        return WatchedKernel(kernel, _keep(types, source), types)

    compiler.cpp_pybinding = kept
    try:
        yield
    finally:
        compiler.cpp_pybinding = original


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Meanwhile, calls of kernels that were kept are told to ``watcher``."""
    WatchedKernel.watcher = watcher
    try:
        yield
    finally:
        WatchedKernel.watcher = None


def compiled(module: torch.nn.Module) -> Callable[..., Any]:
    """The module as PyTorch's compiler runs it, if the first call comes from this thread."""
    inductor()
    # Settings of a thread, which others do not see.
    torch._dynamo.config.cache_size_limit = _SPECIALISATIONS
    made: Callable[..., Any] = torch.compile(module, dynamic=False)
    return made


def inductor() -> Any:
    """Inductor, with settings that it reads when it is imported: before a user's program may."""
    place = root().parent / "compiled"
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ |= {
        # A pool of processes would take time from what is timed.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # What is recorded is what this process compiled.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(place),
    }
    import torch._inductor.async_compile
    from torch._inductor import codecache

    # It keeps precompiled headers, too, but among temporary files, which end with a worker.
    codecache._HEADER_DIR = str(place / "headers")
    codecache._HEADER_LOCK_DIR = str(place / "headers" / "locks")
    return torch._inductor


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def _keep(types: Sequence[str], source: str) -> str:
    """Keep a kernel's source; its digest."""
    content = json.dumps([list(types), source]).encode()
    key = _digest(content)
    folder = root().parent / "kernels"
    path = folder / f"{key}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(content)
        written.replace(path)
    return key


def kept_kernel(key: str) -> Callable[..., None]:
    """The kernel with this digest; :class:`BackendError` where it was never compiled here."""
    if not _KEY.fullmatch(key):
        raise BackendError("a brick names a compiled kernel by no digest: record its program here")
    path = root().parent / "kernels" / f"{key}.json"
    try:
        content = path.read_bytes()
        if _digest(content) != key:
            raise ValueError("it was altered")
        types, source = json.loads(content)
    except (OSError, ValueError) as exc:
        raise BackendError(
            f"the compiled kernel {key} was not made on this host: record its program here"
        ) from exc
    try:
        bindings = inductor().codecache.CppPythonBindingsCodeCache
        kernel: Callable[..., None] = bindings.load_pybinding(types, source)
    except Exception as exc:  # whatever a compiler says
        raise BackendError(f"the kernel {key} does not compile: {first_line(exc, 200)}") from exc
    return kernel
