"""Operators that large numbers slow down get small ones, though a walk has made them large."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from commands import environment

# In a process of its own: a backend sets up the threads of all of its process.
WALKS = """
import json
import sys
import numpy as np
from factories import model, node, value
from bricks.measure.protocol.walking import BindPiece, LoadPiece, MakeRegion, UnloadAll
from bricks.measure.protocol.walking import BackendSettings, Hello
from bricks.measure.protocol.walking import RunWalk
from bricks.measure.worker.worker import Worker

size = 4096
worker = Worker(lambda message: None)
worker.answer(Hello(BackendSettings("onnxruntime", threads=2, seed=0)))
found = []
for operator in sys.argv[1:]:
    worker.answer(MakeRegion(2 * size))
    numbers = worker.pieces.region.memory[: 2 * size].view(np.float32)
    worker.pieces.region.fill = lambda seed, **_: numbers.fill(-90.0)
    shape = [size // 4]
    proto = model([node(operator, ["x"], ["y"])], [value("x", shape)], [value("y", shape)])
    worker.answer(LoadPiece("a", "b1-00", proto.SerializeToString(), optimize=False))
    worker.answer(BindPiece("a", "a", (0,), (size,)))
    (samples,) = worker.answer(RunWalk((("a", True),), passes=2, announce=False)).samples
    assert len(samples) == 2
    found.append([float(numbers[at]) for at in (0, shape[0] - 1, shape[0])])
    worker.answer(UnloadAll())
print(json.dumps(found))
"""


def test_operators_that_large_numbers_slow_down_get_none_and_others_what_is_there() -> None:
    """Of each: the first and the last number that it read, and the first that it wrote."""
    done = subprocess.run(
        [sys.executable, "-c", WALKS, "Exp", "Elu", "Neg"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[1] / "support",
        env=environment(),
    )
    exp, elu, neg = json.loads(done.stdout)
    assert exp == pytest.approx([-1, -1, np.exp(-1)], rel=1e-5)
    assert elu == pytest.approx([-1, -1, np.exp(-1) - 1], rel=1e-5)
    assert neg == [-90, -90, 90]
