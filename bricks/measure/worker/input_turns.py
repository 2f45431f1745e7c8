"""Finds sets of values that may take turns at the inputs of a model.

A plan has the branches, numbers of iterations and lengths that synthetic inputs decided. So runs of
the whole model may have other inputs only if they do the same with them: candidates are drawn, the
values that decide what is run are computed, and sets with the same ones take turns. Must not know
how runs are timed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from bricks.backends.base import Backend, ValueObserver
from bricks.backends.input_values import Turns, sets_in_turn
from bricks.decompose.identity import is_brick
from bricks.graph.subgraphs import conditional_loops, first_output, with_iteration_counters
from bricks.graph.view import graph_of
from bricks.operators.rotated_inputs import RotatedInputs

if TYPE_CHECKING:
    import onnx

# Candidates that are drawn for each set, and seconds that computing with them may take.
_CANDIDATES, _SECONDS = 4, 2.0


def turns_of(backend: Backend, proto: onnx.ModelProto, key: str, rotated: RotatedInputs) -> Turns:
    """Return the numbers of the sets that take turns at the inputs ``rotated`` of ``proto``.

    Inputs of a brick do not decide what is run; where those of a model do, their sets do the same
    as the first, and where none does they stay. ``key`` determines the data, as in a load.
    """
    graph = graph_of(proto)
    sets = {name: range(sets_in_turn(graph.types[name].elements)) for name in rotated.names}
    if is_brick(proto) or not rotated.bound or not isinstance(backend, ValueObserver):
        return {name: sets[name] for name in rotated.unobserved}
    wanted = min(len(sets[name]) for name in rotated.bound)
    loops = [first_output(loop) for loop in conditional_loops(proto.graph.node)]
    counted = with_iteration_counters(proto, loops) if loops else proto
    course, candidates = rotated.course, range(_CANDIDATES * wanted)
    runs = backend.observe(
        counted, sorted(course.chosen | course.sized), key=key, turning=rotated.bound,
        turns=_until(time.monotonic() + _SECONDS, candidates),
    )  # fmt: skip
    first, same = next(runs), [0]
    for number, run in enumerate(runs, 1):
        if course.same(first, run):
            same.append(number)
        if len(same) == wanted:
            break
    turns: dict[str, Sequence[int]] = {name: sets[name] for name in rotated.names - rotated.bound}
    return turns | dict.fromkeys(rotated.bound if len(same) > 1 else (), same)


def _until(deadline: float, numbers: Sequence[int]) -> Iterator[int]:
    """Yield ``numbers`` until ``deadline``, at least the first two."""
    for number in numbers:
        if number > 1 and time.monotonic() > deadline:
            return
        yield number
