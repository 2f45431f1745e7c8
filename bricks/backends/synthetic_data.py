"""Synthetic weights and inputs of ONNX models: ordinary numbers and valid integers.

:class:`TensorRuntime` makes single runs with them, for runtimes whose inputs and outputs are all
tensors, without sequences or maps. Must not know how a runtime runs models.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import onnx

from bricks.backends.base import Binding, BoundModel, Evaluator, ValueObserver
from bricks.errors import BackendError
from bricks.graph.input_values import InputMaker, feeds
from bricks.graph.model import Graph
from bricks.graph.synthesis import Pool
from bricks.graph.types import TensorType
from bricks.graph.view import graph_of, upstream, without_values
from bricks.operators.integer_ranges import integer_ranges

# A whole model has the same data wherever it runs: where values, types and branches that depend on
# data are observed, where it is measured, and where it is served.
OBSERVED, _WHOLE = "observed", ("m1-", "served-")

# From the number and the type of a weight to shared values; None: values of its own.
Shared = Callable[[int, TensorType], np.ndarray | None]


def data_key(key: str) -> str:
    """The key that determines the data of what is loaded under ``key``."""
    return OBSERVED if key.startswith(_WHOLE) else key


def synthetic_data(
    pool: Pool,
    proto: onnx.ModelProto,
    graph: Graph,
    key: str,
    *,
    whole: Graph | None = None,
    shared: Shared = lambda number, type_: None,
) -> tuple[dict[str, np.ndarray], Mapping[str, InputMaker]]:
    """Return weights and functions that make inputs, by name, for ``proto`` and its ``graph``.

    ``key`` and the pool determine their values, except of inputs with values in the metadata of
    ``proto``. ``whole`` is the graph of which it is a part, and determines valid integers.
    """
    key, types = data_key(key), without_values(proto)
    integers = [name for name, type_ in types.items() if not type_.floating]
    ranges = integer_ranges(whole or graph, [*graph.inputs, *integers])
    weights = {}
    for number, (name, type_) in enumerate(types.items()):
        values = shared(number, type_)
        if values is None:
            values = pool.weight(f"{key}/{name}", type_, ranges.get(name))
        weights[name] = values
    return weights, feeds(proto, graph, ranges, pool, f"{key}/")


# By name of an input: a function that makes its value, and its type.
TensorInputs = Mapping[str, tuple[InputMaker, TensorType]]


class Readable(BoundModel, Protocol):
    """A bound model whose outputs can be read."""

    def results(self) -> list[np.ndarray]:
        """The outputs of the last run."""


class LoadedTensors(Protocol):
    """A loaded model, whose outputs can be read where it is bound."""

    def bind(self, binding: Binding, region: np.ndarray) -> Readable:
        """Bind inputs and outputs; see :class:`~bricks.backends.base.BindableModel`."""


class TensorRuntime(Evaluator, ValueObserver):
    """A runtime called ``title`` in messages, whose models have tensors as inputs and outputs."""

    title: ClassVar[str]

    def __init__(self, seed: int) -> None:
        self._pool = Pool(seed)

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> dict[str, list[float]]:
        """The contents of small tensors in one run on synthetic data."""
        tensors = next(self.observe(proto, names, key=OBSERVED))
        return {name: array.ravel().tolist() for name, array in tensors.items()}

    def observe(
        self,
        proto: onnx.ModelProto,
        names: Sequence[str],
        *,
        key: str,
        turning: Collection[str] = (),
        turns: Iterable[int] = (0,),
    ) -> Iterator[dict[str, np.ndarray]]:
        """Tensors in runs on synthetic data, in which only the nodes that they need run."""
        whole = self.known_graph(proto)
        part = upstream(proto, names)
        graph = graph_of(part, whole.types)
        weights, inputs = self.synthesised(part, graph, key, whole)
        for turn in turns:
            feeds = {n: make(turn if n in turning else 0) for n, (make, _) in inputs.items()}
            tensors = {name: feeds[name] for name in names if name in feeds}
            if part.graph.node:
                results = self.run_once(part, graph, weights, feeds)
                tensors |= dict(zip(graph.outputs, results, strict=True))
            yield tensors

    def synthesised(
        self, proto: onnx.ModelProto, graph: Graph, key: str, whole: Graph | None = None
    ) -> tuple[dict[str, np.ndarray], TensorInputs]:
        """Synthetic weights by name, and inputs, for ``proto``, whose graph is a part of ``whole``.

        Raises :class:`BackendError` for an input that is no tensor.
        """
        weights, makers = synthetic_data(self._pool, proto, graph, key, whole=whole)
        return weights, {
            name: (make, self.tensor_type(graph, name)) for name, make in makers.items()
        }

    def tensor_type(self, graph: Graph, name: str) -> TensorType:
        """The type of the value ``name``; :class:`BackendError` if it is no tensor."""
        type_ = graph.types.get(name)
        if not isinstance(type_, TensorType):
            raise BackendError(
                f"{self.title} takes tensors alone: '{name}' is none; choose another --runtime"
            )
        return type_

    def known_graph(self, proto: onnx.ModelProto) -> Graph:
        """The graph of ``proto`` with the types that are known before anything runs."""
        return graph_of(proto)

    @abstractmethod
    def run_once(
        self,
        proto: onnx.ModelProto,
        graph: Graph,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
    ) -> list[np.ndarray]:
        """The outputs of one run of ``proto``, whose graph is known."""


def results_of(loaded: LoadedTensors, graph: Graph) -> list[np.ndarray]:
    """The outputs of a loaded model of ``graph`` after one run, in which all have own buffers."""
    separate = Binding.separate(len(graph.inputs), len(graph.outputs))
    bound = loaded.bind(separate, np.zeros(0, np.uint8))
    bound.sample()
    return bound.results()
