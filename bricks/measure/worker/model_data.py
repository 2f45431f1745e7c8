"""Weights and inputs to check a model with: its own weights where its files have them.

All other data are synthetic, and follow from the seed and the names: so every process that checks a
model computes with the same numbers. Must not know which property is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx

from bricks.graph.feeds import feeds
from bricks.graph.model import Model
from bricks.graph.synthesis import Pool
from bricks.graph.view import graph_of, parse_model, without_values
from bricks.graph.weights import has_own_weights, own_weights
from bricks.operators.integer_ranges import integer_ranges


@dataclass(frozen=True, slots=True)
class ModelData:
    """A model with its data by name; ``own_weights`` is whether weights are from its files."""

    proto: onnx.ModelProto
    weights: Mapping[str, np.ndarray]
    inputs: Mapping[str, Any]
    own_weights: bool


def model_data(model: Model, seed: int) -> ModelData:
    """The data to check ``model`` with; :class:`~bricks.errors.ModelError` if it has none."""
    proto = parse_model(model.skeleton)
    own = has_own_weights(model)
    weights = own_weights(model) if own else _synthetic_weights(proto, _pool(seed))
    return ModelData(proto, weights, _inputs(proto, _pool(seed)), own)


@cache
def _pool(seed: int) -> Pool:
    """The pool, kept: drawing its numbers takes longer than checking a small model."""
    return Pool(seed)


def _synthetic_weights(proto: onnx.ModelProto, pool: Pool) -> dict[str, np.ndarray]:
    types = without_values(proto)
    ranges = integer_ranges(graph_of(proto), [n for n, t in types.items() if not t.floating])
    return {name: pool.weight(name, type_, ranges.get(name)) for name, type_ in types.items()}


def _inputs(proto: onnx.ModelProto, pool: Pool) -> dict[str, Any]:
    graph = graph_of(proto)
    makers = feeds(proto, graph, integer_ranges(graph, graph.inputs), pool)
    return {name: make() for name, make in makers.items()}
