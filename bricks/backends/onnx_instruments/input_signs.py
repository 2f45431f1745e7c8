"""Signs, or numbers, as in a model, written before operators whose time depends on them.

See ``graph.sketch``. The walk that measures a brick does not hold all that its model runs before
it, and its weights are others, so the numbers that it would read there by itself are others too.
The signs are written untimed, in place, and with all threads, like the step that wrote the numbers.
They are others at each run: a processor's branch predictor learns tens of thousands of signs that
come again and again, and no deployed model reads the same input twice. It must not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bricks.backends.base import Loaded, Placed, Placement
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.sketch import Sketch, pattern
from bricks.graph.tensor import TensorType
from bricks.graph.view import graph_of
from bricks.units.sample import Sample

# Loads a model, by its key.
Load = Callable[[onnx.ModelProto, str], Loaded]

INPUT_SIGNS = "input signs"

# Signs in turn: more than a predictor remembers, in at least two and at most so many patterns.
_SIGNS, _MAX_TURNS = 1 << 18, 16

# The numbers of each input and their signs in the model; None of inputs that stay as they are.
Patterns = Sequence[tuple[int, Sketch] | None]


class InputSigns:
    """The models that write signs, one for each size and pattern."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loaded: dict[tuple[int, Sketch], list[Loaded]] = {}

    def unload(self) -> None:
        """Unload everything."""
        self._loaded.clear()

    def bound(
        self, patterns: Patterns, offsets: Sequence[int | None], region: np.ndarray
    ) -> Iterator[Placed]:
        """What writes the signs of inputs that lie at ``offsets`` into ``region``.

        An input without an offset has memory of its own, whose signs are random.
        """
        for signs, offset in zip(patterns, offsets, strict=False):
            if signs is None or offset is None:
                continue
            if signs not in self._loaded:
                turns = min(_MAX_TURNS, max(2, _SIGNS // signs[0]))
                models = (sign_model(*signs, seed) for seed in range(turns))
                self._loaded[signs] = [self._load(model, INPUT_SIGNS) for model in models]
            there = Placement((offset,), (offset,))
            yield _InTurn([each.place(there, region) for each in self._loaded[signs]])


def signed(proto: onnx.ModelProto) -> Patterns:
    """The signs that are written before ``proto`` runs."""
    patterns = {name: each for name, each in noted_sketches(proto).items() if each.signs_alone}
    if not patterns:
        return ()
    graph = graph_of(proto)
    found: list[tuple[int, Sketch] | None] = []
    for name in graph.inputs:
        type_, sketch = graph.types[name], patterns.get(name)
        plain = isinstance(type_, TensorType) and type_.dtype == "FLOAT" and type_.elements
        found.append((type_.elements, sketch) if plain and sketch else None)
    return tuple(found)


class _InTurn:
    """Several that are bound alike, of which each run takes the next."""

    def __init__(self, placed: Sequence[Placed]) -> None:
        self._next = cycle(placed)

    def sample(self) -> Sample:
        """Run the next one; what it took."""
        return next(self._next).sample()


def sign_model(elements: int, sketch: Sketch, seed: int) -> onnx.ModelProto:
    """A model that gives ``elements`` float32 numbers the signs of a ``sketch``, or its sizes."""
    shape = [elements]
    nodes = [helper.make_node("Abs", ["in"], ["size"])]
    held = {}
    if sketch.log_size is None:
        negative, changes = sketch.negative or 0.0, sketch.changes or 0.0
        held["signs"] = pattern(elements, negative, changes, seed)
    else:
        nodes.append(helper.make_node("Clip", ["size", "one", "one"], ["ones"]))
        held |= {
            "one": np.ones((), np.float32),
            "signs": sketch.drawn(np.ones(elements, np.float32), seed),
        }
    nodes.append(helper.make_node("Mul", [*nodes[-1].output, "signs"], ["out"]))
    graph = helper.make_graph(
        nodes,
        "input_signs",
        [helper.make_tensor_value_info("in", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, shape)],
        initializer=[numpy_helper.from_array(v, name) for name, v in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
