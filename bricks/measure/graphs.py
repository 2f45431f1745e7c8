"""Requests to the worker about a model: the graph to cut, its steering values, its profile.

Native code optimises graphs and infers their shapes, and the file may be hostile. So the worker
does all of it, within a time that suits the model's size. A failure is explained by changes to the
model and by synthetic inputs, which a runtime cannot know: it reports the error, and at times does
not even name the input. It must not know of the store, nor of any command.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.decompose.granularity import EXECUTED, Granularity
from bricks.errors import WorkerError
from bricks.graph.model_metadata import known_values
from bricks.graph.topology import label
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.models import (
    EvaluateModel,
    MeasureMemory,
    ProfileModel,
    ReadExecuted,
    ReadSource,
    ReadValues,
    RunSizes,
    TypedGraph,
    VerifyModel,
    WriteReference,
    allowed_s,
)
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.operators.integer_ranges import (
    chosen_by_data,
    observations,
    steering_values,
    synthetic_inputs,
)
from bricks.samples.whole_models import MemoryPeaks, Profile, profile_of

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition
    from bricks.graph.model import Graph, Model
    from bricks.measure.jobs import ModelJob
    from bricks.measure.protocol.request import Answer, Request

# How many times as long as decomposing a request may take. Verifying runs each brick, with weights
# that are read from a disk; a profile takes several runs; a reference is computed in Python.
_TIMES: Mapping[type[Request[Any]], int] = {
    VerifyModel: 20, ProfileModel: 20, MeasureMemory: 20, WriteReference: 60, EvaluateModel: 60,
    RunSizes: 60,
}  # fmt: skip

# Characters of a runtime's error text that are kept if a remedy follows.
_MAX_REASON = 300

# Phrases about memory in error texts of worker and supervisor.
_MEMORY_PHRASES = ("out of memory", "lack of memory", "allocate memory", "bad_alloc")


class Graphs:
    """Asks a worker; ``timeout_s`` is the most that one question may take, in seconds."""

    def __init__(self, supervisor: Supervisor, timeout_s: float) -> None:
        self._supervisor = supervisor
        self._timeout_s = timeout_s

    def decomposed(self, model: Model, granularity: Granularity) -> Decomposition:
        """The plan and the bricks of ``model``; :class:`WorkerError` where there is none."""
        return self._decomposed(model, granularity)[0]

    def _decomposed(self, model: Model, granularity: Granularity) -> tuple[Decomposition, Graph]:
        started = time.perf_counter()
        # Imported here: a plan from the cache does not need it.
        from bricks.decompose.build import build

        folder = str(model.folder)
        answer: TypedGraph
        if granularity.executed:
            answer = self.ask(model, ReadExecuted(model.skeleton, key=model.digest, folder=folder))
        else:
            answer = self.ask(model, ReadSource(model.name, model.skeleton))
        graph = graph_of(parse_model(answer.model), answer.types)
        _refuse_untyped(model, graph)
        names, given = tuple(steering_values(graph)), given_inputs(model)
        values: Mapping[str, tuple[float, ...]] = {}
        if names:
            proto = answer.model if granularity.executed else model.skeleton
            values = self.ask(model, ReadValues(proto, names, model.skeleton, folder))
        observed = observations(graph, set(answer.observed), given, values)
        decomposition = build(
            model,
            graph,
            granularity,
            lowering=answer.lowering,
            contents=replace(answer.contents, steering=values),
            assumed=[*answer.notes, *observed],
            chosen=chosen_by_data(graph, given, values),
        )
        return replace(decomposition, wall_s=time.perf_counter() - started), graph

    def ask(self, of: Model, request: Request[Answer]) -> Answer:
        """The worker's answer about a model; errors name the model and perhaps a remedy."""
        times = _TIMES.get(type(request), 1)
        if isinstance(request, ReadExecuted):
            times = backends.describe_elsewhere(self._supervisor.backend).cutting_times
        allowed = allowed_s(parse_model(of.skeleton), times=times)
        timeout_s = min(allowed, self._timeout_s)
        try:
            return self._supervisor.ask_afresh(request, timeout_s=timeout_s)
        except WorkerError as error:
            text = str(error).removeprefix(f"{of.name}: ")  # errors of graphs already name it
            remedy = explain_failure(of, text)
            if remedy and len(text) > _MAX_REASON:  # else the line may lose its end
                text = f"{text[: _MAX_REASON - 1]}…"
            raise WorkerError(f"{of.name}: {text}{remedy}") from error

    def profile(self, job: ModelJob) -> Profile:
        """The runtime's own profile of a run of the job's whole model."""
        model = replace(job.model, skeleton=_named(job.model.skeleton))
        run = self.ask(model, ProfileModel(job.whole_key, model.skeleton, job.node_streams))
        current, names = job.decomposition.plan, [""] * len(job.decomposition.plan.occurrences)
        if current.granularity == EXECUTED:
            # Decomposed anew: the stored plan may be of another session, and holds no names.
            executed, graph = self._decomposed(model, Granularity(None))
            current, names = executed.plan, [node.name for node in graph.nodes]
        return profile_of(run, job.decomposition, current, names)

    def memory_peaks(self, model: Model, *, inline: bool = False) -> MemoryPeaks:
        """The peaks of a process that loads ``model`` and runs it; the worker must be fresh."""
        return self.ask(model, MeasureMemory(model.digest, model.skeleton, inline))


class Decomposer:
    """Decomposes models one after the other, with a worker of its own that times nothing."""

    def __init__(
        self, settings: WorkerSettings, granularity: Granularity, timeout_s: float
    ) -> None:
        """See :class:`Graphs`; the worker starts with the first model."""
        self._supervisor = Supervisor(replace(settings, timing=False))
        self._graphs = Graphs(self._supervisor, timeout_s)
        self._granularity = granularity

    def __call__(self, model: Model) -> Decomposition:
        """The plan and the bricks of ``model``; :class:`WorkerError` where there is none."""
        return self._graphs.decomposed(model, self._granularity)

    def close(self) -> None:
        """End the worker, also while another thread waits for its answer."""
        self._supervisor.close()


def _named(skeleton: bytes) -> bytes:
    """The model with a unique name for each node: profiles identify nodes only by names."""
    proto = parse_model(skeleton)
    names_in_use = {node.name for node in proto.graph.node}
    seen = {""}
    for number, node in enumerate(proto.graph.node):
        if node.name in seen:
            called = node.name or f"unnamed {node.op_type}"
            names = (f"{called} ({number}{extra * '+'})" for extra in count())
            node.name = next(name for name in names if name not in names_in_use)
            names_in_use.add(node.name)
        seen.add(node.name)
    return bytes(proto.SerializeToString())


def _refuse_untyped(model: Model, graph: Graph) -> None:
    """Raise if the backend gave a value no type: a later error could not name the node."""
    for node in graph.nodes:
        for name in node.output:
            if name and name not in graph.types:
                raise WorkerError(
                    f"{model.name}: the runtime tells no type of {name!r}, which {label(node)}"
                    " makes: choose another runtime, or let its backend infer it"
                )


def is_out_of_memory(reason: str) -> bool:
    """Whether the ``reason`` of a failure is that there was too little memory."""
    return any(phrase in reason for phrase in _MEMORY_PHRASES)


def given_inputs(model: Model) -> frozenset[str]:
    """Names of the inputs whose values the user gave."""
    return frozenset(known_values(parse_model(model.skeleton)))


def explain_failure(model: Model, reason: str) -> str:
    """A text to append to the ``reason`` of a failure: empty, or beginning with a space."""
    if is_out_of_memory(reason):
        return ""
    explanation = ""
    if model.rebatched:
        explanation += (
            " (its batch size was fixed, and another was asked for: the model may not allow that)"
        )
    empty = [*map(repr, model.empty_inputs)]
    if empty and not any(name in reason for name in empty):
        listed = ", ".join(empty)
        explanation += f" (without elements: {listed}; not every runtime takes that)"
    names = synthetic_inputs(graph_of(parse_model(model.skeleton)), specified=given_inputs(model))
    if names and "while running" in reason:
        listed = ", ".join(map(repr, names))
        explanation += f" (made up was {listed}: say with --value what it holds)"
    return explanation
