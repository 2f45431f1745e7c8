"""Elements by their indices, and indices of elements: reading, writing, searching and sorting.

Indices into a table that exceeds the caches decide which memory is touched. Moving an element takes
no operation; an update by a reduction takes one.

In searching, sorting and classifying, values decide on the work, and often on output sizes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.graph.payload import is_referenced, read_inline
from bricks.graph.sketch import COLUMNS, DISTINCT, ORDER, QUANTILES, SELECTED, ZEROS
from bricks.operators.operator import (
    Access,
    Dependence,
    Features,
    Operator,
    Restriction,
    Steering,
    axis_index,
    decided_by,
    first_of,
    index,
    indexed_by,
    mask_at,
    names,
    no_work,
    no_workspace,
    per_input,
    per_output,
    shape_at,
    to_first,
)

if TYPE_CHECKING:
    from bricks.operators.node import Node

_POSITIONS = (DISTINCT, ORDER, QUANTILES)
_TUPLES = (DISTINCT, COLUMNS)
_SELECTS = Features(selects=True)


def _combining(node: Node) -> int:
    return node.type_at(2).elements if node.text("reduction") not in ("", "none") else 0


def _scattered_indices(node: Node, threads: int) -> tuple[int, ...]:
    """The indices, as 64-bit integers."""
    return (8 * node.tensor_at(1).elements,)


def _tuple_index(node: Node, port: int) -> Restriction | None:
    shape, indices = node.shape_at(0), node.shape_at(1)
    if port != 1 or not shape or not indices:
        return None
    skipped = node.number("batch_dims")
    # One range for all columns of the indices: the range of the shortest indexed axis.
    addressed = shape[skipped : skipped + indices[-1]]
    return index(node, 0, min(addressed)) if addressed else None


def _one_hot(node: Node, port: int) -> Restriction | None:
    depth = node.constants.get(node.name_at(1)) if port == 0 else None
    if depth is None or is_referenced(depth):
        return None
    values = read_inline(depth)
    return index(node, 0, int(values.reshape(-1)[0])) if values.size else None


def _embedding_index(node: Node, port: int) -> Restriction | None:
    table = {0: 2, 1: 4, 8: 3}.get(port)  # input ids, segments, positions → their embeddings
    shape = node.shape_at(table) if table is not None else None
    return index(node, 0, shape[0]) if shape else None


def _called_at(position: int) -> tuple[Dependence, ...]:
    """Return a dependence on the indices or masks at a position of a call."""
    return indexed_by(position, *_POSITIONS, decisive=True)


# Facts of operators that read elements.
_READ = Operator(work=no_work, passes=to_first(0), workspace=no_workspace, features=_SELECTS)

_INDEXING = (
    replace(
        _READ,
        onnx=names("Gather"),
        values=indexed_by(1, *_POSITIONS),
        restrict=axis_index(0),
        features=Features(access=Access.ALONG_AXIS, selects=True),
    ),
    replace(
        _READ,
        onnx=names("GatherElements"),
        values=indexed_by(1, *_POSITIONS),
        restrict=axis_index(0),
    ),
    replace(_READ, onnx=names("GatherND"), values=indexed_by(1, *_TUPLES), restrict=_tuple_index),
    Operator(
        onnx=names("com.microsoft.GatherND"),
        restrict=_tuple_index,
        passes=to_first(0),
        features=_SELECTS,
    ),
    Operator(onnx=names("com.microsoft.GatherBlockQuantized"), restrict=axis_index(0)),
    Operator(onnx=names("ai.onnx.ml.ArrayFeatureExtractor"), restrict=axis_index(-1)),
    Operator(
        onnx=names("ScatterElements"),
        work=_combining,
        values=indexed_by(1, *_POSITIONS),
        restrict=axis_index(0),
        passes=to_first(0, 2),
        workspace=_scattered_indices,
    ),
    Operator(
        onnx=names("ScatterND"),
        work=_combining,
        values=indexed_by(1, *_TUPLES),
        restrict=_tuple_index,
        passes=to_first(0, 2),
        workspace=no_workspace,
    ),
    Operator(onnx=names("Scatter"), restrict=axis_index(0), passes=to_first(0, 2)),
    Operator(
        onnx=names("OneHot"),
        restrict=first_of(shape_at(1), _one_hot),
        steering=Steering((1,)),
        workspace=no_workspace,
    ),
    Operator(
        onnx=names("com.microsoft.EmbedLayerNormalization"),
        restrict=first_of(_embedding_index, mask_at(7)),
        workspace=no_workspace,
    ),
    Operator(aten=names("_unsafe_index embedding index"), work=no_work, values=_called_at(1)),
    Operator(aten=names("gather index_select"), work=no_work, values=_called_at(2)),
    Operator(
        aten=names("_index_put_impl embedding_dense_backward index_put"),
        work=per_output(1),
        values=_called_at(1),
    ),
    Operator(aten=names("_unsafe_index_put embedding_bag"), values=_called_at(1)),
    Operator(aten=names("index_add scatter scatter_add"), work=per_output(1), values=_called_at(2)),
    Operator(aten=names("index_copy index_fill scatter_reduce"), values=_called_at(2)),
    Operator(
        aten=names("_embedding_bag _embedding_bag_forward_only"),
        work=per_input(1),
        values=_called_at(1),
    ),
    Operator(aten=names("_embedding_bag_dense_backward"), work=per_input(1)),
    Operator(aten=names("masked_scatter masked_select"), values=decided_by(1, SELECTED)),
)


_COMPARED = (DISTINCT, ORDER, ZEROS)
_DISTRIBUTED = (DISTINCT, ORDER, QUANTILES)

_SELECTION = (
    Operator(onnx=names("NonZero"), values=decided_by(0, ZEROS), sized_by_data=True),
    Operator(
        onnx=names("Compress"),
        work=no_work,
        values=decided_by(1, ZEROS),
        passes=to_first(0),
        sized_by_data=True,
        features=_SELECTS,
    ),
    Operator(
        onnx=names("Unique com.microsoft.Unique"),
        values=decided_by(0, *_DISTRIBUTED),
        passes=to_first(0),
        sized_by_data=True,
    ),
    Operator(
        onnx=names("TopK"),
        values=decided_by(0, *_DISTRIBUTED),
        restrict=shape_at(1),
        passes=to_first(0),
        steering=Steering((1,)),
        workspace=no_workspace,
    ),
    Operator(
        onnx=names("NonMaxSuppression"),
        values=(*decided_by(0), *decided_by(1, QUANTILES)),
        restrict=shape_at(2),
        # Boxes per class, thresholds.
        steering=Steering((2, 3, 4)),
        sized_by_data=True,
        workspace=no_workspace,
    ),
    Operator(
        onnx=names(
            "ai.onnx.ml.TreeEnsemble ai.onnx.ml.TreeEnsembleClassifier"
            " ai.onnx.ml.TreeEnsembleRegressor"
        ),
        values=decided_by(0, COLUMNS),
    ),
    Operator(
        onnx=names("TfIdfVectorizer ai.onnx.ml.CategoryMapper ai.onnx.ml.LabelEncoder"),
        values=decided_by(0, DISTINCT, QUANTILES),
    ),
    Operator(aten=names("argwhere nonzero"), values=decided_by(0, SELECTED)),
    Operator(aten=names("sort topk"), work=per_input(1), values=decided_by(0, *_COMPARED)),
    Operator(
        aten=names(
            "_unique2 kthvalue median mode nanmedian unique_consecutive unique_dim"
            " unique_dim_consecutive"
        ),
        values=decided_by(0, *_COMPARED),
    ),
    Operator(
        aten=names("bucketize searchsorted"),
        values=(*decided_by(0, *_DISTRIBUTED), *decided_by(1, *_DISTRIBUTED)),
    ),
    Operator(aten=names("bincount"), values=decided_by(0, *_DISTRIBUTED)),
    Operator(aten=names("histc"), values=decided_by(0, QUANTILES)),
)

OPERATORS = (*_INDEXING, *_SELECTION)
