"""NonMaxSuppression selects about as many boxes of a sketch as boxes of the sketch's model."""

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from factories import node, value
from onnx import TensorProto, helper, numpy_helper

from bricks.graph.sketch import QUANTILES, Sketch
from bricks.graph.suppression import selected_count, suppression_sketch

BOXES, CLASSES = 400, 3


def suppressing(overlap: float, *, centred: bool, most: int = 1000) -> onnx.ModelProto:
    constants = {
        "most": np.array([most]),
        "overlap": np.float32([overlap]),
        "least": np.float32([0.3]),
    }
    picking = node(
        "NonMaxSuppression",
        ["boxes", "scores", *constants],
        ["picked"],
        center_point_box=int(centred),
    )
    graph = helper.make_graph(
        [picking],
        "suppressing",
        [value("boxes", [1, BOXES, 4]), value("scores", [1, CLASSES, BOXES])],
        [helper.make_tensor_value_info("picked", TensorProto.INT64, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(proto: onnx.ModelProto, boxes: np.ndarray, scores: np.ndarray) -> dict[str, np.ndarray]:
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = {"boxes": boxes, "scores": scores}
    constants = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    return {**inputs, **constants, "picked": session.run(None, inputs)[0]}


def boxes_of(spread: float, *, centred: bool) -> np.ndarray:
    rng = np.random.default_rng(0)
    centres = rng.normal(0, spread, (BOXES, 2))
    sizes = np.exp(rng.normal(0, 0.3, (BOXES, 2)))
    ends = (centres, sizes) if centred else (centres - sizes / 2, centres + sizes / 2)
    return np.concatenate(ends, axis=1).astype(np.float32)[None]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("overlap", [0.2, 0.5, 0.9])
def test_about_as_many_are_picked(overlap: float, spread: float, centred: bool) -> None:
    proto = suppressing(overlap, centred=centred)
    scores = np.random.default_rng(1).uniform(0, 1, (1, CLASSES, BOXES)).astype(np.float32)
    values = run(proto, boxes_of(spread, centred=centred), scores)
    sketch = suppression_sketch(proto.graph.node[0], values)
    assert sketch is not None
    drawn = sketch.drawn(values["boxes"], 0)
    again = run(proto, drawn, Sketch.of(scores, (QUANTILES,)).drawn(scores, 0))
    expected, selected = len(values["picked"]), len(again["picked"])
    assert selected == pytest.approx(expected, rel=0.3, abs=2 * CLASSES)


def test_at_most_as_many_are_picked_as_are_wanted() -> None:
    proto = suppressing(0.9, centred=False, most=5)
    scores = np.random.default_rng(1).uniform(0, 1, (1, CLASSES, BOXES)).astype(np.float32)
    values = run(proto, boxes_of(1.0, centred=False), scores)
    sketch = suppression_sketch(proto.graph.node[0], values)
    assert sketch is not None
    assert len(run(proto, sketch.drawn(values["boxes"], 0), scores)["picked"]) == 5 * CLASSES


def test_boxes_are_picked_as_the_operator_picks_them() -> None:
    scores = -np.arange(BOXES, dtype=np.float32).reshape(1, 1, BOXES).repeat(CLASSES, 1) / BOXES + 2
    boxes = boxes_of(1.0, centred=True)
    for overlap in (0.1, 0.5, 0.8):
        picked = run(suppressing(overlap, centred=True), boxes, scores)["picked"]
        assert selected_count(boxes[0], overlap, BOXES) == len(picked) / CLASSES


def test_nothing_is_said_where_nothing_was_seen() -> None:
    assert suppression_sketch(suppressing(0.5, centred=False).graph.node[0], {}) is None
