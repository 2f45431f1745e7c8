"""The processor: model, instruction sets, caches, cores, read from ``/proc`` and ``/sys``.

Reading the files directly takes about a millisecond. py-cpuinfo knows more platforms but starts
processes and times the clock, which takes a second or more, so it is used only where
``/proc/cpuinfo`` doesn't exist. A fact that can't be read is None, never guessed. Must not know
limits on a process. Functions take the root of the file system, so that tests can provide one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bricks.system.limits import read_int, read_text

# Flags that name instruction sets. The kernel adds synthetic flags (such as "nonstop_tsc"), more
# with each release: an update must not turn a host into another system.
_INSTRUCTION_SET = re.compile(
    r"(mmx|sse|ssse|pni$|fma|f16c|avx|amx|aes|vaes|pclmul|vpclmul|gfni|sha|bmi|abm$|adx$|popcnt"
    r"|movbe|xop|neon|asimd|sve|sme(\d|_|$)|fp$|fphp|crc32|atomics|bf16|i8mm|vfp|pmull|fcma)"
)
_NOTABLE = re.compile(
    r"(sse4_2$|avx$|avx2$|fma$|f16c$|avx512|avx_vnni|amx|neon$|asimd|sve|sme(\d|_|$)|bf16|i8mm)"
)


@dataclass(frozen=True, slots=True)
class Processor:
    """Facts about the first processor; they do not distinguish hosts whose processors differ.

    ``family``, ``model`` and ``stepping`` are as written by the platform: on Arm they are
    architecture, part and variant with revision.
    """

    name: str | None = None
    vendor: str | None = None
    family: str | None = None
    model: str | None = None
    stepping: str | None = None
    microcode: str | None = None
    flags: frozenset[str] = frozenset()
    cache_bytes: tuple[tuple[str, int | None], ...] = (("L1d", None), ("L2", None), ("L3", None))

    @property
    def instruction_sets(self) -> tuple[str, ...]:
        """The flags that name instructions, sorted."""
        return tuple(sorted(flag for flag in self.flags if _INSTRUCTION_SET.match(flag)))

    @property
    def virtual(self) -> bool | None:
        """Whether a hypervisor reports itself; None on processors that have no such flag."""
        return "hypervisor" in self.flags if "fpu" in self.flags else None

    @property
    def notable(self) -> tuple[str, ...]:
        """The instruction sets that decide how fast kernels for deep learning can be, sorted."""
        return tuple(flag for flag in self.instruction_sets if _NOTABLE.match(flag))


def read_processor(root: Path = Path("/")) -> Processor:
    """The facts about the processor that can be read."""
    text = read_text(root / "proc/cpuinfo")
    if text is None:
        return _from_py_cpuinfo()
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            facts.setdefault(key.strip(), value.strip())
    variant, revision = facts.get("CPU variant"), facts.get("CPU revision")
    arm_stepping = f"{variant}r{revision}" if variant and revision else None
    return Processor(
        name=facts.get("model name"),
        vendor=facts.get("vendor_id") or facts.get("CPU implementer"),
        family=facts.get("cpu family") or facts.get("CPU architecture"),
        model=facts.get("model") or facts.get("CPU part"),
        stepping=facts.get("stepping") or arm_stepping,
        microcode=facts.get("microcode"),
        flags=frozenset((facts.get("flags") or facts.get("Features") or "").split()),
        cache_bytes=_caches(root),
    )


def count_cores(cpus: Collection[int], root: Path = Path("/")) -> int | None:
    """Physical cores of the logical processors ``cpus``; None if the platform doesn't say."""
    cores = set()
    for cpu in cpus:
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = read_text(topology / "thread_siblings_list")
        if siblings is None:
            return None
        cores.add(siblings)
    return len(cores) or None


def _caches(root: Path) -> tuple[tuple[str, int | None], ...]:
    sizes: dict[str, int] = {}
    for index in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*"):
        level, kind = read_int(index / "level"), read_text(index / "type")
        match = re.fullmatch(r"(\d+)([KMG]?)", read_text(index / "size") or "")
        size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else None
        if level is not None and kind in ("Data", "Unified") and size is not None:
            sizes["L1d" if level == 1 else f"L{level}"] = size
    return tuple((name, sizes.get(name)) for name in ("L1d", "L2", "L3"))


def _from_py_cpuinfo() -> Processor:
    import cpuinfo  # slow, and needed on few platforms

    try:
        facts: Mapping[str, Any] = cpuinfo.get_cpu_info()
    except Exception:  # py-cpuinfo raises bare Exception on platforms that it doesn't know
        return Processor()

    def text(key: str) -> str | None:
        return str(facts[key]) if facts.get(key) not in (None, "") else None

    def size(key: str) -> int | None:
        value = facts.get(key)
        return value if isinstance(value, int) and value > 0 else None

    return Processor(
        name=text("brand_raw"),
        vendor=text("vendor_id_raw"),
        family=text("family"),
        model=text("model"),
        stepping=text("stepping"),
        flags=frozenset(facts.get("flags") or ()),
        cache_bytes=(
            ("L1d", size("l1_data_cache_size")),
            ("L2", size("l2_cache_size")),
            ("L3", size("l3_cache_size")),
        ),
    )
