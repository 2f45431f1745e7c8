"""The target of a measurement: a system (the host) and a runtime.

Each measurement belongs to exactly one target. Must not know how facts are read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any

from bricks.system.accelerator import ACCELERATOR, Accelerator
from bricks.system.limits import PERIOD_S, Quota


def digest_of(facts: Mapping[str, Any]) -> str:
    """First 16 hexadecimal digits of the SHA-256 of ``facts`` as canonical JSON."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def differing(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The facts in which two mappings differ: by name, both values, None for a missing one."""
    return {
        name: (first.get(name), second.get(name))
        for name in dict.fromkeys([*first, *second])
        if first.get(name) != second.get(name)
    }


def checked_price(price: float) -> float:
    """``price`` as a number; ValueError unless it is a valid price."""
    if isinstance(price, bool) or not isinstance(price, int | float):
        raise ValueError(f"the price {price!r} is no number")
    if not (math.isfinite(price) and price >= 0):
        raise ValueError(f"the price {price!r} cannot be paid")
    return float(price)


@dataclass(frozen=True)  # without slots: the key is cached
class System:
    """Fingerprint of a host. ``identity`` decides which system it is; ``recorded`` doesn't.

    ``price_per_hour`` is the price of one host of this kind, in any currency.
    """

    name: str
    identity: Mapping[str, Any]
    recorded: Mapping[str, Any]
    price_per_hour: float | None = None

    @cached_property
    def key(self) -> str:
        """``s1-`` and a digest of the identity."""
        return "s1-" + digest_of(self.identity)

    @property
    def processors(self) -> float:
        """Logical processors available to threads; a container's quota may be a fraction of one."""
        logical, quota = self.identity["logical_cpus"], self.identity["cpu_quota"]
        return float(logical if quota is None else min(logical, quota))

    @property
    def most_threads(self) -> int:
        """Threads that run at once without taking turns; one under a :attr:`quota`."""
        return max(1, int(self.processors))

    @property
    def quota(self) -> Quota | None:
        """The quota below one processor, under which a thread stops; None if no thread does."""
        if self.identity.get("cpu_quota") is None or self.processors >= 1:
            return None
        return Quota(self.processors, self.recorded.get("cpu_period_s") or PERIOD_S)

    @property
    def accelerator(self) -> Accelerator | None:
        """The GPU of the host whose times are measured; None for a processor's times."""
        facts = self.identity.get(ACCELERATOR)
        return None if facts is None else Accelerator.from_json(facts)

    def with_accelerator(self, accelerator: Accelerator) -> System:
        """This host, if ``accelerator`` runs its models; called after the accelerator."""
        if self.accelerator == accelerator:
            return self
        identity = {**self.identity, ACCELERATOR: accelerator.to_json()}
        return replace(self, name=accelerator.slug, identity=identity)

    @property
    def vectors(self) -> tuple[str, str]:
        """The architecture and its widest vectors; without AVX, a digest of instruction sets."""
        sets = self.identity.get("instruction_sets") or ()
        widest = next((name for name in ("avx512f", "avx2", "avx") if name in sets), None)
        digest = str(self.identity.get("instruction_sets_digest"))
        return str(self.identity.get("architecture")), widest or digest

    def differences(self, other: System) -> dict[str, dict[str, tuple[Any, Any]]]:
        """Differing facts of ``identity`` and ``recorded``: by name, both values, or None."""
        return {
            "identity": differing(self.identity, other.identity),
            "recorded": differing(self.recorded, other.recorded),
        }

    def to_json(self) -> dict[str, Any]:
        """All fields of the system; an unknown price is omitted."""
        facts = {"key": self.key, **asdict(self)}
        if self.price_per_hour is None:
            del facts["price_per_hour"]
        return facts


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime that executes bricks: all fields that affect latency are its identity.

    ``build``, the installed package of this version, is not: it may only explain a difference.
    ``brick_optimization`` is the optimisation that the runtime applies to each brick: ``none``
    if bricks are nodes of an already optimised graph, ``all`` if they are pieces of the source
    graph. Whole models always run with all of ``optimization``: the runtime's levels are ``all``,
    ``extended``, ``basic`` and ``none``. ``allocator`` are the settings of the memory allocator if
    calls allocate their results. ``network`` is the key of the network between ranks if the runtime
    is a backend of collectives. ``copies`` of a model run at once on the host, each
    with ``threads`` and in a process of its own. ``python`` is the version of Python that runs
    programs, unless it is that of the runtime's own environment. With ``repeat_inputs``, all runs
    have the same inputs, which processors learn; otherwise those on which latencies depend change.
    """

    backend: str
    version: str
    provider: str
    threads: int
    brick_optimization: str
    optimization: str = "all"
    build: str | None = field(default=None, compare=False)
    allocator: str | None = None
    network: str | None = None
    copies: int = 1
    python: str | None = None
    repeat_inputs: bool = False

    def to_json(self) -> dict[str, Any]:
        """All fields of the runtime; an unknown ``build`` and the default level are omitted."""
        facts = self.identity
        return facts if self.build is None else {**facts, "build": self.build}

    @property
    def identity(self) -> dict[str, Any]:
        """The fields that identify the runtime."""
        facts = asdict(self)
        del facts["build"]
        defaults = {
            "optimization": "all", "allocator": None, "network": None, "copies": 1, "python": None,
            "repeat_inputs": False,
        }  # fmt: skip
        return {n: fact for n, fact in facts.items() if n not in defaults or fact != defaults[n]}


@dataclass(frozen=True)  # without slots: the key is cached
class Target:
    """A system and a runtime; each brick is measured once per target."""

    system: System
    runtime: Runtime

    def executes_like(self, other: Target, *, any_vectors: bool = False) -> bool:
        """Whether the runtime executes the same graph for a model on both targets.

        The graph depends on the runtime's version and optimisation and on the width of vectors, by
        which layouts are blocked, not on threads or copies. The plans of all shipped models are
        equal on three processors with AVX-512 that differ in everything else. With ``any_vectors``,
        the model is one whose layouts are not blocked: those are equal on processors with AVX2 too.
        """
        mine, theirs = (
            replace(
                t.runtime, threads=1, copies=1, allocator=None, python=None, repeat_inputs=False
            )
            for t in (self, other)
        )
        (architecture, vectors), (its, other_vectors) = self.system.vectors, other.system.vectors
        same = vectors == other_vectors or any_vectors
        return mine == theirs and architecture == its and same

    @cached_property
    def key(self) -> str:
        """``t1-`` and a digest of system and runtime."""
        return "t1-" + digest_of({"system": self.system.key, "runtime": self.runtime.identity})
