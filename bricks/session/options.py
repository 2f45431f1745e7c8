"""The options of a bench: checked, and converted into the settings of its parts.

Here so that every part gets valid settings, and the target that they describe on a host. Must not
know how the parts use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bricks import backends
from bricks.backends.catalogue import RuntimeVersion
from bricks.compose.schedule import Rule, anything
from bricks.decompose.granularity import Granularity
from bricks.errors import UsageError, suggestion
from bricks.graph.form import ModelForm
from bricks.measure.conditions import GRAPH_TIMEOUT_S, Conditions
from bricks.predict.effort import EFFORTS, Effort
from bricks.session.defaults import (
    EFFORT,
    GRANULARITY,
    MAX_COPIES,
    MAX_THREADS,
    MAX_WORKERS,
    OPTIMIZATION,
    RUNTIME,
)
from bricks.system import Runtime, System, Target, available_memory_bytes, physical_cores
from bricks.system.accelerator import CPU
from bricks.system.allocator import KEPT, allocator_settings

if TYPE_CHECKING:
    from bricks.backends import BackendInfo
    from bricks.measure.supervisor import WorkerSettings

# States of a device's cache in which kernels are timed: run again and again, and evicted.
DISPLACED_BYTES = 0, 1 << 28

# Bytes of weights that may be loaded together even if memory is scarce.
_MIN_WEIGHT_BYTES = 512 << 20

# The share of the available memory that a worker may take, unless the options say otherwise.
_MEMORY_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a bench. ``threads`` None means one per physical core.

    ``copies`` of a model run at once on the host, each with ``threads``; None then means the cores
    that each copy has to itself.

    ``seed`` decides synthetic weights and inputs, and is not part of any key. ``retry`` measures
    again bricks that failed before; ``memory_bytes`` limits the worker (default: while measuring,
    twice the weights of the largest model and its largest weight, and 1 GiB; never more than nine
    tenths of the available memory). ``graph_timeout_s`` limits the time for learning a model's
    graph; the default grows with the size of the model (``measure.protocol.models``).

    ``effort`` says how much is measured: ``full`` all bricks, ``balanced`` and ``quick`` those that
    matter most to the models, while the others are predicted (``predict.effort.EFFORTS``).

    ``optimization`` is the runtime's graph optimization, one of ``BackendInfo.levels``.

    ``workers`` is how many nodes of a model run at the same time, each with ``threads``;
    ``may_overlap`` says which of them may (:mod:`bricks.compose.schedule`). Bricks are measured
    one at a time, whatever both say.

    ``published`` lets predictions use the measurements that ship with the package; they never
    replace measuring a brick.

    ``version`` is another version of the runtime than the installed one, which
    :class:`~bricks.backends.catalogue.RuntimeVersion` has installed.

    With ``repeat_inputs``, all runs have the same inputs, which processors learn.

    ``device`` runs the models: ``cpu``, or ``cuda`` for the first GPU of the host.
    ``python`` is the path of the user's Python that runs the runtime, ``bricks`` for the installed
    one; None: see :mod:`~bricks.backends.users_python`.
    ``elsewhere`` asks about other hosts only, so the runtime need not be installed on this one.

    Without ``keep_plans``, models that are decomposed leave nothing in the cache; their bricks can
    then be predicted, not measured.
    """

    runtime: str = RUNTIME
    granularity: str = GRANULARITY
    threads: int | None = None
    copies: int = 1
    seed: int = 0
    conditions: Conditions = field(default_factory=Conditions)
    retry: bool = False
    memory_bytes: int | None = None
    graph_timeout_s: float = GRAPH_TIMEOUT_S
    workers: int = 1
    may_overlap: Rule = anything
    effort: str = EFFORT
    optimization: str = OPTIMIZATION
    published: bool = True
    keep_plans: bool = True
    version: str | None = None
    device: str = CPU
    python: str | None = None
    elsewhere: bool = False
    repeat_inputs: bool = False


def described(options: Options) -> BackendInfo:
    """The facts about the runtime that ``options`` name; an error if it is not installed."""
    if options.elsewhere:
        return backends.describe_elsewhere(options.runtime)
    if options.version is None:
        return backends.describe(options.runtime, options.device, options.python)
    if options.device != CPU:
        raise UsageError("versions are compared on the processor: leave out --device")
    return RuntimeVersion(options.runtime, options.version).describe(options.python)


def effort_of(options: Options) -> Effort:
    """The effort that ``options`` name; :class:`UsageError` if there is none."""
    if options.effort not in EFFORTS:
        meant = suggestion(options.effort, EFFORTS, "give one of")
        raise UsageError(f"there is no effort {options.effort!r}: {meant}")
    return EFFORTS[options.effort]


def runtime_of(options: Options, info: BackendInfo) -> Runtime:
    """The requested runtime; :class:`UsageError` if it does not support the options."""
    granularity = Granularity.parse(options.granularity)
    copies, threads = options.copies, options.threads
    if not 1 <= copies <= MAX_COPIES:
        raise UsageError(f"{copies} copies cannot be had: give 1 to {MAX_COPIES}")
    if copies > 1 and options.device != CPU:
        raise UsageError("copies share the cores of a processor: leave out --copies or --device")
    if threads is None:
        threads = max(1, physical_cores() // copies)
    if not 1 <= threads <= MAX_THREADS:
        raise UsageError(f"{threads} threads cannot be had: give 1 to {MAX_THREADS}")
    workers = options.workers
    if not 1 <= workers <= MAX_WORKERS:
        raise UsageError(f"{workers} workers cannot be had: give 1 to {MAX_WORKERS}")
    if workers > 1 and not info.parallel:
        raise UsageError(f"runtime {info.name} runs one node at a time: give --workers 1")
    if workers > 1 and not granularity.executed:
        raise UsageError(
            f"{workers} workers run executed nodes side by side, not bricks of granularity"
            f" {granularity}: give --granularity executed"
        )
    level = options.optimization
    if level not in info.levels:
        meant = suggestion(level, info.levels, "give one of")
        raise UsageError(f"runtime {info.name} has no optimisation {level!r}: {meant}")
    programs = backends.offer(info.name).accepts is ModelForm.PROGRAMS
    return Runtime(
        backend=info.name,
        version=info.version,
        provider=info.provider,
        threads=threads,
        brick_optimization=info.brick_optimization or ("none" if granularity.executed else level),
        optimization=level,
        build=info.build,
        allocator=(allocator_settings() or KEPT) if programs else None,
        copies=copies,
        python=info.python_version,
        repeat_inputs=options.repeat_inputs,
    )


def conditions_of(options: Options, info: BackendInfo, target: Target) -> Conditions:
    """The measuring conditions on ``target``."""
    given = options.conditions
    return replace(
        given,
        exclusive=info.timed and given.exclusive,
        max_eviction_bytes=_max_eviction_bytes(target, given.max_eviction_bytes),
        # A tenth of the available memory, if that is less; never below a minimum.
        max_weight_bytes=min(
            given.max_weight_bytes, max(_MIN_WEIGHT_BYTES, available_memory_bytes() // 10)
        ),
        displaced_bytes=() if target.system.accelerator is None else DISPLACED_BYTES,
    )


def _max_eviction_bytes(target: Target, max_bytes: int) -> int:
    """Twice the size of all caches, or ``max_bytes`` if that is less or they are unknown.

    The caches of an accelerator have states of their own, which no read sets.
    """
    if target.system.accelerator is not None:
        return 0
    sizes: Mapping[str, int | None] = target.system.identity["cache_bytes"]
    known = [size for size in sizes.values() if size is not None]
    return min(max_bytes, 2 * sum(known)) if known else max_bytes


@dataclass(frozen=True, slots=True)
class Setup:
    """Checked ``options``; ``info`` describes their runtime, ``target`` is that on one system."""

    options: Options
    info: BackendInfo
    granularity: Granularity
    effort: Effort
    target: Target
    conditions: Conditions

    @classmethod
    def of(cls, options: Options, system: System) -> Setup:
        """The setup of ``options`` on ``system``; :class:`UsageError` for invalid options."""
        granularity = Granularity.parse(options.granularity)
        effort = effort_of(options)
        info = described(options)
        accelerator = backends.on_device(options.runtime, options.device).accelerator()
        if accelerator is not None:
            system = system.with_accelerator(accelerator)
        target = Target(system, runtime_of(options, info))
        return cls(options, info, granularity, effort, target, conditions_of(options, info, target))

    def named(self, system: System) -> Setup:
        """This setup with ``system``, the same system under its name in a cache."""
        return replace(self, target=replace(self.target, system=system))

    @property
    def memory_bytes(self) -> int:
        """The most memory in bytes that a worker may take for its data."""
        return self.options.memory_bytes or int(available_memory_bytes() * _MEMORY_SHARE)

    @property
    def worker_settings(self) -> WorkerSettings:
        """The settings of workers that run bricks and models of the target's runtime."""
        from bricks.measure.supervisor import Freed, WorkerSettings

        runtime = self.target.runtime
        return WorkerSettings(
            self.info.name,
            runtime.threads,
            self.options.seed,
            self.memory_bytes,
            workers=self.options.workers,
            optimization=self.options.optimization,
            freed=Freed.KEPT if runtime.allocator == KEPT else None,
            python=self.info.python,
            device=self.options.device,
            repeat_inputs=self.options.repeat_inputs,
        )
