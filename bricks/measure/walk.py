"""The walk: the bricks of a model to run, their order, and the memory of their values.

Bricks are not measured in loops of their own. They are run in the order in which their model runs
them, on the addresses that their values have there, so that each brick finds the caches as its
neighbours leave them. Each brick is timed at a few of its places in the model. A few occurrences
before each are run too (the lead-in), so that a brick that is measured alone has neighbours. Places
with different weights in the model have different weights in the walk. It must not know how steps
are run, nor how many samples they get.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from bricks.decompose.dialects import decisive_values
from bricks.decompose.layout import BYTES
from bricks.decompose.memory import Allocation
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Brick, Decomposition, Plan, work_of
from bricks.decompose.stretches import SHORTEST
from bricks.graph.domains import integer_ranges
from bricks.graph.model_metadata import SKETCHES, noted_sketches
from bricks.graph.tensor import TensorType
from bricks.graph.value_dependence import branches_on_values
from bricks.graph.view import graph_of, parse_model
from bricks.measure.fresh_memory import Event, memory_events

_ALL_BYTES = 256

# Places at which a brick is timed, if it has so many; more if it occurs in more situations.
PLACES = 3

# A brick with more work than this (see ``work_of``; it takes about a millisecond) is timed at one
# place. It touches more memory than the caches hold, so that its position hardly matters.
LONG_PLACES = 1
_LONG_WORK = 8e6

# Occurrences are in one situation if the same bricks run before them: so many are compared.
_SITUATION = 8

# Weights of fewer bytes stay in the caches anyway: places share them.
_HEAVY_BYTES = 1 << 16

# About what a session keeps of a node: a core's cache of 1 MiB holds a thousand of them, and not
# six thousand.
_NODE_BYTES = 192

# A brick with fewer bytes of weights than that, and of activations than these, is run twice where
# it is timed. Its data are in the caches in any case; but the session of a brick that runs once in
# a pass has left them, and loading it takes up to 5 µs, several times what such a brick takes in
# its model, whose nodes share one session.
_REPEATED_BYTES = 1 << 18

# Occurrences that are run before each timed one. See docs/measuring.md for what they do.
LEAD_IN = 2
# The same where only a few bricks of a model are still timed. With fewer, the walk gets so short
# that it leaves the caches in another state than the whole walk (estimates rose by a percent).
LONG_LEAD_IN = 8
# A lead-in has at most so many times as many occurrences if some of them do next to nothing.
_MAX_IDLE = 6
# Bricks with more bytes of weights are not in a lead-in: loading those costs more than the lead-in
# is worth. The eviction read stands for them. A long brick begins its lead-in: it evicts from the
# caches what was in them before.
_MAX_LEAD_IN_BYTES = 1 << 24


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
        return min(missing, self.max_eviction_bytes) if missing >= _HEAVY_BYTES else 0


def walk_of(
    decomposition: Decomposition,
    wanted: Collection[str],
    *,
    optimize: bool,
    avoid: Collection[str] = (),
    lead_in: int = LEAD_IN,
    places: int = PLACES,
    long_places: int = LONG_PLACES,
    max_eviction_bytes: int = 0,
) -> Walk:
    """The walk that times the ``wanted`` bricks; those in ``avoid`` are known not to run.

    A value that a step overwrites is made anew in each pass: the walk includes its producer. The
    lead-in leaves out bricks with very large weights, and those before a long brick. The calls of a
    recorded program allocate their results, and hand them on in slots.
    """
    plan, bricks = decomposition.plan, decomposition.bricks
    layout = plan.memory.layout(plan)
    max_places = {k: places_of(bricks[k], places, long_places) for k in plan.counts if k in wanted}
    heavy = {k for k in max_places if _heavy(bricks[k])}
    timed = _timed(plan, max_places, heavy)
    overwritten = _overwritten(plan)
    needed = {*timed, *_leading(decomposition, timed, lead_in)}
    for i in list(needed):
        while (i := overwritten.get(i, -1)) >= 0:
            needed.add(i)
    copies = _copies(decomposition, timed, needed)
    own_ports = {
        key: bricks[key].steered_ports | _decided(bricks[key])
        for key in {plan.occurrences[i].brick for i in needed}
    }
    steps = []
    for i in sorted(needed):
        occurrence = plan.occurrences[i]
        if i not in timed and occurrence.brick in avoid:
            continue
        source = overwritten.get(i)
        steps.append(
            Step(
                place=f"{plan.digest}/{i}",
                key=occurrence.brick,
                # A value that decides what runs must not be one that another brick has left.
                inputs=tuple(
                    None if port in own_ports[occurrence.brick] else layout.offsets[v]
                    for port, v in enumerate(occurrence.inputs)
                ),
                outputs=tuple(layout.offsets[v] for v in occurrence.outputs),
                timed=i in timed,
                after=None if source is None else f"{plan.digest}/{source}",
                position=i,
                weight=timed.get(i, 1.0),
                copy=copies.get((occurrence.brick, _own(occurrence, i)), 0),
                long=_long(bricks[occurrence.brick]),
                repeated=plan.memory.repeatable and i in timed and _light(bricks[occurrence.brick]),
            )
        )
    loads = tuple(
        Load(k, bricks[k].model, optimize, copy, _read_once_bytes(bricks[k]))
        for k, copy in dict.fromkeys((step.key, step.copy) for step in steps)
    )
    sessions = sum(_session_bytes(bricks[o.brick]) for o in plan.occurrences)
    weight_bytes = decomposition.weight_bytes + decomposition.unseen_weight_bytes + sessions
    return Walk(
        loads,
        tuple(steps),
        layout.size_bytes,
        weight_bytes,
        max_eviction_bytes,
        plan.memory.allocations(plan),
        len(plan.occurrences),
    )


def _decided(brick: Brick) -> set[int]:
    """The positions of inputs that may not hold what other bricks have left in their place.

    These are bytes that may not be any, since they are indices, say; and values whose distribution
    decides how long an operator takes, except for signs, which are written in place. Those of which
    nothing is noted are random, and others have left positive ones.
    """
    names = [n for n, t in brick.inputs.items() if isinstance(t, TensorType) and t.dtype in BYTES]
    branching = any(map(branches_on_values, brick.operators))
    if not names and not branching and SKETCHES.encode() not in brick.model:
        return set()  # parsing takes longer than all the rest
    proto = parse_model(brick.model)
    graph = graph_of(proto)
    ranges = integer_ranges(graph, names) if names else {}
    free = {n for n, found in ranges.items() if found.high - found.low == _ALL_BYTES}
    own = {name for name, sketch in noted_sketches(proto).items() if not sketch.signs_alone}
    own.update(name for node in graph.nodes for name in decisive_values(node, graph.types))
    own.update(name for name in names if name not in free)
    return {port for port, name in enumerate(brick.inputs) if name in own}


def _leading(decomposition: Decomposition, timed: Collection[int], lead_in: int) -> Iterator[int]:
    """The occurrences of the lead-ins, before those that are ``timed``."""
    of, bricks = decomposition.plan.occurrences, decomposition.bricks
    idle = _idle(decomposition)
    for i in timed:
        left = lead_in
        for j in range(i - 1, max(-1, i - 1 - _MAX_IDLE * lead_in), -1):
            if left <= 0:
                break
            brick = bricks[of[j].brick]
            if brick.numeric_weight_bytes <= _MAX_LEAD_IN_BYTES:
                yield j
            if _long(brick):
                break
            left -= j not in idle


def _idle(decomposition: Decomposition) -> frozenset[int]:
    """The occurrences that do next to nothing, which no lead-in counts."""
    plan, bricks = decomposition.plan, decomposition.bricks
    return plan.memory.idle(
        plan,
        tiny=lambda key: bricks[key].bytes_moved < _HEAVY_BYTES,
        workless=lambda key: bricks[key].flops == 0,
    )


def _long(brick: Brick) -> bool:
    return work_of(brick) > _LONG_WORK


def _session_bytes(brick: Brick) -> int:
    """What a session reads of its own in a run of a stretch, which of thousands of nodes is cold.

    Other bricks are light, and run twice, or so heavy that it does not count.
    """
    return _NODE_BYTES * len(brick.operators) if len(brick.operators) >= SHORTEST else 0


def _read_once_bytes(brick: Brick) -> int:
    return brick.numeric_weight_bytes + _session_bytes(brick)


def _heavy(brick: Brick) -> bool:
    return brick.numeric_weight_bytes >= _HEAVY_BYTES or len(brick.operators) >= SHORTEST


def _light(brick: Brick) -> bool:
    weights = brick.numeric_weight_bytes
    if len(brick.operators) >= SHORTEST:
        return False
    return weights < _HEAVY_BYTES and brick.bytes_moved - weights < _REPEATED_BYTES


def places_of(brick: Brick, places: int = PLACES, long_places: int = LONG_PLACES) -> int:
    """The number of places at which ``brick`` is timed, if it has so many."""
    return long_places if _long(brick) else places


def _timed(plan: Plan, max_places: Mapping[str, int], heavy: Collection[str]) -> dict[int, float]:
    """The occurrences that are timed, and how many occurrences of its brick each stands for.

    A brick's latency depends on what ran before it: on the brick that wrote its inputs, and on the
    last one to use its output's memory. So its occurrences are grouped by situation, and places are
    drawn from each group in proportion, with the brick's key as the seed. ``max_places`` is how
    many each brick gets, by key. ``heavy`` bricks find their weights in the caches where an earlier
    occurrence has read the same ones, as the steps of an unrolled recurrent network do: these are
    other situations.
    """
    keys = [occurrence.brick for occurrence in plan.occurrences]
    occurrences: dict[str, list[int]] = {}
    for i, key in enumerate(keys):
        if key in max_places:
            occurrences.setdefault(key, []).append(i)
    timed: dict[int, float] = {}
    for key, found in occurrences.items():
        draw, places = random.Random(key), max_places[key]
        strata = _by_first_use(plan, found) if key in heavy else [found]
        for group in chain.from_iterable(_situations(keys, each, places) for each in strata):
            parts = min(len(group), max(1, round(places * len(group) / len(found))))
            for part in range(parts):
                place = group[int((part + draw.random()) * len(group) / parts)]
                timed[place] = len(group) / parts
    return timed


def _by_first_use(plan: Plan, found: Sequence[int]) -> list[list[int]]:
    """The occurrences ``found`` of a brick that use their weights first, and the others."""
    first: dict[tuple[int, ...] | int, int] = {}
    for i in found:
        first.setdefault(plan.occurrences[i].weights or i, i)
    firsts = sorted(first.values())
    others = sorted(set(found).difference(firsts))
    return [each for each in (firsts, others) if each]


def _situations(keys: Sequence[str], found: Sequence[int], places: int) -> list[list[int]]:
    """The occurrences ``found`` of a brick, grouped by the bricks that run before them.

    ``keys`` are the bricks of all occurrences in order. Situations too rare for a place of their
    own are one group.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for i in found:
        groups.setdefault(tuple(keys[max(0, i - _SITUATION) : i]), []).append(i)
    frequent = [g for g in groups.values() if 2 * places * len(g) >= len(found)]
    rare = sorted(i for g in groups.values() if 2 * places * len(g) < len(found) for i in g)
    return [*frequent, rare] if rare else frequent


def _copies(
    decomposition: Decomposition, timed: Collection[int], needed: Collection[int]
) -> dict[tuple[str, tuple[int, ...] | int], int]:
    """The copy that runs at a place, by brick and weights (the place, where they aren't known).

    There is a copy for each set of weights that a brick has where it is timed, unless they are
    small. One more copy serves all other places: they would keep the weights of a timed one warm.
    """
    copies: dict[tuple[str, tuple[int, ...] | int], int] = {}
    counts: Counter[str] = Counter()
    untimed = set(needed).difference(timed)
    for places, own in ((timed, 1), (untimed, 0)):
        for i in sorted(places):
            occurrence = decomposition.plan.occurrences[i]
            name = (occurrence.brick, _own(occurrence, i))
            brick = decomposition.bricks[occurrence.brick]
            if _heavy(brick) and name not in copies:
                copies[name] = counts[occurrence.brick]
                counts[occurrence.brick] += own
    return copies


def _own(occurrence: Occurrence, position: int) -> tuple[int, ...] | int:
    """What a session of its own is for: weights; or the place, where weights do not tell.

    Of a stretch of nodes, the runtime keeps more than weights.
    """
    return position if occurrence.nodes >= SHORTEST else occurrence.weights or position


def _overwritten(plan: Plan) -> dict[int, int]:
    """The occurrence whose result an occurrence overwrites, by that which works in place.

    It is -1 where that result is an input of the model, which no runtime overwrites.
    """
    producer = {v: i for i, o in enumerate(plan.occurrences) for v in o.made}
    return {
        i: producer.get(o.inputs[o.in_place], -1)
        for i, o in enumerate(plan.occurrences)
        if o.in_place is not None
    }


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
