"""The walk: the bricks of a model to run, their order, and the memory of their values.

Bricks are not measured in loops of their own. They are run in the order in which their model runs
them, on the addresses that their values have there, so that each brick finds the caches as its
neighbours leave them. Each brick is timed at a few of its places in the model. A few occurrences
before each are run too (the lead-in), so that a brick that is measured alone has neighbours. Places
with different weights in the model have different weights in the walk. It must not know how steps
are run, nor how many samples they get.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from bricks.decompose.memory import Allocation
from bricks.measure.cache_load import HEAVY_BYTES
from bricks.measure.fresh_memory import Event, memory_events

# Occurrences that are run before each timed one where only a few bricks of a model are still timed.
# With fewer, the walk gets so short that it leaves the caches in another state than the whole walk
# (estimates rose by a percent).
LONG_LEAD_IN = 8


@dataclass(frozen=True, slots=True)
class Load:
    """A model to load: ``model`` is a serialised ``ModelProto`` without weights.

    A key may be loaded several times, as ``copy`` 0, 1 and so on, with ``weight_bytes`` of weights
    each. ``streams`` are those along which its nodes run; empty: they run in sequence. ``folder``
    has the model's own weights, which it gets where values decide how long it takes.
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
class Step:
    """A loaded model at a place: offsets into the shared region, or None for own buffers.

    ``after`` is the place that makes the value which the first output overwrites; None: it
    overwrites none. ``position`` is the number of the occurrence in the plan, and ``weight`` how
    many occurrences the step stands for. A ``long`` step evicts the caches. A ``repeated`` step is
    run once untimed right before each sample.
    """

    place: str
    key: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    timed: bool
    after: str | None = None
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
    """The name of a copy of a key."""
    return f"{key}/{copy}" if copy else key


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps in order, the models that they run, and the size of the region that they share.

    ``weight_bytes`` is the size of the whole model's weights. At most ``max_eviction_bytes`` are
    read in place of those that the walk leaves out. ``allocations`` are those of a recorded
    program of ``length`` occurrences, which hands values on in slots and not in the region.
    """

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    region_bytes: int = 0
    weight_bytes: int = 0
    max_eviction_bytes: int = 0
    allocations: tuple[Allocation, ...] = ()
    length: int = 0

    def memory_events(self, steps: Sequence[Step]) -> list[list[Event]]:
        """What to allocate and free around ``steps``; empty where memory is planned."""
        if not self.allocations:
            return []
        return memory_events([step.position for step in steps], self.allocations, self.length)

    def eviction_bytes(self, steps: Iterable[Step]) -> int:
        """Bytes to read before a pass over ``steps``, in place of weights that it leaves out."""
        run = {step.load for step in steps}
        held = sum(load.weight_bytes for load in self.loads if load.name in run)
        missing = max(0, self.weight_bytes - held)
        return min(missing, self.max_eviction_bytes) if missing >= HEAVY_BYTES else 0


def narrowed(
    steps: Sequence[Step], keys: Collection[str], lead_in: int = LONG_LEAD_IN
) -> list[Step]:
    """Those of ``steps`` that are needed to go on timing ``keys`` alone."""
    wanted = [step for step in steps if step.timed and step.key in keys]
    long = {step.position for step in steps if step.long}
    kept: set[int] = set()
    for step in wanted:
        kept.add(step.position)
        for position in range(step.position - 1, step.position - 1 - lead_in, -1):
            kept.add(position)
            if position in long:
                break
    places = {step.place for step in steps if step.position in kept}
    for step in reversed(steps):  # a step comes after that whose result it overwrites
        if step.place in places and step.after is not None:
            places.add(step.after)
    return [
        step if step.key in keys else replace(step, timed=False)
        for step in steps
        if step.place in places
    ]


def grounded(steps: Iterable[Step]) -> list[Step]:
    """``steps``, changed so that none works on its own result of the pass before.

    A step that works in place on a value that no step of the walk writes would apply its operator
    again and again, until its values are zero or infinite. Its output gets a buffer of its own.
    """
    written: set[str] = set()
    safe = []
    for step in steps:
        if step.after is None or step.after in written:
            written.add(step.place)
        else:
            step = replace(step, outputs=(None, *step.outputs[1:]))
        safe.append(step)
    return safe


def alone(walk: Walk, key: str) -> Walk:
    """The walk of one brick of ``walk``, with buffers of its own and no other steps."""
    first = next(step for step in walk.steps if step.key == key and step.timed)
    loads = tuple(load for load in walk.loads if load.name == first.load)
    return without_region(Walk(loads, (first,)))


def without_region(walk: Walk) -> Walk:
    """The same walk, every value in a buffer of its own."""
    steps = (
        replace(s, inputs=(None,) * len(s.inputs), outputs=(None,) * len(s.outputs), after=None)
        for s in walk.steps
    )
    return replace(walk, steps=tuple(steps), region_bytes=0)


def single(
    key: str, model: bytes, *, inputs: int, outputs: int, timed: bool = True, folder: str = ""
) -> Walk:
    """A walk of one step with buffers of its own: a whole model, or a probe."""
    step = Step(key, key, (None,) * inputs, (None,) * outputs, timed)
    return Walk((Load(key, model, optimize=True, folder=folder),), (step,))


def along(walk: Walk, streams: tuple[int, ...]) -> Walk:
    """The same walk, its nodes run along ``streams``; unchanged, if there are none."""
    return replace(walk, loads=tuple(replace(load, streams=streams) for load in walk.loads))
