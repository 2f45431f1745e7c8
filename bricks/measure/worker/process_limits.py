"""Limits how much memory this process may take for data (``RLIMIT_DATA``), in the worker.

With a limit, a brick or a model that is too large fails by itself, before the kernel starts to kill
processes. A platform without such a limit limits nothing. It must not know the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import onnx

from bricks.measure.allowance import allowed_bytes


def limit_memory(memory_bytes: int | None) -> None:
    """Limit this process's data to ``memory_bytes``; None: no limit."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        soft = resource.RLIM_INFINITY if memory_bytes is None else memory_bytes
        resource.setrlimit(resource.RLIMIT_DATA, (soft, resource.RLIM_INFINITY))


def data_bytes() -> int | None:
    """Bytes of data of this process, as its limit counts them; None if the system has no count."""
    with suppress(OSError):
        match = re.search(r"VmData:\s+(\d+) kB", Path("/proc/self/status").read_text("ascii"))
        return None if match is None else int(match[1]) << 10
    return None


@contextmanager
def memory_limited_for(proto: onnx.ModelProto) -> Iterator[None]:
    """Limit work on ``proto`` to memory by its size, in addition to the data held already."""
    before_bytes = data_bytes()
    try:
        import resource

        before = resource.getrlimit(resource.RLIMIT_DATA)[0]
    except ImportError:
        before_bytes = None
    if before_bytes is None:  # not Linux: the system has no count
        yield
        return
    limit_bytes = before_bytes + allowed_bytes(proto)
    limited = before == resource.RLIM_INFINITY or limit_bytes < before
    try:
        if limited:
            limit_memory(limit_bytes)
        yield
    finally:
        if limited:
            limit_memory(None if before == resource.RLIM_INFINITY else before)
