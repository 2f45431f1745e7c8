"""Operators that large inputs slow down, and the clamp to -1 … 1 which runs before them.

A tiny result of ``exp`` is a denormal number, on which processors compute up to twenty times
slower; sines of large numbers are slow too. Trained models produce hardly any such numbers. A walk
over some of a model's bricks may omit the normalising ones, so that activations grow from pass to
pass; the clamp keeps them small. Must not know what is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx
from onnx import TensorProto, helper

from bricks.backends.onnx_instruments.input_overwrites import float32_inputs, overwriting_model
from bricks.graph.topology import all_nodes

# Found by running some fifty operators with ONNX Runtime on inputs of magnitudes from 1e-25 to
# 1e30. Attention is listed because it contains a softmax.
_MAGNITUDE_SENSITIVE = frozenset(
    (
        *("Softmax", "LogSoftmax", "BiasSoftmax", "Exp", "Softplus", "Mish"),
        *("Elu", "Selu", "Celu", "Sin", "Cos", "Tan"),
        *("Attention", "MultiHeadAttention", "GroupQueryAttention"),
    )
)

# The range of synthetic inputs (see ``graph.synthesis``).
_LIMIT = 1.0


@dataclass(frozen=True, slots=True)
class InputClamp:
    """The clamp of an input of so many ``elements``."""

    elements: int
    key: ClassVar[str] = "input clamp"

    def models(self) -> Sequence[onnx.ModelProto]:
        """A single Clip."""
        limits = {"low": -_LIMIT, "high": _LIMIT}
        clip = helper.make_node("Clip", ["in", "low", "high"], ["out"])
        bounds = [helper.make_tensor(n, TensorProto.FLOAT, [], [v]) for n, v in limits.items()]
        return [overwriting_model("input_clamp", [clip], self.elements, bounds)]


def clamps(proto: onnx.ModelProto) -> dict[int, InputClamp]:
    """The clamps that run before ``proto``, by position of the input."""
    if not any(node.op_type in _MAGNITUDE_SENSITIVE for node in all_nodes(proto.graph)):
        return {}
    return {position: InputClamp(elements) for position, _, elements in float32_inputs(proto)}
