"""Memory of a model's values while it runs: the runtime's planner, pattern and arena in turn.

In the first run, each value is allocated from the arena; from the second on, all values except the
outputs are in one block, which rarely fits into the arena's free chunks. So the second run needs
more memory than the first. Must not know weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bricks.compose.memory.arena import Arena, Chunk
from bricks.compose.memory.pattern import Pattern
from bricks.decompose.buffers import Buffer, buffers

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.graph.containers import ValueType

# Memory does not grow after the third run.
RUNS = 3


def input_bytes(plan: Plan) -> int:
    """Bytes of the model's inputs, which the caller owns."""
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
    """The values of ``plan`` in the memory of a process that runs it.

    Values without a known size (texts) count as 0 bytes; see :func:`sizeless`.
    """

    def __init__(self, plan: Plan) -> None:
        shared = buffers(plan)
        self._sizes = {buffer: _bytes(buffer.type_) for buffer in shared.values()}
        self._outputs = {shared[value] for value in plan.outputs}
        self._steps = _steps(plan, shared)

    def resident_bytes(
        self, workspaces: Mapping[str, Sequence[int]] | None = None, weights: Sequence[int] = ()
    ) -> int:
        """Resident bytes of values and workspaces after :data:`RUNS` runs, without inputs.

        ``workspaces`` are the sizes of the buffers of each brick's kernel, by key. ``weights`` are
        the sizes of weights in the arena, which make it grow, but are not part of the result.
        """
        arena, pattern = Arena(), Pattern()
        for size in weights:
            _allocated(arena, size)
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
        block = None if first or not pattern.size_bytes else arena.allocate(pattern.size_bytes)
        chunks: dict[Buffer, Chunk] = {}
        for key, made, done in self._steps:
            for buffer in made:
                size = self._sizes[buffer]
                if block is not None and buffer in pattern.offsets:
                    arena.touch(block, size, pattern.offsets[buffer])
                elif size:
                    chunks[buffer] = _allocated(arena, size)
                    if first and buffer not in self._outputs:
                        pattern.allocate(buffer, size)
            for chunk in [_allocated(arena, size) for size in workspaces.get(key, ()) if size]:
                arena.free(chunk)
            for buffer in done:
                if buffer in chunks:
                    arena.free(chunks.pop(buffer))
                    if first:
                        pattern.free(buffer)
        for chunk in (*chunks.values(), *([] if block is None else [block])):
            arena.free(chunk)


def _allocated(arena: Arena, size_bytes: int) -> Chunk:
    chunk = arena.allocate(size_bytes)
    arena.touch(chunk, size_bytes)
    return chunk


_Step = tuple[str, list[Buffer], list[Buffer]]


def _steps(plan: Plan, shared: Mapping[int, Buffer]) -> Sequence[_Step]:
    """For each occurrence: its brick, the buffers that it is first and last to use."""
    steps: list[_Step] = []
    seen = {shared[value] for value in plan.inputs}  # the caller's memory
    for number, occurrence in enumerate(plan.occurrences):
        made = [b for b in dict.fromkeys(shared[v] for v in occurrence.made) if b not in seen]
        seen.update(made)
        used = dict.fromkeys(shared[v] for v in (*occurrence.inputs, *occurrence.made))
        done = [buffer for buffer in used if buffer.last == number]
        steps.append((occurrence.brick, made, done))
    return steps
