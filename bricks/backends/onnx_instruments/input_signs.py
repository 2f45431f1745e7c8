"""Signs, or magnitudes, of a model's values, written before operators whose time depends on them.

See ``graph.sketch``. The walk that measures a brick omits some of the bricks before it, and its
weights are others than the model's, so the values that the brick would read there are others too.
The signs change with each run: a processor's branch predictor learns tens of thousands of signs
that come again and again, and no deployed model reads the same input twice. Must not know what is
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import onnx
from onnx import helper, numpy_helper

from bricks.backends.onnx_instruments.input_overwrites import float32_inputs, overwriting_model
from bricks.backends.rotation import sets_in_turn
from bricks.graph.distributions import sign_pattern
from bricks.graph.model_metadata import noted_sketches

if TYPE_CHECKING:
    from bricks.graph.sketch import Sketch


# Each set is a session; further ones would take longer to load than they are worth.
_MOST_MODELS = 16


@dataclass(frozen=True, slots=True)
class InputSigns:
    """The signs of an input of so many ``elements``, which a ``sketch`` describes."""

    elements: int
    sketch: Sketch
    key: ClassVar[str] = "input signs"

    def models(self) -> Sequence[onnx.ModelProto]:
        """One model for each set of signs."""
        count = min(_MOST_MODELS, sets_in_turn(self.elements))
        return [self._model(seed) for seed in range(count)]

    def _model(self, seed: int) -> onnx.ModelProto:
        """Magnitudes times signs; a sketch with a size replaces the magnitudes too."""
        sketch, nodes = self.sketch, [helper.make_node("Abs", ["in"], ["size"])]
        if sketch.log_size is None:
            negative, changes = sketch.negative or 0.0, sketch.changes or 0.0
            constants = {"signs": sign_pattern(self.elements, negative, changes, seed)}
        else:
            ones = np.ones(self.elements, np.float32)
            constants = {"one": np.ones((), np.float32), "signs": sketch.drawn(ones, seed)}
            nodes.append(helper.make_node("Clip", ["size", "one", "one"], ["ones"]))
        nodes.append(helper.make_node("Mul", [*nodes[-1].output, "signs"], ["out"]))
        tensors = [numpy_helper.from_array(array, name) for name, array in constants.items()]
        return overwriting_model("input_signs", nodes, self.elements, tensors)


def signs(proto: onnx.ModelProto) -> dict[int, InputSigns]:
    """The signs that are written before ``proto`` runs, by position of the input."""
    noted = noted_sketches(proto)
    sketches = {name: sketch for name, sketch in noted.items() if sketch.signs_only}
    if not sketches:
        return {}
    return {
        position: InputSigns(elements, sketches[name])
        for position, name, elements in float32_inputs(proto)
        if name in sketches
    }
