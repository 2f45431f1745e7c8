"""Builds the walk over a model: which occurrences it runs, on which memory, with whose weights.

Inputs whose values decide what a brick does get a buffer of their own. See research/measuring.md.
Must not know how steps are run, nor how many samples they get.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.decompose.planned_memory import BYTES, SUMS
from bricks.decompose.stretches import SHORTEST
from bricks.graph.model_metadata import SKETCHES, noted_sketches
from bricks.graph.topology import used_values
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, parse_model
from bricks.measure.walk import (
    HEAVY_BYTES,
    LONG_TIMED_COUNT,
    TIMED_COUNT,
    Load,
    Walk,
    WalkStep,
    is_heavy,
    is_light,
    is_long,
    is_very_long,
    read_once_bytes,
    session_bytes,
    timed_count,
    timed_positions,
)
from bricks.operators.dependence import branches_on_values, decisive_values
from bricks.operators.integer_ranges import integer_ranges
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.memory import MemoryLayout
    from bricks.decompose.occurrence import Occurrence
    from bricks.decompose.plan import Brick, Decomposition, Plan
    from bricks.graph.model import Graph

# Occurrences in the warm-up prefix of each timed one; research/measuring.md says why.
PREFIX_LENGTH = 2
# A prefix has at most this many times as many occurrences if some of them do next to nothing.
_MAX_IDLE = 6
# Bricks with more bytes of weights are not in a prefix: loading these weights costs more than the
# prefix is worth. The eviction read stands for them. A long brick begins its prefix, since it
# evicts whatever the caches held before.
_MAX_PREFIX_BYTES = 1 << 24

# Parts of the region that are nearer to each other are filled together.
_PAGE_BYTES = 1 << 12

_ALL_BYTES, _CAST = 256, "Cast"


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkOptions:
    """How a walk is built.

    Models are loaded with the runtime's optimisations if ``optimize``. Bricks to ``avoid`` are
    known not to run. ``prefix_length`` occurrences run before each timed one. A brick is timed at
    this many ``occurrences``, a long one at ``long_occurrences``. At most ``max_eviction_bytes``
    are read in place of weights that the walk leaves out.
    """

    optimize: bool = False
    avoid: Collection[str] = ()
    prefix_length: int = PREFIX_LENGTH
    occurrences: int = TIMED_COUNT
    long_occurrences: int = LONG_TIMED_COUNT
    max_eviction_bytes: int = 0


_PLAIN = WalkOptions()


def walk_of(
    decomposition: Decomposition, keys: Collection[str], options: WalkOptions = _PLAIN
) -> Walk:
    """The walk that times the bricks called ``keys``.

    A value that a step overwrites is made anew in each pass: the walk includes its producer. The
    warm-up prefix leaves out bricks with very large weights, and occurrences before a long brick.
    Calls of a recorded program allocate their results, and pass them on by tensor handle.
    """
    chosen = _Steps(decomposition, keys, options)
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
        chosen.used,
    )


class _Steps:
    """The steps of a walk in order: timed occurrences, their prefixes, and producers of values."""

    def __init__(
        self, decomposition: Decomposition, keys: Collection[str], options: WalkOptions
    ) -> None:
        self._plan, self._bricks = decomposition.plan, decomposition.bricks
        self._avoid = options.avoid
        self.layout: MemoryLayout = self._plan.memory.layout(self._plan)
        self._timed = self._chosen(keys, options)
        self._overwritten = _overwritten(self._plan)
        prefixes = _prefixes(decomposition, self._timed, options.prefix_length)
        self._needed = {*self._timed, *prefixes}
        for i in tuple(self._needed):  # with all producers of values that these overwrite
            while (i := self._overwritten.get(i, -1)) >= 0:
                self._needed.add(i)
        self._copies = _copies(decomposition, self._timed, self._needed)
        keys = {self._plan.occurrences[i].brick for i in self._needed}
        of_keys = {key: self._bricks[key] for key in keys}
        # Inputs that decide which branch runs, or how long an operator takes, have own values.
        self._own_ports = {
            key: brick.steering_ports | _value_dependent_ports(brick)
            for key, brick in of_keys.items()
        }

    def __iter__(self) -> Iterator[WalkStep]:
        for i in sorted(self._needed):
            if i in self._timed or self._plan.occurrences[i].brick not in self._avoid:
                yield self._step(i)

    @property
    def used(self) -> tuple[tuple[int, int], ...]:
        """Offset and bytes of parts of the region that have all values of the steps."""
        parts: dict[int, int] = {}
        for i in self._needed:
            occurrence = self._plan.occurrences[i]
            for value in (*occurrence.inputs, *occurrence.outputs):
                offset, type_ = self.layout.offsets[value], self._plan.types[value]
                if offset is not None and isinstance(type_, TensorType) and self.layout.size_bytes:
                    parts[offset] = max(parts.get(offset, 0), type_.size_bytes)
        return tuple(_joined(sorted(parts.items())))

    def _chosen(self, keys: Collection[str], options: WalkOptions) -> Mapping[int, float]:
        """Positions of the timed occurrences, and how many occurrences each stands for."""
        counts = {
            key: timed_count(self._bricks[key], options.occurrences, options.long_occurrences)
            for key in self._plan.counts
            if key in keys
        }
        heavy = {key for key in counts if is_heavy(self._bricks[key])}
        independent = {key for key in counts if is_very_long(self._bricks[key])}
        return timed_positions(self._plan, counts, heavy, independent)

    def _step(self, i: int) -> WalkStep:
        occurrence = self._plan.occurrences[i]
        brick, own = self._bricks[occurrence.brick], self._own_ports[occurrence.brick]
        offsets, source = self.layout.offsets, self._overwritten.get(i)
        timed = i in self._timed
        return WalkStep(
            name=self._name(i),
            key=occurrence.brick,
            inputs=tuple(
                None if port in own else offsets[v] for port, v in enumerate(occurrence.inputs)
            ),
            outputs=tuple(offsets[v] for v in occurrence.outputs),
            timed=timed,
            overwritten=None if source is None else self._name(source),
            position=i,
            weight=self._timed.get(i, 1.0),
            copy=self._copies.get((occurrence.brick, session_of(occurrence, i)), 0),
            long=is_long(brick),
            # Its session was evicted, and loading it takes up to 5 µs, several times the latency of
            # such a brick in its model, whose nodes share one session.
            repeated=self._plan.memory.repeatable and timed and is_light(brick),
        )

    def _name(self, i: int) -> str:
        return f"{self._plan.digest}/{i}"


def _prefixes(
    decomposition: Decomposition, timed: Collection[int], prefix_length: int
) -> Iterator[int]:
    """Positions in the warm-up prefixes of the ``timed`` occurrences."""
    plan, bricks = decomposition.plan, decomposition.bricks
    occurrences = plan.occurrences
    # What does next to nothing counts for no prefix.
    idle = plan.memory.negligible(
        plan,
        tiny=lambda key: bricks[key].bytes_moved < HEAVY_BYTES,
        computes_nothing=lambda key: bricks[key].flops == 0,
    )
    for i in timed:
        left = 0 if is_very_long(bricks[occurrences[i].brick]) else prefix_length
        for j in range(i - 1, max(-1, i - 1 - _MAX_IDLE * prefix_length), -1):
            if left <= 0:
                break
            brick = bricks[occurrences[j].brick]
            if brick.numeric_weight_bytes <= _MAX_PREFIX_BYTES:
                yield j
            if is_long(brick):
                break
            left -= j not in idle


def _copies(
    decomposition: Decomposition, timed: Collection[int], needed: Collection[int]
) -> dict[tuple[str, tuple[int, ...] | int], int]:
    """The copy that runs an occurrence, by brick and weights (or position, if these are unknown).

    There is a copy for each set of weights that a brick has where it is timed, unless they are
    small. One more copy serves all other occurrences: they would keep a timed one's weights warm.
    """
    copies: dict[tuple[str, tuple[int, ...] | int], int] = {}
    counts: Counter[str] = Counter()
    untimed = set(needed).difference(timed)
    for positions, own in ((timed, 1), (untimed, 0)):
        for i in sorted(positions):
            occurrence = decomposition.plan.occurrences[i]
            name = (occurrence.brick, session_of(occurrence, i))
            brick = decomposition.bricks[occurrence.brick]
            if is_heavy(brick) and name not in copies:
                copies[name] = counts[occurrence.brick]
                counts[occurrence.brick] += own
    return copies


def session_of(occurrence: Occurrence, position: int) -> tuple[int, ...] | int:
    """The key of the session that runs an occurrence: its weights, or else its ``position``.

    For a stretch of nodes the runtime keeps more than weights, so each has a session of its own.
    """
    return position if occurrence.nodes >= SHORTEST else occurrence.weights or position


def _joined(parts: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """``parts`` (offset and bytes) in ascending order; those on the same or next page are one."""
    begin = end = 0
    for offset, size_bytes in parts:
        if end and offset > end + _PAGE_BYTES:
            yield begin, end - begin
            begin = end = 0
        begin, end = (
            (begin, max(end, offset + size_bytes)) if end else (offset, offset + size_bytes)
        )
    if end:
        yield begin, end - begin


def _overwritten(plan: Plan) -> dict[int, int]:
    """The position of the producer whose result an occurrence overwrites, by its own position.

    It is -1 where the result is an input of the model, which no runtime overwrites.
    """
    producer = {v: i for i, o in enumerate(plan.occurrences) for v in o.made}
    return {
        i: producer.get(o.inputs[o.in_place], -1)
        for i, o in enumerate(plan.occurrences)
        if o.in_place is not None
    }


def _value_dependent_ports(brick: Brick) -> set[int]:
    """Positions of inputs that may not have arbitrary values.

    These are bytes with a limited range (indices, say), 32-bit integers that are more than numbers
    to convert, and values whose distribution decides how long an operator takes, except for signs,
    which are written in place. Values without a noted distribution are random, where other bricks
    have left positive numbers.
    """
    names = [
        name
        for name, type_ in brick.inputs.items()
        if isinstance(type_, TensorType) and (type_.dtype in BYTES or type_.dtype == SUMS)
    ]
    branching = any(branches_on_values(operator_called(name)) for name in brick.operators)
    if not names and not branching and SKETCHES.encode() not in brick.model:
        return set()  # parsing takes longer than all the rest
    proto = parse_model(brick.model)
    graph = graph_of(proto)
    ranges = integer_ranges(graph, names) if names else {}
    free = {n for n, range_ in ranges.items() if range_.high - range_.low == _ALL_BYTES}
    free.update(name for name in names if _is_sum(graph, name))
    own = {name for name, sketch in noted_sketches(proto).items() if not sketch.signs_only}
    own.update(name for node in graph.nodes for name in decisive_values(node, graph.types))
    own.update(name for name in names if name not in free)
    return {port for port, name in enumerate(brick.inputs) if name in own}


def _is_sum(graph: Graph, name: str) -> bool:
    """Whether a 32-bit integer is only converted to a float, as sums of quantised products are."""
    type_ = graph.types[name]
    if not isinstance(type_, TensorType) or type_.dtype != SUMS:
        return False
    readers = [node for node in graph.nodes if name in used_values(node)]
    converted = (graph.types[made] for node in readers for made in node.output)
    return all(node.op_type == _CAST for node in readers) and all(
        isinstance(made, TensorType) and made.floating for made in converted
    )
