"""Handles requests for graphs of models: executed, recorded, with shapes, with values.

Must not know how a graph is cut, nor which pieces a worker has loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnx

from bricks.backends.base import ExecutedGraph, ValueObserver
from bricks.backends.input_values import Turns
from bricks.backends.programs import ProgramSource, Recorder
from bricks.decompose.lowering import Contents, Lowering
from bricks.graph.model import Model
from bricks.graph.model_metadata import noted_sketches
from bricks.graph.view import graph_of, parse_model
from bricks.graph.weights import with_own_weights
from bricks.measure.protocol.graphs import (
    ReadExecuted,
    ReadSource,
    ReadValues,
    RecordProgram,
    TypedGraph,
)
from bricks.measure.worker.input_turns import turns_of
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.observation import contents_of
from bricks.measure.worker.process_limits import memory_limited_for
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.source_graphs import source_of
from bricks.operators.dependence import data_decides
from bricks.operators.rotated_inputs import rotated_inputs


class GraphRequests:
    """Reads graphs with the backend of ``runtime``."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime

    def read_executed(self, request: ReadExecuted) -> TypedGraph:
        """Read the graph that the runtime executes for a model, and the types of its values."""
        proto = parse_model(request.model)
        with memory_limited_for(proto):
            executed = self._runtime.backend.executed(proto)
            deciding = _with_deciding(proto, request.folder)
            rotated = rotated_inputs(deciding, self._runtime.backend.sign_sensitive)
            turns = turns_of(self._runtime.backend, deciding, request.key, rotated)
            contents = self._contents(request.key, deciding, executed, turns)
        if self._runtime.settings.timing:  # else the next model needs the memory
            release_freed_memory()
        lowering = Lowering(
            executed.groups,
            executed.layouts,
            executed.other_kernels,
            executed.in_place,
            executed.rewritten_bytes,
            executed.rule,
        )
        skeleton = executed.proto.SerializeToString()
        repeating = map(_repeating, sorted(rotated.names - turns.keys()))
        observed, notes = tuple(executed.observed), (*executed.notes, *repeating)
        return TypedGraph(skeleton, executed.types, observed, lowering, contents, notes)

    def _contents(
        self, key: str, proto: onnx.ModelProto, executed: ExecutedGraph, turns: Turns
    ) -> Contents:
        """Contents of values in a run of the model; noted ones if the backend observes none."""
        backend = self._runtime.backend
        if not isinstance(backend, ValueObserver):
            return Contents(sketches=noted_sketches(proto))
        return contents_of(backend, proto, executed, key, turns)

    def read_source(self, request: ReadSource) -> TypedGraph:
        """Read a model's graph as written, with the types of its values."""
        proto = parse_model(request.model)
        written = graph_of(proto)
        inputs = tuple((name, written.types[name]) for name in written.inputs)
        with memory_limited_for(proto):
            model = Model(request.name, Path(), request.model, inputs, "")
            graph, observed = source_of(self._runtime.backend, model, proto)
        del proto.graph.node[:]
        proto.graph.node.extend(graph.nodes)
        return TypedGraph(
            proto.SerializeToString(),
            graph.types,
            observed=tuple(observed),
            contents=Contents(sketches=noted_sketches(proto)),
        )

    def read_values(self, request: ReadValues) -> Mapping[str, tuple[float, ...]]:
        """Read the contents of some values, with the data that the whole model runs on."""
        proto, source, backend = (
            parse_model(request.model), parse_model(request.source), self._runtime.backend
        )  # fmt: skip
        made = set[str]()  # by the source graph, whose weights are its own where they decide
        if data_decides(source):
            made.update(info.name for info in source.graph.input)
            made.update(name for node in source.graph.node for name in node.output)
        written = [name for name in request.names if name in made]
        others = [name for name in request.names if name not in made]
        with memory_limited_for(proto):
            values = dict(backend.values(proto, others)) if others else {}
            if written:
                values |= backend.values(_with_deciding(source, request.folder), written)
        return {name: tuple(contents) for name, contents in values.items()}

    def record(self, request: RecordProgram) -> bytes:
        """Record a program."""
        recorder = self._runtime.capable(Recorder)
        proto = recorder.record(ProgramSource(request.entry, request.folder, request.options))
        return bytes(proto.SerializeToString())


def _repeating(name: str) -> str:
    return (
        f"input {name!r} has the same values in all runs of the whole model, which a processor"
        " learns: no other synthetic ones were found with which it does the same"
    )


def _with_deciding(proto: onnx.ModelProto, folder: str) -> onnx.ModelProto:
    """``proto`` with its own weights, where these decide what it does."""
    return with_own_weights(proto, Path(folder)) if folder and data_decides(proto) else proto
