"""Build the walk over a model: which occurrences it runs, on which memory, with whose weights.

See docs/measuring.md. Must not know how steps are run, nor how many samples they get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from bricks.decompose.memory import Layout
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Decomposition, Plan
from bricks.decompose.stretches import SHORTEST
from bricks.measure.cache_load import (
    HEAVY_BYTES,
    is_heavy,
    is_light,
    is_long,
    read_once_bytes,
    session_bytes,
)
from bricks.measure.own_buffers import own_ports
from bricks.measure.timed_places import LONG_PLACES, PLACES, places_of, timed_positions
from bricks.measure.walk import Load, Step, Walk

# Occurrences that are run before each timed one. See docs/measuring.md for what they do.
LEAD_IN = 2
# A lead-in has at most so many times as many occurrences if some of them do next to nothing.
_MAX_IDLE = 6
# Bricks with more bytes of weights are not in a lead-in: loading those costs more than the lead-in
# is worth. The eviction read stands for them. A long brick begins its lead-in: it evicts from the
# caches what was in them before.
_MAX_LEAD_IN_BYTES = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """How a walk is built.

    Models are loaded with the runtime's optimisations if ``optimize``. Bricks to ``avoid`` are
    known not to run. ``lead_in`` occurrences run before each timed one. A brick is timed at so many
    ``places``, a long one at ``long_places``. At most ``max_eviction_bytes`` are read in place of
    weights that the walk leaves out.
    """

    optimize: bool = False
    avoid: Collection[str] = ()
    lead_in: int = LEAD_IN
    places: int = PLACES
    long_places: int = LONG_PLACES
    max_eviction_bytes: int = 0


_PLAIN = WalkOptions()


def walk_of(
    decomposition: Decomposition, wanted: Collection[str], options: WalkOptions = _PLAIN
) -> Walk:
    """The walk that times the ``wanted`` bricks.

    A value that a step overwrites is made anew in each pass: the walk includes its producer. The
    lead-in leaves out bricks with very large weights, and those before a long brick. The calls of a
    recorded program allocate their results, and hand them on in slots.
    """
    chosen = _Steps(decomposition, wanted, options)
    steps = tuple(chosen)
    plan, bricks = decomposition.plan, decomposition.bricks
    loads = tuple(
        Load(k, bricks[k].model, options.optimize, copy, read_once_bytes(bricks[k]))
        for k, copy in dict.fromkeys((step.key, step.copy) for step in steps)
    )
    sessions = sum(session_bytes(bricks[o.brick]) for o in plan.occurrences)
    return Walk(
        loads,
        steps,
        chosen.layout.size_bytes,
        decomposition.weight_bytes + decomposition.unseen_weight_bytes + sessions,
        options.max_eviction_bytes,
        plan.memory.allocations(plan),
        len(plan.occurrences),
    )


class _Steps:
    """The steps of a walk in order: occurrences that are timed, and those that these need."""

    def __init__(
        self, decomposition: Decomposition, wanted: Collection[str], options: WalkOptions
    ) -> None:
        self._plan, self._bricks = decomposition.plan, decomposition.bricks
        self._avoid = options.avoid
        self.layout: Layout = self._plan.memory.layout(self._plan)
        self._timed = self._chosen(wanted, options)
        self._overwritten = _overwritten(self._plan)
        leading = _leading(decomposition, self._timed, options.lead_in)
        self._needed = self._with_producers({*self._timed, *leading})
        self._copies = _copies(decomposition, self._timed, self._needed)
        keys = {self._plan.occurrences[i].brick for i in self._needed}
        self._own_ports = {key: own_ports(self._bricks[key]) for key in keys}

    def __iter__(self) -> Iterator[Step]:
        for i in sorted(self._needed):
            if i in self._timed or self._plan.occurrences[i].brick not in self._avoid:
                yield self._step(i)

    def _chosen(self, wanted: Collection[str], options: WalkOptions) -> Mapping[int, float]:
        """The occurrences that are timed, and how many others each stands for."""
        most = {
            key: places_of(self._bricks[key], options.places, options.long_places)
            for key in self._plan.counts
            if key in wanted
        }
        heavy = {key for key in most if is_heavy(self._bricks[key])}
        return timed_positions(self._plan, most, heavy)

    def _with_producers(self, positions: set[int]) -> set[int]:
        """``positions``, and those of all that makes what they overwrite."""
        needed = set(positions)
        for i in positions:
            while (i := self._overwritten.get(i, -1)) >= 0:
                needed.add(i)
        return needed

    def _step(self, i: int) -> Step:
        occurrence = self._plan.occurrences[i]
        brick, own = self._bricks[occurrence.brick], self._own_ports[occurrence.brick]
        offsets, source = self.layout.offsets, self._overwritten.get(i)
        timed = i in self._timed
        return Step(
            place=self._place(i),
            key=occurrence.brick,
            inputs=tuple(
                None if port in own else offsets[v] for port, v in enumerate(occurrence.inputs)
            ),
            outputs=tuple(offsets[v] for v in occurrence.outputs),
            timed=timed,
            after=None if source is None else self._place(source),
            position=i,
            weight=self._timed.get(i, 1.0),
            copy=self._copies.get((occurrence.brick, session_of(occurrence, i)), 0),
            long=is_long(brick),
            # Its session has left the caches, and loading it takes up to 5 µs, several times what
            # such a brick takes in its model, whose nodes share one session.
            repeated=self._plan.memory.repeatable and timed and is_light(brick),
        )

    def _place(self, i: int) -> str:
        return f"{self._plan.digest}/{i}"


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
            if is_long(brick):
                break
            left -= j not in idle


def _idle(decomposition: Decomposition) -> frozenset[int]:
    """The occurrences that do next to nothing, which no lead-in counts."""
    plan, bricks = decomposition.plan, decomposition.bricks
    return plan.memory.idle(
        plan,
        tiny=lambda key: bricks[key].bytes_moved < HEAVY_BYTES,
        workless=lambda key: bricks[key].flops == 0,
    )


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
            name = (occurrence.brick, session_of(occurrence, i))
            brick = decomposition.bricks[occurrence.brick]
            if is_heavy(brick) and name not in copies:
                copies[name] = counts[occurrence.brick]
                counts[occurrence.brick] += own
    return copies


def session_of(occurrence: Occurrence, position: int) -> tuple[int, ...] | int:
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
