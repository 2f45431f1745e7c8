"""The memory of a model's values while it runs: the runtime's planner, pattern and arena in turn.

Runs differ: in the first, each value takes memory of its own from the arena; from the second on,
all but the outputs lie in one block, for which the arena rarely has room left. So the second run
needs more than the first. Must not know weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bricks.compose.memory.arena import Arena, Chunk
from bricks.compose.memory.pattern import Pattern
from bricks.decompose.buffers import Buffer, buffers
from bricks.decompose.plan import Plan
from bricks.graph.containers import ValueType

# With the third run, memory has stopped growing: the block has found a place to stay.
RUNS = 3


def input_bytes(plan: Plan) -> int:
    """Bytes of the model's inputs, which the caller holds."""
    return sum(_bytes(plan.types[value]) for value in dict.fromkeys(plan.inputs))


def sizeless(plan: Plan) -> int:
    """The number of values whose size does not follow from their type."""
    return sum(not _sized(type_) for type_ in plan.types)


def _sized(type_: ValueType) -> bool:
    try:
        return type_.size_bytes >= 0
    except KeyError:
        return False


def _bytes(type_: ValueType) -> int:
    return type_.size_bytes if _sized(type_) else 0


class Activations:
    """The values of ``plan``, and the memory that they take in a process that runs it.

    Values without a known size (texts) count as nothing; see :func:`sizeless`.
    """

    def __init__(self, plan: Plan) -> None:
        found = buffers(plan)
        self._sizes = {buffer: _bytes(buffer.type_) for buffer in found.values()}
        self._outputs = {found[value] for value in plan.outputs}
        self._steps = _steps(plan, found)

    def resident_bytes(
        self, workspaces: Mapping[str, Sequence[int]] | None = None, weights: Sequence[int] = ()
    ) -> int:
        """Bytes that values and workspaces occupy after :data:`RUNS` runs, without inputs.

        ``workspaces`` are the sizes of what each brick's kernel takes while it runs, by key;
        ``weights`` those of the weights that lie in the arena, which do not count themselves, but
        make it grow.
        """
        arena, pattern = Arena(), Pattern()
        for size in weights:
            _taken(arena, size)
        for run in range(RUNS):
            self._run(arena, pattern, workspaces or {}, first=run == 0)
        return arena.resident_bytes - sum(weights)

    def _run(
        self,
        arena: Arena,
        pattern: Pattern,
        workspaces: Mapping[str, Sequence[int]],
        *,
        first: bool,
    ) -> None:
        block = None if first or not pattern.size_bytes else arena.take(pattern.size_bytes)
        held: dict[Buffer, Chunk] = {}
        for key, made, done in self._steps:
            for buffer in made:
                size = self._sizes[buffer]
                if block is not None and buffer in pattern.offsets:
                    arena.touch(block, size, pattern.offsets[buffer])
                elif size:
                    held[buffer] = _taken(arena, size)
                    if first and buffer not in self._outputs:
                        pattern.take(buffer, size)
            for chunk in [_taken(arena, size) for size in workspaces.get(key, ()) if size]:
                arena.give(chunk)
            for buffer in done:
                if buffer in held:
                    arena.give(held.pop(buffer))
                    if first:
                        pattern.give(buffer)
        for chunk in (*held.values(), *([] if block is None else [block])):
            arena.give(chunk)


def _taken(arena: Arena, size_bytes: int) -> Chunk:
    chunk = arena.take(size_bytes)
    arena.touch(chunk, size_bytes)
    return chunk


_Step = tuple[str, list[Buffer], list[Buffer]]


def _steps(plan: Plan, found: Mapping[int, Buffer]) -> Sequence[_Step]:
    """By occurrence: its brick, the buffers that it is the first to use, those it uses last."""
    steps: list[_Step] = []
    seen = {found[value] for value in plan.inputs}  # the caller's memory
    for number, occurrence in enumerate(plan.occurrences):
        made = [b for b in dict.fromkeys(found[v] for v in occurrence.made) if b not in seen]
        seen.update(made)
        used = dict.fromkeys(found[v] for v in (*occurrence.inputs, *occurrence.made))
        done = [buffer for buffer in used if buffer.last == number]
        steps.append((occurrence.brick, made, done))
    return steps
