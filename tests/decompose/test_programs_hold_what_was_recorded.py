from __future__ import annotations

from dataclasses import replace
from typing import Any

from plans import plan

from bricks.decompose.allocated import Allocated
from bricks.decompose.memory import LiveMemory, Phase
from bricks.decompose.plan import Plan
from bricks.graph.types import TensorType

SMALL, LARGE = TensorType("FLOAT", (10,)), TensorType("FLOAT", (100,))


def step(kind: str = "training step", **changes: Any) -> Plan:
    """Values 1 and 2 are made forward, 3 and 4 backward; 4 is a gradient."""
    made = plan(
        [("a", [0], [1]), ("b", [1], [2]), ("c", [2], [3]), ("d", [3], [4]), ("e", [4], [5])],
        types={1: LARGE, 2: SMALL, 3: LARGE, 4: SMALL, 5: SMALL},
        outputs=[4],
    )
    memory = Allocated(
        kind,
        (Phase("forward", 2, 2), Phase("backward", 2, 2), Phase("optimizer", 1, 1)),
        freed=(None, 1, 2, 3, None, None),
        storages=(-1, 1, 2, 3, 4, -1),
        gradients=(4,),
        state_bytes={"inputs": 64, "parameters": 40, "buffers": 8, "optimizer": 80},
    )
    return replace(made, memory=replace(memory, **changes))


def peak(made: Plan) -> LiveMemory:
    found = made.memory.peak(made)
    assert found is not None
    return found


def test_the_peak_is_where_most_is_live() -> None:
    live = peak(step())
    assert live.phase == "forward"  # values 1 and 2 together
    assert live.temporary_bytes == 400  # value 1 is gone before the backward pass
    assert live.activation_bytes == 40 + 64  # value 2, and the inputs
    assert live.gradient_bytes == 0
    assert (live.parameter_bytes, live.optimizer_bytes) == (48, 80)


def test_gradients_stay() -> None:
    made = step(freed=(None, 0, 2, 3, None, None))
    live = peak(replace(made, types=(*made.types[:4], LARGE, SMALL)))
    assert live.phase == "backward"
    assert (live.gradient_bytes, live.temporary_bytes) == (400, 400)


def test_what_shares_memory_counts_once_and_lives_as_long_as_its_last_view() -> None:
    live = peak(step(storages=(-1, 1, 1, 3, 4, -1)))
    assert live.phase == "backward"
    assert live.activation_bytes == 400 + 64
    assert live.temporary_bytes == 400


def test_without_a_backward_pass_all_results_are_activations() -> None:
    live = peak(step("inference", gradients=()))
    assert live.temporary_bytes == 0
    assert live.activation_bytes == 440 + 64
