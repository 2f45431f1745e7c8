"""Reads the graph of a model as written, with types from a run where inference finds none.

Must not know how the graph is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from bricks.backends.base import Backend
from bricks.graph.graph import Graph
from bricks.graph.model import Model
from bricks.graph.source import OpenShapes, source_graph


def source_of(
    backend: Backend, model: Model, proto: onnx.ModelProto
) -> tuple[Graph, Sequence[str]]:
    """The source graph of ``model``, with skeleton ``proto``; and values that one run observed."""
    try:
        return source_graph(model), ()
    except OpenShapes:
        types, observed = backend.types(proto)
        return source_graph(model, types), observed
