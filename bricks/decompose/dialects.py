"""What is known of the nodes of each form of model: one row of functions a form.

Operators of ONNX and calls of recorded programs are described in modules of their own; whoever cuts
or walks a graph asks the row of a node. Must not know runtimes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx

from bricks.decompose.node_work import node_flops
from bricks.decompose.program_work import call_flops
from bricks.graph.call_values import decisive_arguments, sketched_arguments
from bricks.graph.containers import ValueType
from bricks.graph.form import ModelForm, node_form
from bricks.graph.sketch import Sketch
from bricks.graph.value_dependence import decisive_inputs, sketched_inputs

Types = Mapping[str, ValueType]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How to read nodes of one form, whose values have ``types``.

    ``flops`` are the operations of a node, None where they are unknown. ``decisive`` are the names
    of inputs whose values always decide how long it takes. ``sketched`` are those of ``sketches``,
    by the names of values, that tell of what nodes read as far as their time depends on it. Tiny
    nodes that are ``fusible`` may be measured together.
    """

    flops: Callable[[onnx.NodeProto, Types], int | None]
    decisive: Callable[[onnx.NodeProto, Types], list[str]]
    sketched: Callable[
        [Sequence[onnx.NodeProto], Types, Mapping[str, Sketch]], Mapping[str, Sketch]
    ]
    fusible: bool


DIALECTS: Mapping[ModelForm, Dialect] = {
    ModelForm.MODELS: Dialect(node_flops, decisive_inputs, sketched_inputs, fusible=True),
    ModelForm.PROGRAMS: Dialect(call_flops, decisive_arguments, sketched_arguments, fusible=False),
}


def dialect_of(node: onnx.NodeProto) -> Dialect:
    """The row of a node, which is that of all nodes of its model."""
    return DIALECTS[node_form(node)]


def decisive_values(node: onnx.NodeProto, types: Types) -> list[str]:
    """The names of inputs whose values always decide how long ``node`` takes."""
    return dialect_of(node).decisive(node, types)
