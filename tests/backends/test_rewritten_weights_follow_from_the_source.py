"""Which weights ONNX Runtime rewrites when it fuses nodes, against the graph that it executes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, value

from bricks import Bench

WEIGHT_BYTES = 4 * 16 * 16 * 9


def image_model(*after: onnx.NodeProto, outputs: Sequence[str] = ("y",)) -> onnx.ModelProto:
    """A convolution whose result is ``c``, and what comes ``after`` it."""
    channel = np.full(16, 0.5)
    weights = [
        constant("w", np.random.default_rng(0).random((16, 16, 3, 3)), "FLOAT"),
        constant("scale", channel.reshape(16, 1, 1), "FLOAT"),
        *(constant(f"n{i}", channel, "FLOAT") for i in range(4)),
    ]
    conv = node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    results = [value(name, [1, 16, 8, 8]) for name in outputs]
    return model([conv, *after], [value("x", [1, 16, 8, 8])], results, weights)


NORM = node("BatchNormalization", ["c", "n0", "n1", "n2", "n3"], ["y"])
SCALED = node("Mul", ["c", "scale"], ["y"])
FOLDED = {"normalised": image_model(NORM), "scaled": image_model(SCALED)}
LEFT = {
    "scaled from the left": image_model(node("Mul", ["scale", "c"], ["y"])),
    "read by others too": image_model(NORM, outputs=("y", "c")),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("rewriting") / "cache", threads=1) as opened:
        yield opened


def executed(bench: Bench, proto: onnx.ModelProto) -> tuple[int, int | None]:
    """The nodes that are executed and have weights, and the bytes that were rewritten."""
    found = bench.decompose(bench.read(proto))
    weighty = [o for o in found.plan.occurrences if found.bricks[o.brick].weights]
    return len(weighty), found.plan.rewritten_bytes


@pytest.mark.parametrize("name", FOLDED)
def test_a_node_folded_into_a_convolution_rewrites_its_weight(name: str, bench: Bench) -> None:
    assert executed(bench, FOLDED[name]) == (1, WEIGHT_BYTES)


@pytest.mark.parametrize("name", LEFT)
def test_a_node_that_is_not_folded_rewrites_nothing(name: str, bench: Bench) -> None:
    """It may become another convolution, channel by channel."""
    assert executed(bench, LEFT[name]) == (2, 0)


def test_a_runtime_that_optimises_nothing_rewrites_nothing(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", threads=1, optimization="none") as plain:
        assert executed(plain, FOLDED["normalised"]) == (2, 0)
