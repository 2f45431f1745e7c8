"""The graph that a compiled model executes: kernels, the source nodes in each, and layouts.

OpenVINO describes it as a graph of its own (``get_runtime_model``). Source nodes are identified by
their names, so the model is compiled with names that say their positions. Must not know bricks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import onnx
import openvino as ov

from bricks.backends.openvino.boundary import ADAPTER
from bricks.backends.openvino.compiled import translated
from bricks.graph.model import Graph
from bricks.graph.topology import captured, renamed
from bricks.graph.types import TensorType

_POSITION = re.compile(r"n(\d+)(?:\D.*)?")

# Operators of nodes that stand for constants.
CONSTANT_NODES = frozenset(("Constant", "ConstantOfShape"))

# ONNX's layout, for any number of axes.
PLANAR = "planar"

# Kinds of nodes that compute nothing: inputs, outputs and constants.
PORTS = frozenset(("Input", "Parameter", "Output", "Result"))
_CONSTANTS = frozenset(("Const", "Constant"))

_CONVERSION, _REORDER = "Convert", "Reorder"

# Another view of a value, which takes no time.
VIEW = "Reshape"

# Ends the name of a conversion of layouts that moves nothing.
_FREE = "_fake"


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A node of the executed graph, at the position ``order`` in it.

    ``kind`` and ``primitive`` are OpenVINO's names of its operator and its implementation,
    ``precision`` is that in which it computes; ``layouts`` and ``output_precisions`` are those of
    its outputs. ``origins`` are the names of the source nodes in it, ``positions`` their positions
    in the source graph, ``sources`` the kernels that its inputs come from, with the number of the
    output. A ``constant`` kernel reads constants alone, and runs once at most. A kernel
    ``at_boundary`` converts an input or output of the model, which is no node's work. One that
    ``feeds_output`` makes an output. One that does not ``move_data`` changes between layouts that
    are the same for a value of one pixel.
    """

    name: str
    origins: tuple[str, ...]
    kind: str
    primitive: str
    precision: str
    layouts: tuple[str, ...]
    output_precisions: tuple[str, ...]
    positions: frozenset[int]
    sources: tuple[tuple[int, int], ...]
    order: int
    constant: bool
    at_boundary: bool = False
    feeds_output: bool = False
    moves_data: bool = True

    @property
    def computes(self) -> bool:
        """Whether it is neither an input, an output, a constant, nor another view of a value."""
        return not (
            self.constant
            or self.kind in PORTS
            or self.is_view
            or self.is_adapter
            or self.at_boundary
        )

    @property
    def is_conversion(self) -> bool:
        """Whether OpenVINO has added it to convert a type."""
        return self.kind == _CONVERSION and not self.positions

    @property
    def is_adapter(self) -> bool:
        """Whether it only gives a brick its inputs, or takes its outputs.

        A change of the layout of such a value is none: it happens in the model, too.
        """
        names = self.origins or (self.name,)
        return self.kind != _REORDER and all(name.startswith(ADAPTER) for name in names)

    @property
    def is_view(self) -> bool:
        """Whether it makes another view of a value, without moving data."""
        return self.kind == VIEW or self.name.endswith(_FREE) or not self.moves_data

    @property
    def signature(self) -> tuple[str, ...]:
        """Kind, primitive, precision and layouts: equal kernels run equally long."""
        return (self.kind, self.primitive, self.precision, *self.layouts)

    @property
    def reorders_output(self) -> bool:
        """Whether OpenVINO has added it to bring an output of the model into its layout."""
        return self.feeds_output and self.kind == _REORDER and not self.positions

    def layout(self, output: int = 0) -> str:
        """The layout of an output."""
        return self.layouts[output if output < len(self.layouts) else 0]

    def adapts_to(self, output: CompiledKernel, made_by: Sequence[frozenset[int]]) -> bool:
        """Whether it only brings a value into the type or layout of an ``output`` that reads it.

        An adapter has the layout in which a kernel leaves the value, so that a change of layout
        before it is no work of the brick. ``made_by`` are the positions of the kernels that it
        reads: OpenVINO names a conversion of a second output, such as the indices of a TopK, after
        the node that makes it.
        """
        reorders = output.is_adapter and self.kind == _REORDER and not self.positions
        converts = self.kind == _CONVERSION and self.positions <= frozenset().union(*made_by)
        return converts or reorders


def named(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of ``proto`` whose nodes are named after their positions.

    So are outputs, whose names OpenVINO gives to their producers. Constants are not: OpenVINO
    merges equal ones, which would join all kernels that read them.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    inner = {name for node in proto.graph.node for name in captured(node)}
    outputs = {value.name for value in proto.graph.output}.difference(inner)
    names: dict[str, str] = {}
    for position, node in enumerate(copy.graph.node):
        node.name = f"{'c' if node.op_type in CONSTANT_NODES else 'n'}{position}"
        for number, name in enumerate(node.output):
            if name in outputs:
                names[name] = f"{node.name}:{number}"
    nodes = [renamed(node, names) for node in copy.graph.node]
    del copy.graph.node[:]
    copy.graph.node.extend(nodes)
    for value in copy.graph.output:
        value.name = names.get(value.name, value.name)
    return copy


def kernels(compiled: ov.CompiledModel) -> list[CompiledKernel]:
    """The kernels of a compiled model, each after its sources."""
    with translated("telling what it executes"):
        ops = compiled.get_runtime_model().get_ordered_ops()
        numbers = {op.get_name(): number for number, op in enumerate(ops)}
        result: list[CompiledKernel] = []
        for op in ops:
            info = {key: str(getattr(v, "value", v)) for key, v in op.get_rt_info().items()}
            sources = [value.get_source_output() for value in op.inputs()]
            order = info.get("execOrder", "")
            origins = [name.strip() for name in info.get("originalLayersNames", "").split(",")]
            kernel = CompiledKernel(
                name=op.get_friendly_name(),
                origins=tuple(filter(None, origins)),
                kind=info.get("layerType", ""),
                primitive=info.get("primitiveType", ""),
                precision=info.get("runtimePrecision", ""),
                layouts=_layouts(op, info.get("outputLayouts", "").split(",")),
                output_precisions=tuple(info.get("outputPrecisions", "").split(",")),
                positions=frozenset(
                    int(m[1]) for name in origins if (m := _POSITION.fullmatch(name))
                ),
                sources=tuple(
                    (numbers[source.get_node().get_name()], source.get_index())
                    for source in sources
                ),
                order=int(order) if order.lstrip("-").isdecimal() else -1,
                constant=info.get("layerType") in _CONSTANTS,
            )
            result.append(_in_context(kernel, [result[source] for source, _ in kernel.sources]))
            for number, _ in kernel.sources if kernel.kind in PORTS else ():
                source = result[number]
                made_by = [result[made].positions for made, _ in source.sources]
                at_boundary = source.at_boundary or source.adapts_to(kernel, made_by)
                result[number] = replace(source, feeds_output=True, at_boundary=at_boundary)
    return result


def own_shapes(model: ov.Model, graph: Graph) -> dict[str, TensorType]:
    """The types of values to which OpenVINO gives another shape than ONNX, by name.

    ``model`` is ``graph`` as OpenVINO has read it, before it is compiled; its outputs may have
    other names. OpenVINO then computes with its own shape, whatever the ONNX file specifies.
    """
    with translated("telling the shapes of its values"):
        ends = [(name, end) for op in model.get_ops() for end in op.outputs()
                for name in end.get_names()]  # fmt: skip
        ends += zip(graph.outputs, model.outputs, strict=True)
        shapes = {
            name: tuple(size.get_length() for size in end.get_partial_shape())
            for name, end in ends
            if end.get_partial_shape().is_static
        }
    return {
        name: TensorType(type_.dtype, shapes[name])
        for name, type_ in graph.types.items()
        if isinstance(type_, TensorType) and shapes.get(name, type_.shape) != type_.shape
    }


def _in_context(kernel: CompiledKernel, sources: Sequence[CompiledKernel]) -> CompiledKernel:
    return replace(
        kernel,
        constant=all(k.constant for k in sources) if sources else kernel.constant,
        at_boundary=kernel.is_conversion and any(k.kind in PORTS for k in sources),
        moves_data=kernel.kind != _REORDER
        or any(
            source.layout(output) != kernel.layout()
            for source, (_, output) in zip(sources, kernel.sources, strict=True)
        ),
    )


def _layouts(op: Any, stated: Sequence[str]) -> tuple[str, ...]:
    """The layouts of outputs: planar where memory is the same, since only channels have a size."""
    layouts = []
    for number, output in enumerate(op.outputs()):
        layout = stated[number if number < len(stated) else 0]
        shape = output.get_partial_shape()
        planar = "abcdefgh"[: len(layout)]
        sizes = [size.get_length() for size in shape] if shape.is_static else []
        flat = len(sizes) > 2 and (sizes[1] == 1 or all(size == 1 for size in sizes[2:]))
        same = layout == planar or (flat and sorted(layout) == sorted(planar))
        layouts.append(PLANAR if same else layout)
    return tuple(layouts[:1]) if len(set(layouts)) == 1 else tuple(layouts)
