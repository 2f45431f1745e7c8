"""An operator that branches on signs or sizes finds those of its model, others at each run."""

import subprocess
import sys
from pathlib import Path

from commands import environment

# In a process of its own: a backend sets up the threads of all of its process.
WALK = """
import sys
import numpy as np
from factories import constant, model, node, value
from bricks.graph.model_metadata import SIGNS, note
from bricks.measure.protocol import pack
from bricks.measure.worker.worker import Worker

elements = 4096
size = 4 * elements
worker = Worker(lambda message: None)
hello = {"op": "hello", "backend": "onnxruntime", "threads": 2, "seed": 0, "memory_bytes": None}
worker.answer(hello)
worker.answer({"op": "region", "size_bytes": 2 * size})
numbers = worker.region.memory[:size].view(np.float32)
shape = [elements]
proto = model(
    [node("PRelu", ["x", "s"], ["y"])],
    [value("x", shape), value("s", [1])],
    [value("y", shape)],
)
note(proto, SIGNS, {"x": [float(word) for word in sys.argv[1:]]})
load = {"op": "load", "id": "a", "key": "b1-00", "optimize": False}
worker.answer({**load, "model": pack(proto.SerializeToString())})
worker.answer({"op": "place", "place": "a", "id": "a", "inputs": [0, None], "outputs": [size]})
seen = set()
for _ in range(2):
    worker.answer({"op": "walk", "steps": [["a", True]], "passes": 1, "announce": False})
    seen.add((numbers < 0).tobytes())
    changes = np.mean((numbers[1:] < 0) != (numbers[:-1] < 0))
    print(np.mean(numbers < 0), changes, np.mean(np.abs(numbers)), len(seen))
worker.answer({"op": "unload"})
"""


def walked(*pattern: float) -> list[list[float]]:
    """After each of two walks: shares of negative numbers and of changes, size, distinct inputs."""
    done = subprocess.run(
        [sys.executable, "-c", WALK, *map(str, pattern)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1] / "support",
        env=environment(),
    )
    return [[float(word) for word in line.split()] for line in done.stdout.splitlines()]


def test_inputs_have_the_signs_that_the_brick_notes() -> None:
    for negative, changes, *_ in walked(0.25, 0.125):
        assert abs(negative - 0.25) < 0.06
        assert abs(changes - 0.125) < 0.04


def test_inputs_have_the_size_that_the_brick_notes() -> None:
    for negative, changes, size, _ in walked(0.25, 0.125, -1.5):
        assert abs(negative - 0.25) < 0.06
        assert abs(changes - 0.125) < 0.04
        assert abs(size / 2**-1.5 - 1) < 0.06


def test_no_processor_can_learn_them() -> None:
    assert [distinct for *_, distinct in walked(0.5, 0.5)] == [1, 2]
