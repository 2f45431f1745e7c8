"""The memory allocator that processes started from here get, by what the environment says of it.

Programs that allocate each result run at another speed with another allocator, so it belongs to
their target. Must not know which runtimes these are.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import PurePath

# The C library's allocator, told to keep freed memory: what workers that time programs get, unless
# the environment says otherwise. By default it gives memory back and takes it again, as the heap
# happens to lie, so that a step takes another time in each process (docs/torch.md).
KEPT = "kept"

# Allocators that take the place of the C library's when they are loaded before it.
_LIBRARIES = re.compile(r"lib(jemalloc|tcmalloc\w*|mimalloc\w*|hoard|tbbmalloc\w*)")
_VARIABLES = ("MALLOC_CONF", "GLIBC_TUNABLES")


def allocator_settings(environment: Mapping[str, str] | None = None) -> str | None:
    """The settings in one line, as ``jemalloc`` or ``MALLOC_ARENA_MAX=1``; None: there are none.

    Variables that no allocator reads do not count.
    """
    given = os.environ if environment is None else environment
    found = []
    for path in re.split(r"[:\s]+", given.get("LD_PRELOAD", "")):
        library = _LIBRARIES.match(PurePath(path).name)
        if library:
            found.append(library[1])
    for name in sorted(given):
        if (name.startswith("MALLOC_") and name.endswith("_")) or name == "MALLOC_ARENA_MAX":
            found.append(f"{name}={given[name]}")
        elif name in _VARIABLES:
            parts = given[name].split(":" if name == "GLIBC_TUNABLES" else ",")
            kept = sorted(p for p in parts if name != "GLIBC_TUNABLES" or "malloc" in p)
            found += [f"{name}={part}" for part in kept if part]
    return " ".join(found) or None
