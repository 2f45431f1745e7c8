"""Inputs and outputs in the layout that a model has them in, for a brick that is compiled alone.

Inside a model, OpenVINO keeps images channels-last. A brick alone would get them planar, and
convert. So its inputs and outputs are declared with the channels as the last axis, and transposed:
OpenVINO sees that such a transposition and its own conversion undo each other, and does neither.

All but convolutions take the layout that comes to them. So a brick without any gets its inputs from
a convolution that passes them on, as what is before the brick does in the model. The time of that
one is not the brick's.

Must not know why a value has a layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from bricks.backends.openvino.compiling import translated
from bricks.errors import BackendError

# The layouts of values whose channels are last, as OpenVINO spells them, by rank.
CHANNELS_LAST = {3: "acb", 4: "acdb", 5: "acdeb"}
_IMAGE = 4

# Operators that choose a layout, and the beginning of the names of those that are added.
_CHOOSING = frozenset(
    (
        *("Convolution", "GroupConvolution", "DeformableConvolution"),
        *("ConvolutionBackpropData", "GroupConvolutionBackpropData"),
    )
)
# What may be part of a convolution, which then decides.
_PART = "Add"
# What moves values, or shows them anew.
_MOVING = frozenset(
    (
        *("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Split", "VariadicSplit", "Concat"),
        *("Gather", "StridedSlice", "Slice", "Tile", "Broadcast", "DepthToSpace", "SpaceToDepth"),
    )
)
_CONVERTING, _F32, _BF16 = "Convert", ov.Type.f32, ov.Type.bf16
ADDED = "added"


def is_channels_last(layout: str, rank: int) -> bool:
    """Whether a value of this rank has its channels last."""
    return CHANNELS_LAST.get(rank) == layout


def wrapped(model: ov.Model, last: Mapping[str, str], values: Mapping[str, np.ndarray]) -> ov.Model:
    """A brick with the inputs and outputs named in ``last`` channels-last.

    The inputs in ``values`` become constants, since what follows from them is fixed in a model. An
    output that the brick reads itself leaves it as one row: OpenVINO ends a kernel at an output,
    but not at a reader or another view.
    """
    with translated("declaring its inputs and outputs"):
        choosing = any(op.get_type_name() in _CHOOSING for op in model.get_ops())
        _drop_conversions(model)
        results = []
        for number, result in enumerate(model.get_results()):
            value = result.input_value(0)
            if _is_conversion(value, _BF16):
                value.get_node().set_friendly_name(f"{ADDED}output{number}")
            if _name(value, last):
                result = _output(result, sequence=choosing)
            elif len(value.get_target_inputs()) > 1 and value.get_partial_shape().is_static:
                row = ops.reshape(value, ops.constant([-1], np.int64), False)
                result = ops.result(row)
            results.append(result)
        kept: list[ov.Node] = []
        for parameter in model.get_parameters():
            name = _name(parameter.output(0))
            if name in values:
                _replace(parameter.output(0), ops.constant(values[name]).output(0))
            elif name in last:
                own, plain = _input(parameter)
                kept.append(own)
                ends = _numbers(parameter)
                if ends and not _taken(ends, choosing):
                    passed = _passed_on(plain, f"{ADDED}{len(kept)}")
                    results.append(_output(ops.result(passed), sequence=True))
                    for end in ends:
                        _replace(end, _as_read(end, passed).output(0))
                else:
                    _replace(parameter.output(0), plain.output(0))
            else:
                kept.append(parameter)
        return ov.Model(results, kept, "brick")


def moved(values: np.ndarray) -> np.ndarray:
    """An array of a logical shape as its channels-last input wants it."""
    return np.ascontiguousarray(np.moveaxis(values, 1, -1))


def moved_back(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse, for an output, whose logical shape this is."""
    apart = values.reshape(shape[0], *shape[2:], shape[1])
    return np.moveaxis(apart, -1, 1)


def _name(output: ov.Output, among: Mapping[str, str] | None = None) -> str:
    names = sorted(output.get_names())
    if among is not None:
        return next((name for name in names if name in among), "")
    return names[0] if names else ""


def _replace(old: ov.Output, new: ov.Output) -> None:
    for target in old.get_target_inputs():
        target.replace_source_output(new)


def _input(parameter: ov.Node) -> tuple[ov.Node, ov.Node]:
    """A parameter for a value whose channels are last, and the value as ``parameter`` has it."""
    shape = list(parameter.output(0).get_shape())
    own = ops.parameter([shape[0], *shape[2:], shape[1]], parameter.output(0).get_element_type())
    order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
    return own, ops.transpose(own, ops.constant(order, np.int64))


def _is_conversion(value: ov.Output, to: ov.Type) -> bool:
    return bool(value.get_node().get_type_name() == _CONVERTING and value.get_element_type() == to)


def _drop_conversions(model: ov.Model) -> None:
    """Drop those to bfloat16 and back: kernels that a brick contains pass on what they want.

    What only moves values from bfloat16 to bfloat16 moves these.
    """
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        if kind == _CONVERTING and _is_conversion(op.input_value(0), _BF16):
            _replace(op.output(0), op.input_value(0).get_node().input_value(0))
        elif kind in _MOVING:
            _move_as_stored(op)


def _move_as_stored(op: ov.Node) -> None:
    """Let ``op`` read and make bfloat16 if it does so but for conversions."""
    numbers = [port for port in op.inputs() if port.get_element_type() == _F32]
    sources = [port.get_source_output().get_node() for port in numbers]
    made = [
        target.get_node().output(0) for end in op.outputs() for target in end.get_target_inputs()
    ]
    converted = all(
        node.get_type_name() == _CONVERTING and node.get_input_element_type(0) == _BF16
        for node in sources
    )
    if converted and all(_is_conversion(value, _BF16) for value in made):
        for port, node in zip(numbers, sources, strict=True):
            port.replace_source_output(node.input_value(0))
        op.validate_and_infer_types()
        for value in made:
            own = value.get_node().input_value(0)
            own.add_names(value.get_names())
            _replace(value, own)


def _numbers(parameter: ov.Node) -> list[ov.Output]:
    """An input of numbers: as it is, or as its conversions to float32; empty for all others."""
    value = parameter.output(0)
    if value.get_element_type() not in (_F32, _BF16):
        return []
    readers = [target.get_node().output(0) for target in value.get_target_inputs()]
    converted = bool(readers) and all(_is_conversion(reader, _F32) for reader in readers)
    return readers if converted else [value]


def _as_read(end: ov.Output, value: ov.Node) -> ov.Node:
    """``value``, which is in float32, in the type of ``end``, which it is to replace."""
    if end.get_element_type() == _F32:
        return value
    found = ops.convert(value, end.get_element_type())
    found.set_friendly_name(f"{value.get_friendly_name()}_converted")
    return found


def _taken(values: Sequence[ov.Output], choosing: bool) -> bool:
    """Whether a reader of ``values``, which are one input, chooses its layout.

    ``choosing`` is whether there are convolutions.
    """
    readers = {
        target.get_node().get_type_name()
        for value in values
        for target in value.get_target_inputs()
    }
    return bool(readers & _CHOOSING) or (choosing and _PART in readers)


def _passed_on(value: ov.Node, name: str) -> ov.Node:
    """The same value, in float32, from a convolution that multiplies each channel by one.

    It must be read twice: what is done with its result alone would be part of it.
    """
    if value.output(0).get_element_type() != _F32:
        value = ops.convert(value, _F32)
    shape = list(value.output(0).get_shape())
    rank = len(shape) - 2
    ones = ops.constant(np.ones([shape[1], 1, 1, *([1] * rank)], np.float32))
    steady, none = [1] * rank, [0] * rank
    found = ops.group_convolution(value, ones, steady, none, none, steady)
    found.set_friendly_name(name)
    return found


def _output(result: ov.Node, *, sequence: bool) -> ov.Node:
    """A result whose channels are last, in place of ``result``.

    As a ``sequence`` of pixels: OpenVINO does not undo the transposition of an image right behind a
    convolution that adds in place.
    """
    value = result.input_value(0)
    shape = list(value.get_shape())
    if len(shape) < len("acb"):
        raise BackendError(f"a value of shape {shape} has no channels to be last")
    if sequence and len(shape) == _IMAGE:
        value = ops.reshape(value, ops.constant([0, 0, -1], np.int64), True).output(0)
        shape = [*shape[:2], shape[2] * shape[3]]
    order = [0, *range(2, len(shape)), 1]
    found = ops.result(ops.transpose(value, ops.constant(order, np.int64)))
    found.set_friendly_name(f"{ADDED}{result.get_friendly_name()}")
    return found
