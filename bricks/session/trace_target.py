"""The target that a profiler's trace belongs to.

A profiler slows down the host, so its samples are never mixed with others: the target's system
has a fact of its own. A trace names its GPU, and little else of its host. Must not know what was
traced.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.errors import StoreError, UsageError
from bricks.system import Runtime, System, Target, fingerprint, physical_cores
from bricks.system.accelerator import ACCELERATOR, Accelerator
from bricks.system.cards import cards

if TYPE_CHECKING:
    from bricks.backends.offer import Offer
    from bricks.backends.profiler_trace import ProfilerTrace, TracedDevice
    from bricks.store import Reading

# The fact in a system's identity that its samples are a profiler's.
PROFILED = "profiled"
_CPU, _GPU, _UNKNOWN = "CPU", "CUDA", "unknown"


@dataclass(frozen=True, slots=True)
class TracedHost:
    """What a user says of the host of a trace: its name, threads, and the runtime's version."""

    name: str | None = None
    threads: int | None = None
    version: str | None = None


def trace_target(
    trace: ProfilerTrace, offer: Offer, host: TracedHost, known: Reading, path: object
) -> Target:
    """The target of a trace in file ``path``; :class:`UsageError` if its host must be named.

    A trace of this host or of a GPU needs no name. ``known`` has facts of GPUs.
    """
    if trace.device is not None:
        system, threads = _gpu(trace.device, host, known, path), host.threads or 1
    elif host.name is None and trace.host_name not in (None, platform.node()):
        raise UsageError(f"{path} is of another host: name it with --host")
    else:
        system, threads = _processor(host), host.threads or physical_cores()
    runtime = Runtime(
        backend=offer.name,
        version=host.version or _version(trace, offer),
        provider=_CPU if trace.device is None else _GPU,
        threads=threads,
        brick_optimization="none",
    )
    return Target(system, runtime)


def _version(trace: ProfilerTrace, offer: Offer) -> str:
    """The version of the runtime here for a trace of a processor; a trace does not have it."""
    if trace.device is not None or offer.environment is None or offer.package is None:
        return _UNKNOWN
    return offer.environment.pinned(offer.package)


def _processor(host: TracedHost) -> System:
    if host.name is not None:
        return System(host.name, _unknown_host(host), {})
    here = fingerprint()
    return System(f"{here.name}-{PROFILED}", {**here.identity, PROFILED: True}, here.recorded)


def _gpu(device: TracedDevice, host: TracedHost, known: Reading, path: object) -> System:
    card = _accelerator(device, known, path)
    words = "-".join(device.name.lower().split())
    name = host.name or f"{words}-{PROFILED}"
    return System(name, {**_unknown_host(host), ACCELERATOR: card.to_json()}, {})


def _accelerator(device: TracedDevice, known: Reading, path: object) -> Accelerator:
    """The facts of a GPU of this name, from a known system or from its datasheet."""
    measured = (target.system.accelerator for target in known.systems.targets())
    published = (card.accelerator for card in cards())
    for accelerator in (*measured, *published):
        if accelerator is not None and accelerator.name == device.name:
            return accelerator
    raise StoreError(
        f"{path} is of {device.name}, and no facts of this GPU are known; nothing was imported"
    )


def _unknown_host(host: TracedHost) -> dict[str, Any]:
    """The identity of a host that is known by name alone."""
    unknown = (
        "cpu", "cpu_vendor", "cpu_family", "cpu_model", "cpu_stepping", "instruction_sets_digest",
        "physical_cores", "cpu_quota", "memory_gib", "memory_limit_gib", "architecture", "os",
    )  # fmt: skip
    facts: dict[str, Any] = dict.fromkeys(unknown)
    facts |= {"instruction_sets": [], "cache_bytes": {}, "logical_cpus": host.threads or 1}
    return {**facts, "host": host.name, PROFILED: True}
