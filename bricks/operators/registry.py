"""All operators, by domain and name; and the arithmetic operations of nodes, by their rows.

A runtime with operators of its own adds rows to :data:`OPERATORS` by :func:`entries`.

Operations are counted from types only; a multiply-add is two. An operator without a rule makes the
work of the whole part unknown; nothing is guessed. Operators that return to the host wait for a
device. Must not know the facts of rows, runtimes or times.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

from bricks.errors import ModelError
from bricks.graph.form import DOMAIN
from bricks.graph.topology import default_domain
from bricks.operators import (
    attention,
    convolutions,
    elementwise,
    indexing,
    moving,
    normalisation,
    products,
)
from bricks.operators.node import node_view
from bricks.operators.operator import Operator

if TYPE_CHECKING:
    import onnx

    from bricks.graph.model import Graph
    from bricks.graph.types import ValueType

# A domain and a name in it; for calls, the prefix of all their domains and PyTorch's plain name.
Key = tuple[str, str]

FAMILIES = (
    attention, convolutions, elementwise, indexing, moving, normalisation, products,
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


_MAX = 2**63 - 1  # the largest integer that a database stores


def flops(graph: Graph, nodes: Sequence[int]) -> int | None:
    """Return the operations of the nodes at these positions; None if one is unknown."""
    total = 0
    for node in map(graph.nodes.__getitem__, nodes):
        work = node_flops(node, graph.types)
        if work is None:
            return None
        total += work
    return total if 0 <= total <= _MAX else None


def node_flops(node: onnx.NodeProto, types: Mapping[str, ValueType]) -> int | None:
    """Return the operations of a node or call; None if unknown or if attributes are invalid."""
    rule = operator_of(node).work
    try:
        return None if rule is None else rule(node_view(node, types))
    except (ModelError, LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


# The beginnings of ATen's names: results, or their sizes, are values on the host.
_RETURNING = ("_local_scalar_dense", "nonzero", "masked_select", "_unique", "unique_", "is_nonzero")
# Operators that count the elements of masks among their inputs.
_SELECTING = ("index", "index_put", "_index_put_impl")


def returns_to_host(operator: str) -> bool:
    """Whether calls of ATen's ``operator`` wait for a device."""
    return operator.startswith(_RETURNING)


def selects_by_masks(operator: str) -> bool:
    """Whether calls of ATen's ``operator`` wait for a device if an input is a mask."""
    return operator.rstrip("_") in _SELECTING
