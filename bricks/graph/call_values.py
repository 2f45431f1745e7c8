"""Calls of recorded programs whose time depends on the values that they read, and on what of these.

The counterpart of ``graph.value_dependence`` for PyTorch's operators, found by running them on
numbers of several sizes, of one sign, zeros, sorted, equal and NaN. Must not know how values are
observed or drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import onnx

from bricks.graph.containers import ValueType
from bricks.graph.form import DOMAIN
from bricks.graph.program import call_of, leaves
from bricks.graph.sketch import (
    DENSITY,
    DISTINCT,
    LARGE,
    ORDER,
    QUANTILES,
    SELECTED,
    SIGNS,
    ZEROS,
    Sketch,
)
from bricks.graph.tensor import TensorType

Traits = tuple[str, ...]

# What counts of arguments, by their position; of operators without the underscores around their
# names. Integers are told apart by their distribution too, which is the range of indices or digits.
_COMPARED: Final[Traits] = (DISTINCT, ORDER, ZEROS)
_DISTRIBUTED: Final[Traits] = (DISTINCT, ORDER, QUANTILES)
_DECIDING: Final[Mapping[str, Mapping[int, Traits]]] = {
    **{op: {0: (SELECTED,)} for op in ("nonzero", "argwhere")},
    **{op: {1: (SELECTED,)} for op in ("masked_select", "masked_scatter")},
    **{op: {0: (ZEROS,)} for op in ("count_nonzero", "where")},
    "masked_fill": {1: (ZEROS,)},
    **{
        op: {0: _COMPARED}
        for op in (
            "sort", "topk", "kthvalue", "median", "nanmedian", "mode", "unique2", "unique_dim",
            "unique_consecutive", "unique_dim_consecutive", "cummax_helper", "cummin_helper",
        )
    },
    **{op: {0: _DISTRIBUTED, 1: _DISTRIBUTED} for op in ("searchsorted", "bucketize")},
    "bincount": {0: _DISTRIBUTED},
    "repeat_interleave": {0: (DISTINCT, QUANTILES)},
    "multinomial": {0: ()},  # which others may have left as no probabilities
    # Maxima are sought in values that no processor foretells, unlike what synthetic weights give.
    **{
        op: {0: ()}
        for op in (
            "max_pool2d_with_indices", "max_pool3d_with_indices", "adaptive_max_pool2d",
            "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
        )
    },
    # A library handles zeros one by one.
    **{
        f"{many}{op}": {0: (DENSITY,)}
        for op in ("sqrt", "log", "log2", "log10")
        for many in ("", "foreach_")
    },
    **{op: {0: (SIGNS,)} for op in ("elu", "selu", "celu")},
    **{op: {0: (LARGE,)} for op in ("exp", "special_erfc", "erfc", "softplus")},
    **{
        op: {0: (QUANTILES,)}
        for op in (
            "asin", "acos", "asinh", "acosh", "erfinv", "lgamma", "digamma", "special_i1",
            "special_ndtri", "special_log_ndtr", "special_entr", "sinc", "logit", "fmod",
            "remainder", "poisson", "binary_cross_entropy", "histc",
        )
    },
    "xlogy": {1: (QUANTILES,)},
}  # fmt: skip
# Arguments that are indices, or masks of what is selected.
_ADDRESSING: Final[Mapping[str, int]] = {
    **dict.fromkeys(
        ("index", "index_put", "index_put_impl", "unsafe_index", "unsafe_index_put"), 1
    ),
    **dict.fromkeys(
        ("embedding", "embedding_dense_backward", "embedding_bag", "embedding_bag_forward_only"), 1
    ),
    **dict.fromkeys(
        (
            "index_select", "gather", "scatter", "scatter_add", "scatter_reduce", "index_add",
            "index_copy", "index_fill",
        ),
        2,
    ),
}  # fmt: skip
# Tables of fewer bytes stay in the caches, wherever they are read.
_LARGE_TABLE_BYTES: Final = 1 << 20
_MASKS: Final = ("BOOL", "UINT8")


def decides(operator: str) -> bool:
    """Whether values may decide how long a call of ``operator`` (``org.pytorch.aten.…``) takes."""
    name = _plain(operator.removeprefix(f"{DOMAIN}aten."))
    return operator.startswith(DOMAIN) and (name in _DECIDING or name in _ADDRESSING)


def dependent_arguments(
    node: onnx.NodeProto, types: Mapping[str, ValueType]
) -> Iterator[tuple[str, Traits]]:
    """The inputs of a call on whose values its time depends, and the traits of these that count.

    ``types`` are those of its inputs. No trait counts of an input that is to be random.
    """
    name = _plain(node.op_type)
    if node.domain != f"{DOMAIN}aten" or (name not in _DECIDING and name not in _ADDRESSING):
        return
    positional, _ = call_of(node).arguments
    for port, traits in _DECIDING.get(name, {}).items():
        for value, type_ in _tensors(positional, port, node, types):
            whole = "INT" in type_.dtype and DISTINCT in traits
            yield value, _DISTRIBUTED if whole else traits
    if name in _ADDRESSING:
        large = max(map(_bytes, map(types.get, node.input)), default=0) >= _LARGE_TABLE_BYTES
        for value, type_ in _tensors(positional, _ADDRESSING[name], node, types):
            if type_.dtype in _MASKS:
                yield value, (SELECTED,)
            elif large:
                yield value, _DISTRIBUTED


def sketched_arguments(
    nodes: Iterable[onnx.NodeProto], types: Mapping[str, ValueType], sketches: Mapping[str, Sketch]
) -> dict[str, Sketch]:
    """Those of ``sketches``, by the names of values, that tell of what calls read.

    They have as much of each as counts to the calls.
    """
    traits = dict[str, set[str]]()
    for node in nodes:
        for name, counting in dependent_arguments(node, types):
            traits.setdefault(name, set()).update(counting)
    told = {n: sketches[n].of_traits(each) for n, each in traits.items() if n in sketches}
    return {name: sketch for name, sketch in told.items() if sketch is not None}


def decisive_arguments(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> list[str]:
    """The names of inputs whose values always decide how long a call takes."""
    return [name for name, _ in dependent_arguments(node, types)]


def _plain(operator: str) -> str:
    return operator.partition(".")[0].strip("_")


def _bytes(type_: ValueType | None) -> int:
    return type_.size_bytes if isinstance(type_, TensorType) else 0


def _tensors(
    positional: list[Any], port: int, node: onnx.NodeProto, types: Mapping[str, ValueType]
) -> Iterator[tuple[str, TensorType]]:
    """The tensors within the argument at a position, by name and type."""
    for leaf in leaves(positional[port : port + 1]):
        if isinstance(leaf, dict) and "t" in leaf:
            type_ = types.get(node.input[leaf["t"]])
            if isinstance(type_, TensorType) and type_.elements:
                yield node.input[leaf["t"]], type_
