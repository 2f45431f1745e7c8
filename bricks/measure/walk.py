"""The walk: which bricks of a model are run, in which order, and where their values lie.

Bricks are not measured in loops of their own. They are run in the order in which their model runs
them, on the addresses that their values have there, so that each one meets the caches as its
neighbours leave them. Each brick is timed at its first place in the model; a few occurrences
before each place are run along, untimed, so that a brick that is measured alone has neighbours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bricks.decompose.plan import Brick, Plan
from bricks.measure.arena import arrange

# Occurrences that are run before each timed one. See docs/measuring.md for what they do.
LEAD_IN = 2
# The same where only a few bricks of a model are still timed. With fewer, what is left of the walk
# is so short that their state is no longer that of the whole (estimates rose by a percent).
LONG_LEAD_IN = 8


@dataclass(frozen=True, slots=True)
class Load:
    """Something to make ready: ``model`` is a serialised ``ModelProto`` without weights.

    ``examples`` are values that integer inputs must have.
    """

    key: str
    model: bytes
    optimize: bool
    examples: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Something loaded, at a place: offsets into the shared region, or None for own buffers.

    ``after`` is the place that makes the value which the first output overwrites, if it does.
    ``position`` is where in the model the step stands.
    """

    place: str
    key: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    timed: bool
    multiplicity: int = 1
    after: str | None = None
    position: int = 0


@dataclass(frozen=True, slots=True)
class Walk:
    """Steps in order, what they need loaded, and the size of the region they share."""

    loads: tuple[Load, ...]
    steps: tuple[Step, ...]
    region_bytes: int = 0


def walk_of(
    plan: Plan,
    bricks: Mapping[str, Brick],
    wanted: Collection[str],
    *,
    optimize: bool,
    avoid: Collection[str] = (),
    lead_in: int = LEAD_IN,
) -> Walk:
    """The walk that times the ``wanted`` bricks of ``plan``; ``avoid`` are known not to run.

    What a step overwrites is made anew in each pass: its producer is run along too.
    """
    arena = arrange(plan)
    count = Counter(occurrence.brick for occurrence in plan.occurrences)
    timed = {first for key, first in _firsts(plan).items() if key in wanted}
    overwritten = _overwritten(plan)
    needed = {j for i in timed for j in range(max(0, i - lead_in), i + 1)}
    for i in list(needed):
        while (i := overwritten.get(i, -1)) >= 0:
            needed.add(i)
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
                inputs=tuple(arena.offsets[v] for v in occurrence.inputs),
                outputs=tuple(arena.offsets[v] for v in occurrence.outputs),
                timed=i in timed,
                multiplicity=count[occurrence.brick],
                after=None if source is None else f"{plan.digest}/{source}",
                position=i,
            )
        )
    keys = dict.fromkeys(step.key for step in steps)
    loads = tuple(Load(k, bricks[k].model, optimize, bricks[k].examples) for k in keys)
    return Walk(loads, tuple(steps), arena.size_bytes)


def _firsts(plan: Plan) -> dict[str, int]:
    firsts: dict[str, int] = {}
    for i, occurrence in enumerate(plan.occurrences):
        firsts.setdefault(occurrence.brick, i)
    return firsts


def _overwritten(plan: Plan) -> dict[int, int]:
    """Occurrences that work in place, by the occurrence whose result they overwrite.

    It is -1 where that is an input of the model, which no runtime overwrites.
    """
    producer = {v: i for i, o in enumerate(plan.occurrences) for v in o.outputs}
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
    near = {p for step in wanted for p in range(step.position - lead_in, step.position + 1)}
    places = {step.place for step in steps if step.position in near}
    for step in reversed(steps):  # what is overwritten stands before what overwrites it
        if step.place in places and step.after is not None:
            places.add(step.after)
    return [
        step if step.key in keys else replace(step, timed=False)
        for step in steps
        if step.place in places
    ]


def grounded(steps: Iterable[Step]) -> list[Step]:
    """``steps``, none of which works on its own result of the pass before.

    A step in place whose source nobody writes in this walk would apply its operator again and
    again, until its values are zero or infinite. It gets a buffer of its own for its output.
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
    """The walk of one brick of ``walk``, with buffers of its own and nothing around it."""
    loads = tuple(load for load in walk.loads if load.key == key)
    steps = tuple(step for step in walk.steps if step.key == key and step.timed)
    return without_region(Walk(loads, steps))


def without_region(walk: Walk) -> Walk:
    """The same walk, every value in a buffer of its own."""
    steps = (
        replace(s, inputs=(None,) * len(s.inputs), outputs=(None,) * len(s.outputs), after=None)
        for s in walk.steps
    )
    return Walk(walk.loads, tuple(steps))


def single(key: str, model: bytes, *, inputs: int, outputs: int, timed: bool = True) -> Walk:
    """A walk of one step with buffers of its own: a whole model, or a probe."""
    step = Step(key, key, (None,) * inputs, (None,) * outputs, timed)
    return Walk((Load(key, model, optimize=True),), (step,))
