"""The rules of what kernels take while they run, against the memory that the runtime takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from factories import one_node, value
from resident import Case, Observed, apart
from tiers import one_in

from bricks.compose.memory.weights import workspace
from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of

MIB = 1 << 20
CONTRIB = "com.microsoft"

# Peaks are counted a few dozen pages at a time.
TOLERANCE_BYTES = MIB // 2

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="peaks are read from /proc")


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape, np.float32) + np.float32(0.1)


def integers(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


IMAGE = floats(4, 64, 64, 64)  # 4 MiB
CHANNELS = floats(64)
UNARY = (
    "Abs Ceil Clip Cos Elu Erf Exp Floor HardSigmoid Identity IsNaN LeakyRelu Log Neg Reciprocal"
    " Relu Round Selu Sigmoid Sign Sin Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
).split()
BINARY = "Add Div Equal Greater Less Max Min Mul PRelu Pow Sub Sum".split()
REDUCING = "ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceSumSquare".split()


def cases() -> Iterator[Case]:
    yield from (Case(op, [IMAGE]) for op in UNARY)
    yield from (Case(op, [IMAGE, other]) for op in BINARY for other in (IMAGE, floats(64, 1, 1)))
    for axes in ([3], [1], [2, 3], [0, 2]):
        yield from (Case(op, [IMAGE], {"axes": axes}) for op in REDUCING)
    yield from (Case(op, [IMAGE], {"axis": 1}) for op in ("ArgMax", "LpNormalization"))
    yield Case("Split", [IMAGE], {"axis": 1}, outputs=2)
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        yield from (Case(op, [IMAGE], {"axis": axis}) for axis in (1, 3))
    yield Case("Softmax", [IMAGE], {"axis": 1}, opset=11)
    yield Case("Transpose", [IMAGE], {"perm": [0, 2, 3, 1]})
    yield Case("Concat", [IMAGE, IMAGE], {"axis": 1})
    yield Case("Slice", [IMAGE, integers(1), integers(60), integers(2)], weights=(1, 2, 3))
    yield Case("Pad", [IMAGE, integers(0, 0, 1, 1, 0, 0, 1, 1)], weights=(1,))
    yield Case("Tile", [IMAGE, integers(1, 1, 2, 1)], weights=(1,))
    yield Case("Expand", [floats(4, 64, 64, 1), integers(4, 64, 64, 64)], weights=(1,))
    yield Case("Gather", [floats(16384, 64), np.arange(4096)])
    yield Case("GatherElements", [IMAGE, np.zeros(IMAGE.shape, np.int64)], {"axis": 3})
    yield Case("ScatterElements", [IMAGE, np.zeros(IMAGE.shape, np.int64), IMAGE], {"axis": 3})
    yield Case("TopK", [IMAGE, integers(8)], outputs=2, weights=(1,))
    yield Case("CumSum", [IMAGE, np.array(1)], weights=(1,))
    yield Case("Dropout", [IMAGE])
    for condition, *choices in (
        (IMAGE > 0.5, IMAGE, IMAGE),
        (IMAGE > 0.5, floats(1), IMAGE),
        (IMAGE[:1, :1] > 0.5, IMAGE, floats(1)),
    ):
        yield Case("Where", [condition, *choices])
    for mode in ("nearest", "linear"):
        scales = np.array([1, 1, 2, 2], np.float32)
        yield Case("Resize", [IMAGE, None, scales], {"mode": mode}, weights=(2,))
    for op in ("MaxPool", "AveragePool"):
        yield Case(op, [IMAGE], {"kernel_shape": [3, 3], "strides": [2, 2]})
    yield Case("GlobalAveragePool", [IMAGE])
    yield Case("LayerNormalization", [IMAGE, CHANNELS, CHANNELS], weights=(1, 2))
    yield Case("InstanceNormalization", [IMAGE, CHANNELS, CHANNELS], weights=(1, 2))
    yield Case("BatchNormalization", [IMAGE, *4 * [CHANNELS]], weights=(1, 2, 3, 4))
    yield Case("LRN", [IMAGE], {"size": 5})
    yield from layers()
    yield from attention()


def layers() -> Iterator[Case]:
    around = {"pads": [1, 1, 1, 1]}
    for image, weight, attributes in (
        (IMAGE, floats(64, 64, 3, 3), around),
        (IMAGE, floats(256, 64, 1, 1), {}),
        (IMAGE, floats(64, 8, 3, 3), {**around, "group": 8}),
        (floats(1, 512, 14, 14), floats(1024, 512, 7, 7), {}),  # more filters than pixels
        (floats(1, 512, 512), floats(1024, 512, 3), {"strides": [2]}),
        (floats(1, 64, 4, 8, 8), floats(1024, 64, 3, 3, 3), {"pads": [1] * 6}),
    ):
        yield Case("Conv", [image, weight], attributes, weights=(1,))
    for image, weight, attributes in (
        (IMAGE, floats(64, 64, 2, 2), {"strides": [2, 2]}),
        (IMAGE, floats(64, 8, 4, 4), {"strides": [2, 2], "group": 8}),
        (floats(1, 256, 4096), floats(256, 128, 4), {"strides": [2]}),
    ):
        yield Case("ConvTranspose", [image, weight], attributes, weights=(1,))
    rows, columns = floats(512, 1024), floats(1024, 1000)
    yield Case("MatMul", [rows, columns], weights=(1,))
    yield Case("MatMul", [floats(16, 256, 256), floats(16, 256, 256)])
    yield Case("Gemm", [rows, columns.T.copy()], {"transB": 1}, weights=(1,))
    yield Case("FusedMatMul", [rows, columns], weights=(1,), domain=CONTRIB)
    for op, gates, outputs in (("LSTM", 4, 3), ("GRU", 3, 2), ("RNN", 1, 2)):
        for direction in ("forward", "bidirectional"):
            ways = 1 + (direction == "bidirectional")
            weights = [floats(ways, gates * 128, size) for size in (256, 128)]
            attributes = {"hidden_size": 128, "direction": direction}
            yield Case(op, [floats(256, 8, 256), *weights], attributes, (1, 2), outputs)


def attention() -> Iterator[Case]:
    tokens = floats(2, 512, 256)
    yield Case("FastGelu", [tokens, floats(256)], domain=CONTRIB)
    yield Case("FastGelu", [tokens], domain=CONTRIB)
    yield Case("QuickGelu", [tokens], domain=CONTRIB)
    yield Case("SkipLayerNormalization", [tokens, tokens, floats(256)], weights=(2,),
               domain=CONTRIB)  # fmt: skip
    projection = [floats(256, 768), floats(768)]
    yield Case("Attention", [tokens, *projection], {"num_heads": 8}, (1, 2), domain=CONTRIB)
    yield Case("MultiHeadAttention", 3 * [tokens], {"num_heads": 8}, domain=CONTRIB)
    yield Case("Attention", 3 * [floats(2, 8, 512, 32)], opset=23)


@pytest.fixture(scope="module")
def observe() -> Iterator[Callable[[Case], Observed]]:
    with apart() as observe:
        yield observe


@pytest.mark.parametrize("case", one_in(9, cases()), ids=str)
def test_a_rule_says_what_the_runtime_takes(
    case: Case, observe: Callable[[Case], Observed]
) -> None:
    observed = observe(case)
    predicted = workspace(observed.brick, threads=1)
    assert predicted is not None
    assert observed.workspace_bytes == pytest.approx(sum(predicted), abs=TOLERANCE_BYTES)


def brick(op: str, *dims: tuple[int, ...], dtype: str = "FLOAT", **attributes: object) -> Brick:
    inputs = [value(f"x{i}", list(shape), dtype) for i, shape in enumerate(dims)]
    proto = one_node(op, inputs, [value("y", list(dims[0]), dtype)], **attributes)
    types = {"y": TensorType(dtype, dims[0])}
    return Cutter(graph_of(proto, types)).cut((0,)).brick


def test_what_nobody_has_a_rule_for_is_unknown() -> None:
    assert workspace(brick("Det", (4, 4)), threads=1) is None
    half = brick("Conv", (1, 8, 8, 8), (8, 8, 1, 1), dtype="FLOAT16")
    assert workspace(half, threads=1) is None
    assert workspace(brick("Relu", (4, 4)), threads=1) == ()


def test_convolutions_unfold_a_segment_for_each_thread() -> None:
    conv = brick("Conv", (1, 64, 64, 64), (64, 64, 3, 3), pads=[1, 1, 1, 1])
    one, two = (workspace(conv, threads) for threads in (1, 2))
    assert one is not None and two is not None
    assert sum(two) == 2 * sum(one) > 0
