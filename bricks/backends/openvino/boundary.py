"""Inputs and outputs of an isolated brick in the layouts that they have in its model.

Inside a model, OpenVINO keeps images channels-last. An isolated brick would get them planar, and
convert. So its inputs and outputs are declared with the channels as the last axis, and transposed:
OpenVINO sees that such a transposition and its own conversion undo each other, and does neither.

All kernels but convolutions take the layout that comes to them. So a brick without convolutions
gets its inputs from an added one, the identity, as the kernels before the brick do in its model.
The time of the added convolution is not the brick's.

Must not know why a value has a layout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import openvino as ov
from openvino import opset13 as ops

from bricks.backends.openvino.compiled import translated
from bricks.errors import BackendError

# OpenVINO's names of layouts with the channels last, by rank.
CHANNELS_LAST = {3: "acb", 4: "acdb", 5: "acdeb"}
_IMAGE_RANK = 4

# The names of added nodes begin so.
ADAPTER = "adapter"

# Operators that choose a layout.
_CONVOLUTIONS = frozenset(
    (
        *("Convolution", "GroupConvolution", "DeformableConvolution"),
        *("ConvolutionBackpropData", "GroupConvolutionBackpropData"),
    )
)
# An operator that may be part of a convolution, which then chooses.
_FUSED = "Add"
# Operators that move values or make other views of them.
_MOVING = frozenset(
    (
        *("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Split", "VariadicSplit", "Concat"),
        *("Gather", "StridedSlice", "Slice", "Tile", "Broadcast", "DepthToSpace", "SpaceToDepth"),
    )
)
_CONVERTING, _F32, _BF16 = "Convert", ov.Type.f32, ov.Type.bf16


def is_channels_last(layout: str, rank: int) -> bool:
    """Whether a value of this rank has its channels last."""
    return CHANNELS_LAST.get(rank) == layout


def with_model_layouts(
    model: ov.Model, channels_last: Mapping[str, str], fixed: Mapping[str, np.ndarray]
) -> ov.Model:
    """A brick whose inputs and outputs named in ``channels_last`` are channels-last.

    The inputs in ``fixed`` become constants, since values that follow from them are fixed in a
    model. An output that the brick reads itself leaves it as one row: OpenVINO ends a kernel at an
    output, but not at a reader or another view.
    """
    with translated("declaring its inputs and outputs"):
        convolves = any(op.get_type_name() in _CONVOLUTIONS for op in model.get_ops())
        _drop_conversions(model)
        results = [
            _result(number, result, channels_last, convolves)
            for number, result in enumerate(model.get_results())
        ]
        parameters: list[ov.Node] = []
        for parameter in model.get_parameters():
            value = parameter.output(0)
            name = min(value.get_names(), default="")
            if name in fixed:
                _replace(value, ops.constant(fixed[name]).output(0))
            elif name not in channels_last:
                parameters.append(parameter)
            else:
                shape = list(value.get_shape())
                own = ops.parameter([shape[0], *shape[2:], shape[1]], value.get_element_type())
                order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
                planar = ops.transpose(own, ops.constant(order, np.int64))
                parameters.append(own)
                floats = _float_views(parameter)
                if floats and not _chooses_layout(floats, convolves):
                    passed = _identity_convolution(planar, f"{ADAPTER}{len(parameters)}")
                    results.append(_channels_last_result(ops.result(passed), as_sequence=True))
                    for view in floats:
                        _replace(view, _in_type_of(view, passed).output(0))
                else:
                    _replace(value, planar.output(0))
        return ov.Model(results, parameters, "brick")


def to_channels_last(values: np.ndarray) -> np.ndarray:
    """An array of a logical shape, as a channels-last input takes it."""
    return np.ascontiguousarray(np.moveaxis(values, 1, -1))


def from_channels_last(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The inverse for an output of a logical ``shape``."""
    return np.moveaxis(values.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


def _replace(old: ov.Output, new: ov.Output) -> None:
    for target in old.get_target_inputs():
        target.replace_source_output(new)


def _result(
    number: int, result: ov.Node, channels_last: Mapping[str, str], convolves: bool
) -> ov.Node:
    value = result.input_value(0)
    if _is_conversion(value, _BF16):
        value.get_node().set_friendly_name(f"{ADAPTER}output{number}")
    if not channels_last.keys().isdisjoint(value.get_names()):
        return _channels_last_result(result, as_sequence=convolves)
    if len(value.get_target_inputs()) > 1 and value.get_partial_shape().is_static:
        return ops.result(ops.reshape(value, ops.constant([-1], np.int64), False))
    return result


def _channels_last_result(result: ov.Node, *, as_sequence: bool) -> ov.Node:
    """A result whose channels are last, in place of ``result``.

    The pixels of an image are one axis with ``as_sequence``: OpenVINO does not undo the
    transposition of an image right behind a convolution that adds in place.
    """
    value = result.input_value(0)
    shape = list(value.get_shape())
    if len(shape) < min(CHANNELS_LAST):
        raise BackendError(f"a value of shape {shape} has no channels to be last")
    if as_sequence and len(shape) == _IMAGE_RANK:
        value = ops.reshape(value, ops.constant([0, 0, -1], np.int64), True).output(0)
        shape = [*shape[:2], shape[2] * shape[3]]
    order = [0, *range(2, len(shape)), 1]
    transposed = ops.result(ops.transpose(value, ops.constant(order, np.int64)))
    transposed.set_friendly_name(f"{ADAPTER}{result.get_friendly_name()}")
    return transposed


def _is_conversion(value: ov.Output, to: ov.Type) -> bool:
    return bool(value.get_node().get_type_name() == _CONVERTING and value.get_element_type() == to)


def _drop_conversions(model: ov.Model) -> None:
    """Drop conversions to bfloat16 and back: kernels in a brick pass on the type that they choose.

    Operators that only move values between such conversions move bfloat16.
    """
    for op in model.get_ordered_ops():
        kind = op.get_type_name()
        if kind == _CONVERTING and _is_conversion(op.input_value(0), _BF16):
            _replace(op.output(0), op.input_value(0).get_node().input_value(0))
        elif kind in _MOVING:
            _move_in_bfloat16(op)


def _move_in_bfloat16(op: ov.Node) -> None:
    """Let ``op`` read and make bfloat16 if all its floats are converted from and to it."""
    floats = [port for port in op.inputs() if port.get_element_type() == _F32]
    sources = [port.get_source_output().get_node() for port in floats]
    made = [
        target.get_node().output(0) for end in op.outputs() for target in end.get_target_inputs()
    ]
    converted = all(
        node.get_type_name() == _CONVERTING and node.get_input_element_type(0) == _BF16
        for node in sources
    )
    if converted and all(_is_conversion(value, _BF16) for value in made):
        for port, node in zip(floats, sources, strict=True):
            port.replace_source_output(node.input_value(0))
        op.validate_and_infer_types()
        for value in made:
            own = value.get_node().input_value(0)
            own.add_names(value.get_names())
            _replace(value, own)


def _float_views(parameter: ov.Node) -> list[ov.Output]:
    """A float input as it is, or as its conversions to float32; empty for all other inputs."""
    value = parameter.output(0)
    if value.get_element_type() not in (_F32, _BF16):
        return []
    readers = [target.get_node().output(0) for target in value.get_target_inputs()]
    converted = bool(readers) and all(_is_conversion(reader, _F32) for reader in readers)
    return readers if converted else [value]


def _in_type_of(end: ov.Output, value: ov.Node) -> ov.Node:
    if end.get_element_type() == _F32:
        return value
    converted = ops.convert(value, end.get_element_type())
    converted.set_friendly_name(f"{value.get_friendly_name()}_converted")
    return converted


def _chooses_layout(views: Sequence[ov.Output], convolves: bool) -> bool:
    """Whether a reader of ``views``, which are one input, chooses its layout.

    ``convolves`` is whether the brick has convolutions.
    """
    readers = {
        target.get_node().get_type_name() for value in views for target in value.get_target_inputs()
    }
    return bool(readers & _CONVOLUTIONS) or (convolves and _FUSED in readers)


def _identity_convolution(value: ov.Node, name: str) -> ov.Node:
    """The same value, in float32, from a convolution that multiplies each channel by one.

    It must be read twice: a single reader of its result would be part of its kernel.
    """
    if value.output(0).get_element_type() != _F32:
        value = ops.convert(value, _F32)
    shape = list(value.output(0).get_shape())
    rank = len(shape) - 2
    ones = ops.constant(np.ones([shape[1], 1, 1, *([1] * rank)], np.float32))
    steps, none = [1] * rank, [0] * rank
    identity = ops.group_convolution(value, ones, steps, none, none, steps)
    identity.set_friendly_name(name)
    return identity
