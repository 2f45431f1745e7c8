from __future__ import annotations

from dataclasses import replace

import pytest
from factories import one_node, value
from plans import decomposed, plan

from bricks import PeakMemory, UnknownMemory
from bricks.compose.memory.peak import NODE_BYTES, SESSION_BYTES, peak_memory
from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick, Plan
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of
from bricks.system import Runtime

MIB = 1 << 20
LARGE = TensorType("FLOAT", (4 * MIB,))
ORT = Runtime("onnxruntime", "1", "CPUExecutionProvider", 1, "none")


def isolated(op: str, **more: object) -> Brick:
    shape = [64, 1024, 64]
    proto = one_node(op, [value("x", shape)], [value("y", shape)], **more)
    graph = graph_of(proto, {"y": TensorType("FLOAT", tuple(shape))})
    return Cutter(graph).cut((0,)).brick


def chain(brick: Brick, length: int = 3) -> Plan:
    shape = TensorType("FLOAT", (64, 1024, 64))
    occurrences = [(brick.key, [i], [i + 1]) for i in range(length)]
    repeated = plan(occurrences, types=dict.fromkeys(range(length + 1), shape))
    return replace(repeated, rewritten_bytes=0)


RELU = isolated("Relu")


def test_the_peak_is_the_sum_of_its_parts() -> None:
    memory = peak_memory(chain(RELU), {RELU.key: RELU}, ORT)
    assert isinstance(memory, PeakMemory)
    parts = (
        memory.weight_bytes, memory.activation_bytes, memory.workspace_bytes, memory.runtime_bytes,
        memory.loading_bytes,
    )  # fmt: skip
    assert memory.peak_bytes == sum(parts)
    assert memory.activation_bytes > 3 * 16 * MIB  # the input, and the values of two runs
    assert memory.runtime_bytes >= SESSION_BYTES + 3 * NODE_BYTES
    assert (memory.weight_bytes, memory.workspace_bytes, memory.loading_bytes) == (0, 0, 0)
    assert memory.unknown == ()


def test_what_a_kernel_takes_while_it_runs_is_a_part() -> None:
    softmax = isolated("Softmax", axis=1)
    memory = peak_memory(chain(softmax), {softmax.key: softmax}, ORT)
    assert isinstance(memory, PeakMemory)
    assert memory.workspace_bytes >= 16 * MIB
    assert memory.activation_bytes == _activations(chain(softmax), softmax)


def _activations(of: Plan, brick: Brick) -> int:
    bare = Runtime("fake", "1", "none", 1, "none")
    memory = peak_memory(of, {brick.key: brick}, bare)
    assert isinstance(memory, PeakMemory)
    return memory.activation_bytes


def test_loading_counts_where_it_needs_more_than_running() -> None:
    tiny = plan([("a", [0], [1])])
    weights = decomposed(replace(tiny, rewritten_bytes=100 * MIB))
    memory = peak_memory(weights.plan, weights.bricks, ORT)
    assert isinstance(memory, PeakMemory)
    running = memory.weight_bytes + memory.activation_bytes
    assert memory.loading_bytes == 100 * MIB - running
    assert memory.peak_bytes == 100 * MIB + memory.runtime_bytes


def test_what_is_unknown_is_named_and_makes_the_peak_a_lower_bound() -> None:
    odd = isolated("Det")
    memory = peak_memory(chain(odd), {odd.key: odd}, ORT)
    assert isinstance(memory, PeakMemory)
    assert memory.unknown == ("the workspace of 3 Det",)
    assert memory.peak_bytes > 0


def test_a_plan_of_an_earlier_version_does_not_tell_what_loading_needs() -> None:
    old = replace(chain(RELU), rewritten_bytes=None)
    memory = peak_memory(old, {RELU.key: RELU}, ORT)
    assert isinstance(memory, PeakMemory)
    (reason,) = memory.unknown
    assert "loading" in reason


def test_texts_are_named() -> None:
    texts = plan([(RELU.key, [0], [1])], types={1: TensorType("STRING", (4,))})
    memory = peak_memory(replace(texts, rewritten_bytes=0), {RELU.key: RELU}, ORT)
    assert isinstance(memory, PeakMemory)
    assert memory.unknown == ("1 values that hold texts",)


@pytest.mark.parametrize(
    ("of", "runtime", "workers", "reason"),
    [
        (chain(RELU), replace(ORT, backend="mxnet"), 1, "not for mxnet"),
        (replace(chain(RELU), granularity="3"), ORT, 1, "granularity 3"),
        (chain(RELU), ORT, 2, "2 workers"),
    ],
    ids=["mxnet", "granularity", "workers"],
)
def test_there_is_no_prediction_without_a_reason(
    of: Plan, runtime: Runtime, workers: int, reason: str
) -> None:
    memory = peak_memory(of, {RELU.key: RELU}, runtime, workers=workers)
    assert isinstance(memory, UnknownMemory)
    assert reason in memory.reason
    assert memory.model == of.model


def test_a_larger_batch_needs_more() -> None:
    def of(shape: tuple[int, ...]) -> int:
        types = dict.fromkeys(range(4), TensorType("FLOAT", shape))
        places = [(RELU.key, [i], [i + 1]) for i in range(3)]
        memory = peak_memory(
            replace(plan(places, types=types), rewritten_bytes=0), {RELU.key: RELU}, ORT
        )
        assert isinstance(memory, PeakMemory)
        return memory.peak_bytes

    assert of((8, MIB)) > of((1, MIB)) + 7 * 4 * MIB
