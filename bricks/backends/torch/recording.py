"""Records one step of a program as a graph of ATen calls, after a few warm-up steps.

Must not know how calls are seen, nor how they are timed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bricks.backends.torch.call_recorder import CallRecorder
from bricks.backends.torch.entry import Program, users_errors
from bricks.backends.torch.sketching import SketchedValues
from bricks.errors import BackendError

if TYPE_CHECKING:
    import onnx

# Steps before the recorded one: the first makes the optimiser's state.
WARM_UP = 2


def record(program: Program, seed: int) -> CallRecorder:
    """Record the calls of one step, after a few warm-up steps.

    Raises :class:`BackendError` if two steps in a row do not make the same calls, and for calls
    that cannot be replayed; both name the call.
    """
    with users_errors(program.entry):
        torch.manual_seed(seed)
        for _ in range(WARM_UP):
            program.step()
        first, again = _recorded(program), _recorded(program)
    _refuse_change(program.entry, first, again)
    return again


def _recorded(program: Program) -> CallRecorder:
    recorder = CallRecorder(program, SketchedValues())
    with recorder, recorder.watching():
        result = program.step(recorder.mark)
        recorder.finish(program.module)
    del result
    return recorder


def _refuse_change(entry: str, first: CallRecorder, again: CallRecorder) -> None:
    for number, (a, b) in enumerate(zip(first.nodes, again.nodes, strict=False)):
        if _signature(a) != _signature(b):
            raise BackendError(
                f"{entry} keeps state between steps: call {number} was {a.op_type} and is"
                f" {b.op_type} in the next step, or its arguments differ: make every step the same"
            )
    if len(first.nodes) != len(again.nodes):
        raise BackendError(
            f"{entry} keeps state between steps: one makes {len(first.nodes)} calls and the next"
            f" {len(again.nodes)}: make every step the same"
        )


def _signature(node: onnx.NodeProto) -> tuple[Any, ...]:
    """Return operator, inputs and arguments of a call."""
    return node.op_type, node.domain, node.input, node.attribute
