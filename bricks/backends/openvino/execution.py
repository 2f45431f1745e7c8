"""The graph that a compiled model executes: kernels, the source nodes in each, and layouts.

OpenVINO tells it as a graph of its own (``get_runtime_model``). Source nodes are identified by
their names, so the model is compiled with names that say their positions. Must not know bricks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import openvino as ov

from bricks.backends.openvino.compiling import translated
from bricks.backends.openvino.wrapping import ADDED
from bricks.graph.topology import captured

_POSITION = re.compile(r"n(\d+)(?:\D.*)?")

# Operators of nodes that stand for constants.
MADE_CONSTANTS = frozenset(("Constant", "ConstantOfShape"))

# The layout that ONNX has, whatever the number of axes.
PLANAR = "planar"

# What is no work: inputs, outputs and constants.
_ENDS = frozenset(("Input", "Parameter", "Output", "Result"))
_CONSTANTS = frozenset(("Const", "Constant"))

_CONVERSION, _REORDERING = "Convert", "Reorder"

# Another view of a value, which takes no time.
_VIEW = "Reshape"

# Ends the name of a conversion of layouts that moves nothing.
_FREE = "_fake"


@dataclass(frozen=True, slots=True)
class Kernel:
    """A node of the executed graph, at the position ``order`` in it.

    ``kind`` and ``primitive`` are OpenVINO's names of its operator and its implementation,
    ``precision`` is that in which it computes; ``layouts`` and ``stored`` tell the layouts and the
    precisions of its outputs.
    ``origins`` are the names of the nodes in it, ``positions`` those that source nodes have in the
    graph, ``sources`` the kernels and their outputs
    that its inputs come from. A ``constant`` one runs once, if at all, for all its sources are. One
    ``at_end`` converts an input or output, which is no node's work. One that ``leaves`` makes an
    output. One that does not ``move`` anything changes between layouts that are the same for a
    value of one pixel.
    """

    name: str
    origins: tuple[str, ...]
    kind: str
    primitive: str
    precision: str
    layouts: tuple[str, ...]
    stored: tuple[str, ...]
    positions: frozenset[int]
    sources: tuple[tuple[int, int], ...]
    order: int
    constant: bool
    at_end: bool = False
    leaves: bool = False
    moves: bool = True

    @property
    def works(self) -> bool:
        """Whether it is more than an input, an output, a constant, or another view of a value."""
        return not (self.constant or self.kind in _ENDS or self.free or self.added or self.at_end)

    @property
    def converts(self) -> bool:
        """Whether OpenVINO has added it to convert a type."""
        return self.kind == _CONVERSION and not self.positions

    def prepares(self, end: Kernel) -> bool:
        """Whether it is there only because an output is as it is.

        An output that was added has the layout in which a kernel leaves the value, so whatever
        changes that is no work of the brick.
        """
        return self.converts or (end.added and self.kind == _REORDERING and not self.positions)

    @property
    def added(self) -> bool:
        """Whether it is there only to give a brick its inputs, or to take its outputs.

        What changes the layout of a value that was added does so in the model, too.
        """
        return all(name.startswith(ADDED) for name in self.origins or (self.name,)) and (
            self.kind != _REORDERING
        )

    @property
    def free(self) -> bool:
        """Whether it only changes how a value is seen."""
        return self.kind == _VIEW or self.name.endswith(_FREE) or not self.moves

    @property
    def form(self) -> tuple[str, ...]:
        """What must be the same wherever its source nodes run."""
        return (self.kind, self.primitive, self.precision, *self.layouts)

    @property
    def lays_out(self) -> bool:
        """Whether it is there only to bring an output into its layout."""
        return self.leaves and self.kind == _REORDERING and not self.positions

    def layout(self, output: int = 0) -> str:
        """The layout of an output."""
        return self.layouts[output if output < len(self.layouts) else 0]


def named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``proto`` whose nodes are named after their positions.

    So are outputs, whose names OpenVINO gives to what makes them. Constants are not: OpenVINO
    merges equal ones, which would join all kernels that read them.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    inner = {name for node in copy.graph.node for name in captured(node)}
    outputs = {value.name for value in copy.graph.output}.difference(inner)
    own: dict[str, str] = {}
    for position, node in enumerate(copy.graph.node):
        node.name = f"{'c' if node.op_type in MADE_CONSTANTS else 'n'}{position}"
        own |= {
            name: f"{node.name}:{number}"
            for number, name in enumerate(node.output)
            if name in outputs
        }
    for node in copy.graph.node:
        node.input[:] = [own.get(name, name) for name in node.input]
        node.output[:] = [own.get(name, name) for name in node.output]
    for value in copy.graph.output:
        value.name = own.get(value.name, value.name)
    return copy


def kernels(compiled: ov.CompiledModel) -> list[Kernel]:
    """The kernels of a compiled model, in an order in which each comes after its sources."""
    with translated("telling what it executes"):
        ops = compiled.get_runtime_model().get_ordered_ops()
        numbers = {op.get_name(): number for number, op in enumerate(ops)}
        found: list[Kernel] = []
        for op in ops:
            kernel = _kernel(op, numbers)
            sources = [found[source] for source, _ in kernel.sources]
            constant = all(k.constant for k in sources) if sources else kernel.constant
            from_end = kernel.converts and any(k.kind in _ENDS for k in sources)
            moves = kernel.kind != _REORDERING or any(
                k.layout(n) != kernel.layout()
                for k, (_, n) in zip(sources, kernel.sources, strict=True)
            )
            found.append(replace(kernel, constant=constant, at_end=from_end, moves=moves))
            for source, _ in kernel.sources if kernel.kind in _ENDS else ():
                at_end = found[source].at_end or found[source].prepares(kernel)
                found[source] = replace(found[source], leaves=True, at_end=at_end)
    return found


def _kernel(op: Any, numbers: Mapping[str, int]) -> Kernel:
    info = {key: _text(value) for key, value in op.get_rt_info().items()}
    sources = [value.get_source_output() for value in op.inputs()]
    order = info.get("execOrder", "")
    origins = [name.strip() for name in info.get("originalLayersNames", "").split(",")]
    return Kernel(
        name=op.get_friendly_name(),
        origins=tuple(filter(None, origins)),
        kind=info.get("layerType", ""),
        primitive=info.get("primitiveType", ""),
        precision=info.get("runtimePrecision", ""),
        layouts=_layouts(op, info.get("outputLayouts", "").split(",")),
        positions=_positions(origins),
        stored=tuple(info.get("outputPrecisions", "").split(",")),
        sources=tuple(
            (numbers[source.get_node().get_name()], source.get_index()) for source in sources
        ),
        order=int(order) if order.lstrip("-").isdecimal() else -1,
        constant=info.get("layerType") in _CONSTANTS,
    )


def _layouts(op: Any, told: Sequence[str]) -> tuple[str, ...]:
    """The layouts of outputs; planar where it is the same, since only channels have a size."""
    found = []
    for number, output in enumerate(op.outputs()):
        layout = told[number if number < len(told) else 0]
        shape = output.get_partial_shape()
        plain = "abcdefgh"[: len(layout)]
        sizes = [size.get_length() for size in shape] if shape.is_static else []
        alike = len(sizes) > 2 and (sizes[1] == 1 or all(size == 1 for size in sizes[2:]))
        same = layout == plain or (alike and sorted(layout) == sorted(plain))
        found.append(PLANAR if same else layout)
    return tuple(dict.fromkeys(found)) if len(set(found)) == 1 else tuple(found)


def _positions(names: Sequence[str]) -> frozenset[int]:
    return frozenset(int(m[1]) for name in names if (m := _POSITION.fullmatch(name)))


def _text(value: Any) -> str:
    return str(getattr(value, "value", value))
