"""Operators that large numbers slow down get small ones, though a walk has made them large."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import environment

# In a process of its own: a backend sets up the threads of all of its process.
WALK = """
import sys
import numpy as np
from factories import model, node, value
from bricks.measure.protocol import pack
from bricks.measure.worker.worker import Worker

operator, size = sys.argv[1], 4096
worker = Worker(lambda message: None)
hello = {"op": "hello", "backend": "onnxruntime", "threads": 2, "seed": 0, "memory_bytes": None}
worker.answer(hello)
worker.answer({"op": "region", "size_bytes": 2 * size})
numbers = worker.region.memory[: 2 * size].view(np.float32)
worker.region.fill = lambda seed, **_: numbers.fill(-90.0)
shape = [size // 4]
proto = model([node(operator, ["x"], ["y"])], [value("x", shape)], [value("y", shape)])
load = {"op": "load", "id": "a", "key": "b1-00", "optimize": False}
worker.answer({**load, "model": pack(proto.SerializeToString())})
worker.answer({"op": "place", "place": "a", "id": "a", "inputs": [0], "outputs": [size]})
walk = {"op": "walk", "steps": [["a", True]], "passes": 2, "announce": False}
(samples,) = worker.answer(dict(walk))["samples"]
assert len(samples) == 2
print(numbers[0], numbers[shape[0] - 1], numbers[shape[0]])
worker.answer({"op": "unload"})
"""


def walked(operator: str) -> list[float]:
    """The first and the last number that ``operator`` read, and the first that it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", WALK, operator],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1] / "support",
        env=environment(),
    )
    return [float(number) for number in done.stdout.split()]


@pytest.mark.parametrize(("operator", "result"), [("Exp", np.exp(-1)), ("Elu", np.exp(-1) - 1)])
def test_an_operator_that_large_numbers_slow_down_gets_none(operator: str, result: float) -> None:
    assert walked(operator) == pytest.approx([-1, -1, result], rel=1e-5)


def test_other_operators_get_the_numbers_that_are_there() -> None:
    assert walked("Neg") == [-90, -90, 90]
