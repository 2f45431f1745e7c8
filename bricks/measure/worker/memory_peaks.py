"""Peaks of this process's resident memory while a model is loaded and run, in the worker.

All pages of mapped weights count, even those that these inputs do not touch. The C library of this
process should return freed memory at once (``measure.worker_process.Freed``), so that only memory
of the runtime counts. It must not know the model.
"""

from __future__ import annotations

import ctypes
import gc
import re
from pathlib import Path

from bricks.backends.base import StandaloneModel
from bricks.errors import WorkerError
from bricks.measure.worker.memory import release_freed_memory
from bricks.samples.memory_peaks import MemoryPeaks

_PROC = Path("/proc/self")

# Runs until memory has stopped growing: the third run already allocates no more.
RUNS = 4

_POPULATE_READ = 22  # the kernel's advice to bring in the pages of a mapping, from 5.14 on


def memory_peaks(model: StandaloneModel, folder: Path) -> MemoryPeaks:
    """Peaks in bytes above the memory before loading: while loading, and afterwards.

    ``folder`` has the model's files. Raises :class:`WorkerError` if the system does not report a
    process's peak.
    """
    gc.collect()
    release_freed_memory()
    before = _restart_peak()
    model.load()
    loading = _bytes("VmHWM") - before
    _bring_in(folder)
    _restart_peak()
    for _ in range(RUNS):
        model.run()
    return MemoryPeaks(loading, _bytes("VmHWM") - before)


def _restart_peak() -> int:
    """Reset the peak; resident bytes now."""
    try:
        (_PROC / "clear_refs").write_text("5", encoding="ascii")
    except OSError as exc:
        raise WorkerError(
            "this system does not let a process reset its peak of memory: use Linux, with /proc"
        ) from exc
    return _bytes("VmRSS")


def _bytes(name: str) -> int:
    match = re.search(rf"^{name}:\s+(\d+) kB", (_PROC / "status").read_text("ascii"), re.MULTILINE)
    if match is None:
        raise WorkerError(f"this system does not report {name} of a process: use Linux, with /proc")
    return int(match[1]) << 10


def _bring_in(folder: Path) -> None:
    """Make all pages resident that are mapped from files in ``folder``."""
    libc = ctypes.CDLL(None)
    for line in (_PROC / "maps").read_text("utf-8", errors="replace").splitlines():
        addresses, *_, path = line.split(maxsplit=5)
        if not path.startswith(f"{folder}/"):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        if libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _POPULATE_READ):
            ctypes.string_at(begin, end - begin)  # an older kernel: read them
