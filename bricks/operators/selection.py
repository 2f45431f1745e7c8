"""Searching, sorting and classifying: values decide on the work, and often on output sizes."""

from __future__ import annotations

from bricks.graph.sketch import COLUMNS, DISTINCT, ORDER, QUANTILES, SELECTED, ZEROS
from bricks.operators.operator import (
    Features,
    Operator,
    Steering,
    decided_by,
    names,
    no_workspace,
    to_first,
)
from bricks.operators.restrictions import shape_at
from bricks.operators.work_rules import no_work, per_input

_COMPARED = (DISTINCT, ORDER, ZEROS)
_DISTRIBUTED = (DISTINCT, ORDER, QUANTILES)

OPERATORS = (
    Operator(onnx=names("NonZero"), values=decided_by(0, ZEROS), sized_by_data=True),
    Operator(
        onnx=names("Compress"),
        work=no_work,
        values=decided_by(1, ZEROS),
        passes=to_first(0),
        sized_by_data=True,
        features=Features(selects=True),
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
