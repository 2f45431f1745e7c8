"""All operators, by domain and name.

A runtime with operators of its own adds rows to :data:`OPERATORS` by :func:`entries`. Must not know
the facts of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import TYPE_CHECKING

from bricks.graph.form import DOMAIN
from bricks.graph.topology import default_domain
from bricks.operators import (
    attention,
    control_flow,
    convolutions,
    elementwise,
    indexing,
    moving,
    normalisation,
    pooling,
    products,
    quantisation,
    recurrent,
    reductions,
    resampling,
    selection,
    signals,
    training,
)
from bricks.operators.operator import Operator

if TYPE_CHECKING:
    import onnx

# A domain and a name in it; for calls, the prefix of all their domains and PyTorch's plain name.
Key = tuple[str, str]

FAMILIES = (
    attention, control_flow, convolutions, elementwise, indexing, moving, normalisation, pooling,
    products, quantisation, recurrent, reductions, resampling, selection, signals, training,
)  # fmt: skip
_UNKNOWN = Operator()


def entries(rows: Iterable[Operator]) -> Iterator[tuple[Key, Operator]]:
    """Yield pairs of a key and a row, one for each name of each row."""
    for row in rows:
        for name in row.onnx:
            domain, _, operator = name.rpartition(".")
            yield (domain, operator), row
        for name in row.aten:
            yield (DOMAIN, name), row.for_calls


OPERATORS: MutableMapping[Key, Operator] = dict(
    entry for family in FAMILIES for entry in entries(family.OPERATORS)
)


def operator_of(node: onnx.NodeProto) -> Operator:
    """Return the row of a node's operator; a row without facts if the operator is unknown."""
    return operator_named(node.domain, node.op_type)


def operator_named(domain: str, name: str) -> Operator:
    """Return the row of ``name`` in ``domain``; a row without facts if the operator is unknown."""
    if domain.startswith(DOMAIN):
        return OPERATORS.get((DOMAIN, plain_name(name)), _UNKNOWN)
    return OPERATORS.get((default_domain(domain), name), _UNKNOWN)


def is_known(qualified: str) -> bool:
    """Whether an operator with this qualified name has a row."""
    return operator_called(qualified) is not _UNKNOWN


def operator_called(qualified: str) -> Operator:
    """Return the row of an operator by its qualified name, ``domain.name`` as in bricks."""
    if qualified.startswith(DOMAIN):
        _, _, name = qualified.removeprefix(DOMAIN).partition(".")
        return operator_named(DOMAIN, name)
    domain, _, name = qualified.rpartition(".")
    return operator_named(domain, name)


def plain_name(name: str) -> str:
    """Return an ATen operator's name without overload and the ``_`` of in-place operators."""
    return name.partition(".")[0].rstrip("_")
