"""The walk: which bricks of a model are run, in which order, and where their values lie.

Bricks are not measured in loops of their own. They are run in the order in which their model runs
them, on the addresses that their values have there, so that each one meets the caches as its
neighbours leave them. Each brick is timed at its first place in the model; a few occurrences
before each place are run along, untimed, so that a brick that is measured alone has neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from bricks.decompose.plan import Brick, Plan
from bricks.measure.arena import arrange

# Occurrences that are run before each timed one. See docs/measuring.md for what they do.
LEAD_IN = 2


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
    """Something loaded, at a place: offsets into the shared region, or None for own buffers."""

    place: str
    key: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    timed: bool
    multiplicity: int = 1


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
    """The walk that times the ``wanted`` bricks of ``plan``; ``avoid`` are known not to run."""
    arena = arrange(plan)
    timed: dict[int, str] = {}
    count: dict[str, int] = {}
    for i, occurrence in enumerate(plan.occurrences):
        key = occurrence.brick
        count[key] = count.get(key, 0) + 1
        if key in wanted and count[key] == 1:
            timed[i] = key
    needed = {j for i in timed for j in range(max(0, i - lead_in), i + 1)}
    steps = []
    for i in sorted(needed):
        occurrence = plan.occurrences[i]
        key = occurrence.brick
        if i not in timed and key in avoid:
            continue
        steps.append(
            Step(
                place=f"{plan.digest}/{i}",
                key=key,
                inputs=tuple(arena.offsets[v] for v in occurrence.inputs),
                outputs=tuple(arena.offsets[v] for v in occurrence.outputs),
                timed=i in timed,
                multiplicity=count[key],
            )
        )
    keys = dict.fromkeys(step.key for step in steps)
    loads = tuple(Load(k, bricks[k].model, optimize, bricks[k].examples) for k in keys)
    return Walk(loads, tuple(steps), arena.size_bytes)


def without_region(walk: Walk) -> Walk:
    """The same walk, every value in a buffer of its own."""
    steps = (
        replace(s, inputs=(None,) * len(s.inputs), outputs=(None,) * len(s.outputs))
        for s in walk.steps
    )
    return Walk(walk.loads, tuple(steps))


def single(key: str, model: bytes, *, inputs: int, outputs: int, timed: bool = True) -> Walk:
    """A walk of one step with buffers of its own: a whole model, or a probe."""
    step = Step(key, key, (None,) * inputs, (None,) * outputs, timed)
    return Walk((Load(key, model, optimize=True),), (step,))
