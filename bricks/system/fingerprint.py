"""The fingerprint of this host: the facts that make its latencies comparable with one another.

``identity`` holds facts that determine how fast a brick runs and that stay constant from day to
day; two hosts with the same identity share measurements. ``recorded`` holds facts that may explain
a difference but change with updates and settings. Neither holds the name of the host, an address or
a user, because a fingerprint is published with results. Must not know runtimes or models.
"""

from __future__ import annotations

import math
import os
import platform
import re
from pathlib import Path
from typing import Any

from bricks.system.limits import (
    cpu_period_s,
    cpu_quota,
    logical_cpus,
    memory_limits,
    read_int,
    read_text,
)
from bricks.system.processor import Processor, count_cores, read_processor
from bricks.system.target import System, digest_of

_GIB = 1 << 30
ROOT = Path("/")


def fingerprint(name: str | None = None) -> System:
    """This host, called ``name``; by default after processor and cores (``amd-epyc-zen5-2c``).

    Under a quota of fewer processors than cores, the name has the quota (``amd-epyc-zen5-0.5c``).
    Takes milliseconds on Linux and up to seconds elsewhere. A fact that can't be read is None.
    """
    cpus = logical_cpus()
    processor = read_processor(ROOT)
    cores = count_cores(cpus, ROOT) or _counted_cores()
    quota = cpu_quota(ROOT)
    available = min(quota or math.inf, cores or len(cpus))
    return System(
        name=name or _default_name(processor, available),
        identity=_identity(processor, cores, len(cpus)),
        recorded=_recorded(processor, ROOT),
    )


def physical_cores() -> int:
    """Physical cores that this process may use, at least 1: the default number of threads.

    Affinity limits them, and so does the processor quota of a container, rounded down: a thread
    that waits for its quota would be measured as slow.
    """
    cpus = logical_cpus()
    cores = count_cores(cpus, ROOT) or _counted_cores() or len(cpus)
    quota = cpu_quota(ROOT)
    allowed = cores if quota is None else min(cores, int(quota))
    return max(1, min(allowed, len(cpus)))


def available_memory_bytes() -> int:
    """Bytes that can be allocated now without swapping and within the limits of a container."""
    free = [limit.limit_bytes - limit.used_bytes for limit in memory_limits(ROOT)]
    return max(0, min([_memory_bytes(ROOT, "Available"), *free]))


def _counted_cores() -> int | None:
    """Physical cores of the host, on platforms without ``/sys``."""
    try:
        import psutil  # not part of what runs where nothing can be installed
    except ImportError:
        return None
    return psutil.cpu_count(logical=False)


def _memory_bytes(root: Path, which: str) -> int:
    """Bytes of the host's memory: ``Total``, or ``Available`` now without swapping."""
    text = read_text(root / "proc/meminfo") or ""
    known = re.search(rf"^Mem{which}: *([0-9]+) kB", text, re.M)
    if known is not None:
        return int(known[1]) << 10
    import psutil  # other platforms

    return int(getattr(psutil.virtual_memory(), which.lower()))


def _identity(processor: Processor, cores: int | None, logical: int) -> dict[str, Any]:
    total = _memory_bytes(ROOT, "Total")
    limits = [limit.limit_bytes for limit in memory_limits(ROOT) if limit.limit_bytes < total]
    sets = processor.instruction_sets
    return {
        "cpu": processor.name,
        "cpu_vendor": processor.vendor,
        "cpu_family": processor.family,
        "cpu_model": processor.model,
        "cpu_stepping": processor.stepping,
        "instruction_sets": list(processor.notable),
        "instruction_sets_digest": digest_of({"flags": sets}) if sets else None,
        "cache_bytes": dict(processor.cache_bytes),
        "physical_cores": cores,
        "logical_cpus": logical,
        "cpu_quota": cpu_quota(ROOT),
        # Rounded: firmware and kernel each reserve a little memory, in varying amounts.
        "memory_gib": round(total / _GIB),
        "memory_limit_gib": round(min(limits) / _GIB, 1) if limits else None,
        "architecture": platform.machine() or None,
        "os": platform.system() or None,
    }


def _recorded(processor: Processor, root: Path) -> dict[str, Any]:
    cpu = root / "sys/devices/system/cpu"
    max_khz = read_int(cpu / "cpu0/cpufreq/cpuinfo_max_freq")
    period_s = cpu_period_s(root)
    return {
        **({} if period_s is None else {"cpu_period_s": period_s}),
        "kernel": platform.release() or None,
        "governor": read_text(cpu / "cpu0/cpufreq/scaling_governor"),
        "turbo": _turbo(cpu),
        "max_frequency_hz": max_khz * 1000 if max_khz else None,
        "simultaneous_multithreading": read_text(cpu / "smt/control"),
        "hypervisor": processor.virtual,
        "microcode": processor.microcode,
        "host_logical_cpus": os.cpu_count(),
    }


def _turbo(cpu: Path) -> bool | None:
    """Whether clocks above nominal are allowed, from one of two files; None if unknown."""
    boost = read_int(cpu / "cpufreq/boost")
    if boost is not None:
        return boost == 1
    no_turbo = read_int(cpu / "intel_pstate/no_turbo")
    return None if no_turbo is None else no_turbo == 0


def _default_name(processor: Processor, cores: float) -> str:
    text = processor.name or platform.machine() or "unknown"
    text = re.sub(r"\((r|tm|c)\)", " ", text.lower())
    text = re.sub(r"@.*|\b\d+-core\b|\bwith\b.*|\b(cpu|processor)\b", " ", text)
    slug = re.sub(r"[^a-z0-9]+", "-", text).strip("-")[:40].strip("-") or "unknown"
    # A virtual machine may say no more than the brand, whichever processor it runs on.
    numbered = re.search(r"\d", slug) is not None
    generation = None if numbered else _generation(processor)
    return f"{slug}-{generation}-{cores:.3g}c" if generation else f"{slug}-{cores:.3g}c"


def _generation(processor: Processor) -> str | None:
    """The generation of a processor, as ``zen4``; None if its family or model is unknown."""
    try:
        family, model = int(processor.family or ""), int(processor.model or "")
    except ValueError:
        return None
    if processor.vendor == "AuthenticAMD":
        # Zen 3 and 4 share a family: AMD's revision guides list the models of each.
        if family == 25:
            return "zen4" if 0x10 <= model <= 0x1F or model >= 0x60 else "zen3"
        if family == 26:
            return "zen5"
    return f"{family}-{model}"
