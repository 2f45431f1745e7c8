"""Of which arguments of a call the values decide how long it takes, and what of them."""

from __future__ import annotations

import pytest
from factories import model, value

from bricks.graph.model_metadata import sketches_of
from bricks.graph.program import DOMAIN, Call
from bricks.graph.sketch import DISTINCT, ORDER, QUANTILES, SELECTED, SIGNS, ZEROS, Sketch
from bricks.graph.types import TensorType
from bricks.operators.dependence import branches_on_values, decisive_values, dependent_arguments
from bricks.operators.registry import operator_called

T0, T1 = {"t": 0}, {"t": 1}
FLOATS = TensorType("FLOAT", (1000,))
LARGE = TensorType("FLOAT", (1000, 1000))
MASK, WORDS = TensorType("BOOL", (1000,)), TensorType("INT64", (1000,))
SPREAD = (DISTINCT, ORDER, QUANTILES)


@pytest.mark.parametrize(
    ("operator", "arguments", "types", "dependent"),
    [
        ("nonzero", [T0], (MASK,), {"a": (SELECTED,)}),
        ("sort", [T0, 0, False], (FLOATS,), {"a": (DISTINCT, ORDER, ZEROS)}),
        ("sort", [T0, 0, False], (WORDS,), {"a": SPREAD}),
        ("elu_", [T0], (FLOATS,), {"a": (SIGNS,)}),
        ("masked_fill_.Scalar", [T0, T1, 0], (FLOATS, MASK), {"b": (ZEROS,)}),
        ("index.Tensor", [T0, [T1]], (FLOATS, MASK), {"b": (SELECTED,)}),
        ("multinomial", [T0, 1], (FLOATS,), {"a": ()}),
        ("index.Tensor", [T0, [None, T1]], (LARGE, WORDS), {"b": SPREAD}),
        ("_index_put_impl_", [T0, [T1], T0], (LARGE, WORDS), {"b": SPREAD}),
        ("embedding", [T0, T1], (LARGE, WORDS), {"b": SPREAD}),
        ("embedding", [T0, T1], (FLOATS, WORDS), {}),  # a table that stays in the caches
        ("max_pool2d_with_indices", [T0, [3, 3]], (LARGE,), {"a": ()}),
        ("relu", [T0], (FLOATS,), {}),
    ],
)
def test_traits_of_arguments(
    operator: str,
    arguments: list[object],
    types: tuple[TensorType, ...],
    dependent: dict[str, tuple[str, ...]],
) -> None:
    names = ["a", "b"][: len(types)]
    node = Call("aten", operator, (arguments, {})).node(names, ["y"])
    known = dict(zip(names, types, strict=True))
    assert dict(dependent_arguments(node, known)) == dependent
    assert decisive_values(node, known) == [*dependent]
    if dependent:
        assert branches_on_values(operator_called(f"{DOMAIN}aten.{operator}"))


def test_zeros_of_an_earlier_recording_are_a_sketch() -> None:
    node = Call("aten", "sqrt", ([T0], {})).node(["x"], ["y"])
    node.attribute.add(name="zeros", ints=[6], type="INTS")
    proto = model([node], [value("x", [64])], [value("y", [64])])
    assert sketches_of(proto) == {"x": Sketch(zeros=0.75, changes=0.0)}
