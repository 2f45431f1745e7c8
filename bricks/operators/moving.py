"""Views, copies, constants, branches, loops and containers: data are moved, nothing is computed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.graph.sketch import DISTINCT, QUANTILES
from bricks.operators.operator import (
    Access,
    Features,
    Operator,
    Restriction,
    Steering,
    decided_by,
    from_any,
    length,
    names,
    no_work,
    no_workspace,
    per_output,
    shape_at,
    to_first,
)

if TYPE_CHECKING:
    import onnx

    from bricks.operators.node import Node


def _to_all_outputs(node: onnx.NodeProto, port: int) -> Iterator[str]:
    return (name for name in node.output if name and port == 0)


def _sequence_lengths(node: Node, port: int) -> Restriction | None:
    shape = node.shape_at(0)
    axis = node.number("time_axis")
    if port != 1 or not shape or not 0 <= axis < min(2, len(shape)):
        return None
    return length(node, shape[axis])


def _dropout(node: Node, threads: int) -> Sequence[int]:
    """A mask of bytes, unless it is an output."""
    return (node.tensor_at(0).elements,) if len(node.outputs) == 1 else ()


# Facts that several rows share.
_VIEW = Operator(work=no_work, passes=to_first(0), workspace=no_workspace, absorbed=True, view=True)
_MOVED = Operator(work=no_work, passes=to_first(0), workspace=no_workspace)
_COPY = Operator(work=no_work, workspace=no_workspace)

_VIEWS = (
    replace(
        _VIEW,
        onnx=names("Reshape Squeeze Unsqueeze"),
        aten=names("reshape squeeze unsqueeze view _unsafe_view _reshape_alias"),
        restrict=shape_at(1),
    ),
    replace(_VIEW, onnx=names("Flatten"), aten=names("unflatten")),
    replace(_MOVED, onnx=names("Identity"), aten=names("alias detach lift_fresh"), absorbed=True),
    replace(_COPY, onnx=names("Shape Size"), reads_shapes=True, features=Features(selects=True)),
    Operator(
        aten=names("as_strided diagonal is_same_size resize set view_as_complex view_as_real"),
        work=no_work,
    ),
)

_COPIES = (
    replace(
        _MOVED,
        onnx=names("Transpose"),
        aten=names("permute t transpose"),
        features=Features(access=Access.PERMUTED),
    ),
    replace(
        _COPY,
        onnx=names("Concat"),
        aten=names("cat stack"),
        passes=from_any,
        features=Features(access=Access.JOINING),
    ),
    replace(
        _COPY,
        onnx=names("Split"),
        aten=names("chunk split split_with_sizes unbind unsafe_split"),
        restrict=shape_at(1),
        passes=_to_all_outputs,
        features=Features(access=Access.ALONG_AXIS),
    ),
    replace(
        _MOVED,
        onnx=names("Slice"),
        aten=names("select slice"),
        restrict=shape_at(1, 2, 3, 4),
        features=Features(selects=True),
    ),
    replace(
        _MOVED,
        onnx=names("Expand"),
        aten=names("expand"),
        restrict=shape_at(1),
        features=Features(access=Access.EXPANDING),
    ),
    replace(_MOVED, onnx=names("Tile Trilu"), aten=names("repeat tril triu"), restrict=shape_at(1)),
    Operator(onnx=names("com.microsoft.Trilu"), restrict=shape_at(1), passes=to_first(0)),
    replace(
        _COPY,
        onnx=names("Pad"),
        aten=names("constant_pad_nd"),
        restrict=shape_at(1, 3),
        passes=to_first(0, 2),
    ),
    Operator(onnx=names("com.microsoft.Pad"), restrict=shape_at(1, 3), passes=to_first(0, 2)),
    replace(_MOVED, onnx=names("DepthToSpace SpaceToDepth")),
    replace(_MOVED, onnx=names("ReverseSequence"), restrict=_sequence_lengths),
    replace(
        _COPY, onnx=names("com.microsoft.nchwc.ReorderInput com.microsoft.nchwc.ReorderOutput")
    ),
    Operator(onnx=names("Dropout"), work=no_work, passes=to_first(0), workspace=_dropout),
    Operator(
        aten=names(
            "_foreach_copy clone contiguous copy flip roll select_backward slice_backward unfold"
        ),
        work=no_work,
    ),
    Operator(
        aten=names("repeat_interleave"), work=no_work, values=decided_by(0, DISTINCT, QUANTILES)
    ),
)

_CONSTANTS = (
    Operator(onnx=names("Constant"), work=no_work, absorbed=True),
    replace(
        _COPY,
        onnx=names("ConstantOfShape"),
        aten=names("fill full full_like new_full new_ones new_zeros ones ones_like zeros"),
        restrict=shape_at(0),
        absorbed=True,
    ),
    replace(_COPY, onnx=names("EyeLike")),
    Operator(
        onnx=names("Range"),
        work=per_output(2),
        restrict=shape_at(0, 1, 2),
        steering=Steering((0, 1, 2)),
        workspace=no_workspace,
    ),
    Operator(onnx=names("com.microsoft.Range"), restrict=shape_at(0, 1, 2)),
    Operator(
        aten=names(
            "_foreach_zero _local_scalar_dense arange empty empty_like empty_strided new_empty"
            " new_empty_strided scalar_tensor zero zeros_like"
        ),
        work=no_work,
    ),
)


def _into_body(node: onnx.NodeProto, port: int) -> Iterator[str]:
    """The body's inputs: count and condition come first in a Loop, a Scan passes on all inputs."""
    for attribute in node.attribute:
        if attribute.name == "body" and port < len(attribute.g.input):
            yield attribute.g.input[port].name


_CONTROL_FLOW = (
    Operator(onnx=names("If"), restrict=shape_at(0), sized_by_data=True),
    Operator(onnx=names("Loop"), restrict=shape_at(0, 1), passes=_into_body, sized_by_data=True),
    Operator(onnx=names("Scan"), passes=_into_body),
    Operator(onnx=names("SequenceConstruct"), passes=from_any),
    Operator(onnx=names("SequenceAt SplitToSequence"), restrict=shape_at(1), sized_by_data=True),
    Operator(
        onnx=names("OptionalGetElement SequenceErase SequenceInsert StringSplit"),
        sized_by_data=True,
    ),
)

OPERATORS = (*_VIEWS, *_COPIES, *_CONSTANTS, *_CONTROL_FLOW)
