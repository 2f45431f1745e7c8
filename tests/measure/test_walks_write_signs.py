"""An operator that branches on signs or sizes finds those of its model, others at each run."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from commands import environment

# In a process of its own: a backend sets up the threads of all of its process.
WALKS = """
import json
import sys
import numpy as np
from factories import constant, model, node, value
from bricks.graph.model_metadata import SIGNS, note
from bricks.measure.protocol.walking import BindPiece, LoadPiece, MakeRegion, UnloadAll
from bricks.measure.protocol.walking import BackendSettings, Hello
from bricks.measure.protocol.walking import RunWalk
from bricks.measure.worker.worker import Worker

elements = 4096
size = 4 * elements
worker = Worker(lambda message: None)
worker.answer(Hello(BackendSettings("onnxruntime", threads=2, seed=0)))
found = []
for pattern in json.loads(sys.argv[1]):
    worker.answer(MakeRegion(2 * size))
    numbers = worker.pieces.region.memory[:size].view(np.float32)
    shape = [elements]
    proto = model(
        [node("PRelu", ["x", "s"], ["y"])],
        [value("x", shape), value("s", [1])],
        [value("y", shape)],
    )
    note(proto, SIGNS, {"x": pattern})
    worker.answer(LoadPiece("a", "b1-00", proto.SerializeToString(), optimize=False))
    worker.answer(BindPiece("a", "a", (0, None), (size,)))
    walks, seen = [], set()
    for _ in range(2):
        worker.answer(RunWalk((("a", True),), passes=1, announce=False))
        seen.add((numbers < 0).tobytes())
        changes = np.mean((numbers[1:] < 0) != (numbers[:-1] < 0))
        means = np.mean(numbers < 0), changes, np.mean(np.abs(numbers))
        walks.append([*map(float, means), len(seen)])
    found.append(walks)
    worker.answer(UnloadAll())
print(json.dumps(found))
"""


def walked(*patterns: Sequence[float]) -> list[list[list[float]]]:
    """Of each pattern, after each of two walks: shares of negative numbers and of changes, size,
    distinct inputs.
    """
    done = subprocess.run(
        [sys.executable, "-c", WALKS, json.dumps(patterns)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1] / "support",
        env=environment(),
    )
    found: list[list[list[float]]] = json.loads(done.stdout)
    return found


def test_inputs_are_as_the_brick_notes_and_no_processor_learns_them() -> None:
    signs, sizes, even = walked((0.25, 0.125), (0.25, 0.125, -1.5), (0.5, 0.5))
    assert len(signs) == len(sizes) == 2
    for negative, changes, *_ in (*signs, *sizes):
        assert abs(negative - 0.25) < 0.06
        assert abs(changes - 0.125) < 0.04
    for *_, size, _ in sizes:
        assert abs(size / 2**-1.5 - 1) < 0.06
    assert [distinct for *_, distinct in even] == [1, 2]
