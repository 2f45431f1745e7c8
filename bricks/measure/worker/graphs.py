"""Requests about the graphs of models: executed, recorded, with shapes, with values.

Must not know what a graph is cut into, nor what else a worker has loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from bricks.backends.base import Backend
from bricks.backends.programs import Recorder
from bricks.errors import BackendError
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.value_dependence import values_decide
from bricks.graph.view import graph_of, parse_model
from bricks.graph.weights import with_own_weights
from bricks.measure.protocol import pack, unpack
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.observation import Observed, observed
from bricks.measure.worker.process_limits import memory_limited_for
from bricks.measure.worker.verify import source_of

Facts = dict[str, Any]


class GraphRequests:
    """Answers requests with what ``backend``, called ``name``, tells of a model.

    ``timing`` is whether the worker times anything, so that others need its memory.
    """

    def __init__(
        self, backend: Callable[[], Backend], name: Callable[[], str], timing: Callable[[], bool]
    ) -> None:
        self._backend, self._name, self._timing = backend, name, timing

    def do_executed(self, model: str, key: str = "", folder: str = "") -> Facts:
        """The graph that the runtime executes for a model, and the types of its values.

        What values decide follows from the model's own weights, if they are in ``folder``.
        """
        proto = parse_model(unpack(model))
        with memory_limited_for(proto):
            executed = self._backend().executed(proto)
            backend: Any = self._backend()
            seen = Observed(noted_sketches(proto))
            if hasattr(backend, "observe"):
                decided = folder and values_decide(proto.graph.node)
                own = with_own_weights(proto, Path(folder)) if decided else proto
                seen = observed(backend, own, executed, key)
        if self._timing():  # else the next model needs the memory
            release_freed_memory()
        return {
            "model": pack(executed.proto.SerializeToString()),
            "types": {name: type_.to_json() for name, type_ in executed.types.items()},
            "in_place": dict(executed.in_place),
            "observed": list(executed.observed),
            "groups": None if executed.groups is None else list(map(list, executed.groups)),
            "layouts": dict(executed.layouts),
            "other_kernels": [[i, list(each)] for i, each in executed.other_kernels.items()],
            "notes": list(executed.notes),
            **seen.to_json(),
            "rewritten_bytes": executed.rewritten_bytes,
        }

    def do_record(self, entry: str, folder: str, options: dict[str, Any]) -> Facts:
        """A recorded program."""
        backend: Any = self._backend()
        if not hasattr(backend, "record"):
            raise BackendError(
                f"{self._name()} runs ONNX models, not programs: choose --runtime torch"
            )
        recorder: Recorder = backend
        return {"model": pack(recorder.record(entry, folder, options).SerializeToString())}

    def do_source(self, name: str, model: str) -> Facts:
        """A model's own graph, with the types of its values."""
        skeleton = unpack(model)
        proto = parse_model(skeleton)
        given = graph_of(proto)
        inputs = tuple((name, given.types[name]) for name in given.inputs)
        with memory_limited_for(proto):
            of = Model(name, Path(), skeleton, inputs, "")
            graph, observed = source_of(self._backend(), of, proto)
        del proto.graph.node[:]
        proto.graph.node.extend(graph.nodes)
        return {
            "model": pack(proto.SerializeToString()),
            "types": {name: type_.to_json() for name, type_ in graph.types.items()},
            "observed": list(observed),
            **Observed(noted_sketches(proto)).to_json(),
        }

    def do_values(self, model: str, names: list[str]) -> Facts:
        """The contents of the values called ``names``."""
        proto = parse_model(unpack(model))
        with memory_limited_for(proto):
            return {"values": self._backend().values(proto, names)}
