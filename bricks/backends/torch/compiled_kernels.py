"""Kernels of PyTorch's compiler (Inductor): watched in a recorded step, and replayed.

A compiled program calls C++ functions that no dispatcher sees; watching forwards each call to the
recorder. Their source does not travel, because a host must not run foreign code. It stays in the
data folder of this user under its digest, which a brick holds in its place. The compiled binary
stays there too, for other processes. Must not know how calls are recorded.
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

# The name of a kernel's file: a brick of another host must not name other files.
_KEY = re.compile(r"[0-9a-f]{32}")
# The most specialisations of one function; PyTorch runs further ones without compiling.
_SPECIALISATIONS = 64

# Called with a kernel's digest, the C types of its arguments, and the arguments.
Watcher = Callable[[str, Sequence[str], Sequence[Any]], None]


class WatchedKernel:
    """A kernel that reports its calls to the watcher, if there is one."""

    watcher: Watcher | None = None

    def __init__(self, kernel: Callable[..., None], key: str, types: Sequence[str]) -> None:
        self._kernel, self._key, self._types = kernel, key, tuple(types)

    def __call__(self, *arguments: Any) -> None:
        """Run the kernel."""
        self._kernel(*arguments)
        if WatchedKernel.watcher is not None:
            WatchedKernel.watcher(self._key, self._types, arguments)


@contextmanager
def kernels_kept() -> Iterator[None]:
    """Meanwhile, keep the source of compiled kernels by its digest, and make them watchable."""
    compiler = inductor().async_compile.AsyncCompile
    original = compiler.cpp_pybinding

    def kept(self: Any, types: Sequence[str], source: str) -> WatchedKernel:
        kernel = original(self, types, source)
        content = json.dumps([list(types), source]).encode()
        key = _digest(content)
        folder = root().parent / "kernels"
        path = folder / f"{key}.json"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_bytes(content)
            partial.replace(path)
        return WatchedKernel(kernel, key, types)

    compiler.cpp_pybinding = kept
    try:
        yield
    finally:
        compiler.cpp_pybinding = original


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Meanwhile, report calls of kept kernels to ``watcher``."""
    WatchedKernel.watcher = watcher
    try:
        yield
    finally:
        WatchedKernel.watcher = None


def compiled(module: torch.nn.Module) -> Callable[..., Any]:
    """Compile a module with torch.compile; its first call must come from this thread."""
    inductor()
    # Settings are per thread.
    torch._dynamo.config.cache_size_limit = _SPECIALISATIONS
    callable_: Callable[..., Any] = torch.compile(module, dynamic=False)
    return callable_


def inductor() -> Any:
    """Import Inductor before a user's program may, with settings that it reads at import."""
    folder = root().parent / "compiled"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    os.environ |= {
        # A pool of processes would disturb timing.
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        # This process must compile what it records.
        "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        "TORCHINDUCTOR_CACHE_DIR": str(folder),
    }
    import torch._inductor.async_compile
    from torch._inductor import codecache

    # By default precompiled headers are temporary files, which are deleted with a worker.
    codecache._HEADER_DIR = str(folder / "headers")
    codecache._HEADER_LOCK_DIR = str(folder / "headers" / "locks")
    return torch._inductor


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:32]


def kept_kernel(key: str) -> Callable[..., None]:
    """Load the kernel with this digest; :class:`BackendError` if it was never compiled here."""
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
    except Exception as exc:  # a compiler may raise anything
        raise BackendError(f"the kernel {key} does not compile: {first_line(exc, 200)}") from exc
    return kernel
