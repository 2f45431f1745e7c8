"""The walk: the bricks of a model to run, their order, and the memory of their values.

Bricks are not measured in loops of their own. They run in the order in which their model runs them,
at the addresses that their values have there, so that each brick finds the caches as its neighbours
leave them. Each brick is timed at a few of its occurrences, chosen by its use of the caches: long,
heavy or light. A few occurrences before each run too (the warm-up prefix), so that a brick that is
measured separately has neighbours. Occurrences with different weights in the model have different
weights in the walk. It must not know how steps are run, nor how many samples they get.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from bricks.decompose.plan import Brick, Plan, work_of
from bricks.decompose.stretches import SHORTEST
from bricks.measure.protocol.walking import AllocationEvent, allocation_events

if TYPE_CHECKING:
    from bricks.decompose.memory import Allocation

# Occurrences that run before each timed one where only a few bricks of a model are still timed.
# With fewer, the walk gets so short that it leaves the caches in another state than the whole walk
# (estimates rose by a percent).
LONG_PREFIX = 8


@dataclass(frozen=True, slots=True)
class Load:
    """A model to load: ``model`` is a serialised ``ModelProto`` without weights.

    A key may be loaded several times, as ``copy`` 0, 1 and so on, with ``weight_bytes`` of weights
    each. ``streams`` has the stream that each node runs on; empty: nodes run in sequence.
    ``folder`` has the model's own weights, which it gets where values decide how long it takes.
    """

    key: str
    model: bytes
    optimize: bool
    copy: int = 0
    weight_bytes: int = 0
    streams: tuple[int, ...] = ()
    folder: str = ""

    @property
    def name(self) -> str:
        """Its name, which is unique among all that is loaded."""
        return name_of(self.key, self.copy)


@dataclass(frozen=True, slots=True)
class WalkStep:
    """A loaded model with its inputs and outputs bound, under a ``name`` of its own.

    ``inputs`` and ``outputs`` are offsets in bytes into the shared region, or None for buffers of
    their own. The first output overwrites a value that the step ``overwritten`` makes; None: it
    overwrites none. ``position`` is the number of the occurrence in the plan, and ``weight`` how
    many occurrences the step stands for. A ``long`` step evicts the caches. A ``repeated`` step
    runs once untimed right before each sample.
    """

    name: str
    key: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    timed: bool
    overwritten: str | None = None
    position: int = 0
    copy: int = 0
    weight: float = 1.0
    long: bool = False
    repeated: bool = False

    @property
    def load(self) -> str:
        """The name of the :class:`Load` that it runs."""
        return name_of(self.key, self.copy)


def name_of(key: str, copy: int) -> str:
    """The name of copy number ``copy`` of the model ``key``."""
    return f"{key}/{copy}" if copy else key


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps in order, the models that they run, and the size of the region that they share.

    ``weight_bytes`` is the size of the whole model's weights. At most ``max_eviction_bytes`` are
    read in place of those that the walk leaves out. ``allocations`` are those of a recorded
    program of ``length`` occurrences, which passes tensors on by handle and not in the region.
    Steps use the parts ``used`` of the region, each with its offset and bytes; None: all of it.
    Before each step a device touches ``displaced_bytes`` of other memory; None: the steps decide.
    ``kernels`` is whether those that steps start there are timed.
    """

    loads: tuple[Load, ...]
    steps: tuple[WalkStep, ...]
    region_bytes: int = 0
    weight_bytes: int = 0
    max_eviction_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()
    length: int = 0
    used: tuple[tuple[int, int], ...] | None = None
    displaced_bytes: int | None = None
    kernels: bool = True

    @property
    def used_parts(self) -> tuple[tuple[int, int], ...]:
        """Offset and bytes of each part of the region that steps use."""
        return ((0, self.region_bytes),) if self.used is None else self.used

    def allocation_events(self, steps: Sequence[WalkStep]) -> list[list[AllocationEvent]]:
        """Allocations and frees before each of ``steps``; empty where memory is planned."""
        if not self.allocations:
            return []
        return allocation_events([step.position for step in steps], self.allocations, self.length)

    def eviction_bytes(self, steps: Iterable[WalkStep]) -> int:
        """Bytes to read before a pass over ``steps``, in place of weights that it leaves out."""
        run = {step.load for step in steps}
        loaded_bytes = sum(load.weight_bytes for load in self.loads if load.name in run)
        missing_bytes = max(0, self.weight_bytes - loaded_bytes)
        return min(missing_bytes, self.max_eviction_bytes) if missing_bytes >= HEAVY_BYTES else 0


def steps_for(
    steps: Sequence[WalkStep], keys: Collection[str], prefix_length: int = LONG_PREFIX
) -> list[WalkStep]:
    """The steps of ``steps`` that timing ``keys`` needs; steps of other keys are not timed."""
    timed = [step for step in steps if step.timed and step.key in keys]
    long = {step.position for step in steps if step.long}
    positions: set[int] = set()
    for step in timed:
        positions.add(step.position)
        for position in range(step.position - 1, step.position - 1 - prefix_length, -1):
            positions.add(position)
            if position in long:
                break
    names = {step.name for step in steps if step.position in positions}
    for step in reversed(steps):  # a step comes after the one whose result it overwrites
        if step.name in names and step.overwritten is not None:
            names.add(step.overwritten)
    return [
        step if step.key in keys else replace(step, timed=False)
        for step in steps
        if step.name in names
    ]


def without_feedback(steps: Iterable[WalkStep]) -> list[WalkStep]:
    """``steps``, changed so that no step reads its own result of the pass before.

    A step that works in place on a value that no step of the walk writes would apply its operator
    again and again, until its values are zero or infinite. Its output gets a buffer of its own.
    """
    written: set[str] = set()
    safe = []
    for step in steps:
        if step.overwritten is None or step.overwritten in written:
            written.add(step.name)
        else:
            step = replace(step, outputs=(None, *step.outputs[1:]))
        safe.append(step)
    return safe


def isolated(walk: Walk, key: str) -> Walk:
    """The walk over the brick ``key`` of ``walk``, with buffers of its own and no other steps."""
    first = next(step for step in walk.steps if step.key == key and step.timed)
    loads = tuple(load for load in walk.loads if load.name == first.load)
    return without_region(Walk(loads, (first,)))


def in_cache_state(walk: Walk, displaced_bytes: int) -> Walk:
    """The walk over one timed step of each brick of ``walk``, in a state of the device's cache.

    Each step has buffers of its own.
    """
    first = {step.key: step for step in reversed(walk.steps) if step.timed}
    steps = tuple(
        replace(step, name=f"{step.name}/{displaced_bytes}", weight=1.0, repeated=False)
        for step in walk.steps
        if first.get(step.key) is step
    )
    run = {step.load for step in steps}
    loads = tuple(load for load in walk.loads if load.name in run)
    return without_region(Walk(loads, steps, displaced_bytes=displaced_bytes))


def without_region(walk: Walk) -> Walk:
    """The same walk, every value in a buffer of its own."""
    steps = (
        replace(
            step,
            inputs=(None,) * len(step.inputs),
            outputs=(None,) * len(step.outputs),
            overwritten=None,
        )
        for step in walk.steps
    )
    return replace(walk, steps=tuple(steps), region_bytes=0, used=())


def single_step(
    key: str, model: bytes, *, inputs: int, outputs: int, timed: bool = True, folder: str = ""
) -> Walk:
    """A walk of one step with buffers of its own: a whole model, or a probe."""
    step = WalkStep(key, key, (None,) * inputs, (None,) * outputs, timed)
    return Walk((Load(key, model, optimize=True, folder=folder),), (step,))


def with_streams(walk: Walk, streams: tuple[int, ...]) -> Walk:
    """The same walk whose nodes run along ``streams``; unchanged if ``streams`` is empty."""
    return replace(walk, loads=tuple(replace(load, streams=streams) for load in walk.loads))


# A brick with more work than this (see ``work_of``; it takes about a millisecond) touches more
# memory than the caches hold.
_LONG_WORK = 8e6

# A brick with so much more work takes tens of milliseconds: what the caches held before makes no
# difference to it.
_VERY_LONG_WORK = 64 * _LONG_WORK

# Weights of fewer bytes stay in the caches in any case.
HEAVY_BYTES = 1 << 16

# Bytes that a session keeps for a node, about: a core's cache of 1 MiB holds a thousand nodes, and
# not six thousand.
_NODE_BYTES = 192

# A brick with fewer bytes of weights than HEAVY_BYTES, and of activations than these, has its data
# in the caches in any case; but its session is evicted if it runs once in a pass.
_LIGHT_BYTES = 1 << 18


def is_long(brick: Brick) -> bool:
    """Whether a brick evicts the contents of the caches before it."""
    return work_of(brick) > _LONG_WORK


def is_very_long(brick: Brick) -> bool:
    """Whether a brick takes so long that it does not matter what ran before it."""
    return work_of(brick) > _VERY_LONG_WORK


def is_heavy(brick: Brick) -> bool:
    """Whether a brick finds its weights, or its session, in the caches only if it has just run."""
    return brick.numeric_weight_bytes >= HEAVY_BYTES or len(brick.operators) >= SHORTEST


def is_light(brick: Brick) -> bool:
    """Whether a brick's data are in the caches in any case."""
    weights = brick.numeric_weight_bytes
    if len(brick.operators) >= SHORTEST:
        return False
    return weights < HEAVY_BYTES and brick.bytes_moved - weights < _LIGHT_BYTES


def session_bytes(brick: Brick) -> int:
    """Bytes of its own that a session reads in a run of a stretch; they are cold for many nodes.

    They are 0 for other bricks, which are light, and run twice, or much heavier than this.
    """
    return _NODE_BYTES * len(brick.operators) if len(brick.operators) >= SHORTEST else 0


def read_once_bytes(brick: Brick) -> int:
    """Bytes that one run reads and no run before it: weights, and data of its session."""
    return brick.numeric_weight_bytes + session_bytes(brick)


# Occurrences at which a brick is timed, if it has so many; more if it has more contexts.
TIMED_COUNT = 3

# A long brick is timed at one occurrence: its position hardly matters.
LONG_TIMED_COUNT = 1

# Occurrences have the same context if this many bricks before them are equal.
_CONTEXT = 8


def timed_count(brick: Brick, count: int = TIMED_COUNT, long_count: int = LONG_TIMED_COUNT) -> int:
    """The number of occurrences at which ``brick`` is timed, if it has so many."""
    return long_count if is_long(brick) else count


def timed_positions(
    plan: Plan,
    max_counts: Mapping[str, int],
    heavy: Collection[str],
    independent: Collection[str] = (),
) -> dict[int, float]:
    """Positions of the timed occurrences, and how many occurrences of its brick each stands for.

    A brick's latency depends on the bricks before it: on the one that wrote its inputs, and on the
    last one to use its output's memory. So its occurrences are grouped by context, and some are
    drawn from each group in proportion, with the brick's key as the seed. ``max_counts`` is how
    many are drawn for each brick, by key. ``heavy`` bricks find their weights in the caches where
    an earlier occurrence has read the same weights, as the steps of an unrolled recurrent network
    do: such occurrences are in other contexts. All contexts of ``independent`` bricks are one.
    """
    keys = [occurrence.brick for occurrence in plan.occurrences]
    positions_of: dict[str, list[int]] = {}
    for position, key in enumerate(keys):
        if key in max_counts:
            positions_of.setdefault(key, []).append(position)
    timed: dict[int, float] = {}
    for key, positions in positions_of.items():
        rng, count = random.Random(key), max_counts[key]
        strata = _by_first_use(plan, positions) if key in heavy else [positions]
        groups = chain.from_iterable(_contexts(keys, stratum, count) for stratum in strata)
        for group in [positions] if key in independent else groups:
            parts = min(len(group), max(1, round(count * len(group) / len(positions))))
            for part in range(parts):
                drawn = group[int((part + rng.random()) * len(group) / parts)]
                timed[drawn] = len(group) / parts
    return timed


def _by_first_use(plan: Plan, positions: Sequence[int]) -> list[list[int]]:
    """The ``positions`` of a brick that use their weights first, and the others."""
    first: dict[tuple[int, ...] | int, int] = {}
    for position in positions:
        first.setdefault(plan.occurrences[position].weights or position, position)
    firsts = sorted(first.values())
    others = sorted(set(positions).difference(firsts))
    return [stratum for stratum in (firsts, others) if stratum]


def _contexts(keys: Sequence[str], positions: Sequence[int], count: int) -> list[list[int]]:
    """The ``positions`` of a brick, grouped by the bricks that run before them.

    ``keys`` are the bricks of all occurrences in order. Contexts too rare for a timed occurrence of
    their own are one group.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for position in positions:
        groups.setdefault(tuple(keys[max(0, position - _CONTEXT) : position]), []).append(position)
    frequent = [g for g in groups.values() if 2 * count * len(g) >= len(positions)]
    rare = sorted(i for g in groups.values() if 2 * count * len(g) < len(positions) for i in g)
    return [*frequent, rare] if rare else frequent
