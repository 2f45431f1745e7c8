"""The memory allocator of child processes, which environment variables choose and configure.

Programs that allocate each result run at another speed with another allocator, so it belongs to
their target. Must not know which runtimes these are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePath

# The C library's allocator, configured to keep freed memory: the allocator of workers that time
# programs, unless the environment configures another one. By default it returns memory to the
# system depending on the layout of the heap, so that the latency of a step differs between
# processes (research/torch.md).
KEPT = "kept"

# Allocators that take the place of the C library's when they are loaded before it.
_LIBRARIES = re.compile(r"lib(jemalloc|tcmalloc\w*|mimalloc\w*|hoard|tbbmalloc\w*)")
# The variable of the C library's settings, and those that keep freed memory: one heap (large pages
# would cost more to fill than they save).
TUNABLES = "GLIBC_TUNABLES"
KEPT_TUNABLES = (
    "glibc.malloc.mmap_max=0",
    f"glibc.malloc.trim_threshold={1 << 40}",
    f"glibc.malloc.top_pad={64 << 20}",
)

_VARIABLES = ("MALLOC_CONF", TUNABLES)


def allocator_settings(environment: Mapping[str, str] | None = None) -> str | None:
    """The settings in one line, as ``jemalloc`` or ``MALLOC_ARENA_MAX=1``; None: the defaults.

    Variables that no allocator reads are ignored.
    """
    variables = os.environ if environment is None else environment
    settings = []
    for path in re.split(r"[:\s]+", variables.get("LD_PRELOAD", "")):
        library = _LIBRARIES.match(PurePath(path).name)
        if library:
            settings.append(library[1])
    for name in sorted(variables):
        if (name.startswith("MALLOC_") and name.endswith("_")) or name == "MALLOC_ARENA_MAX":
            settings.append(f"{name}={variables[name]}")
        elif name in _VARIABLES:
            parts = variables[name].split(":" if name == TUNABLES else ",")
            read = sorted(p for p in parts if name != TUNABLES or "malloc" in p)
            settings += [f"{name}={part}" for part in read if part]
    return " ".join(settings) or None
