"""A runtime that computes nothing: it derives latencies from the keys of bricks.

For tests and for trying the pipeline where timing does not matter. The key of a one-node brick
determines the node's latency; a model's latency is the sum over its nodes plus the call overhead,
so that estimates are exact. With streams, a node begins when its predecessor in the stream has
ended and its inputs are available; the model ends with its last node. Samples vary by a fixed
pattern of ±0.4 %. The runtime simulates a profile too: half of the call overhead precedes the first
node, and recording a node takes 200 ns.

The environment variable ``BRICKS_FAKE_FAULTS`` injects faults by operator. For example, with
``Sigmoid=crash,Tanh=hang,Exp=memory,Log=error`` running such an operator ends the process, never
returns, exhausts memory, or fails. With ``later`` it fails from its second run on; with ``crowd``
it runs out of memory while anything else is loaded. With ``damage``, decomposing or loading it
makes whatever the process runs next crash. ``Sigmoid+Tanh=crash`` applies only to graphs
that contain both operators, such as a whole model but none of its bricks. Reference kernels never
fail. When a fault occurs, the file named by ``BRICKS_FAKE_STRUCK`` is created. ``BRICKS_FAKE_PACE``
is the number of seconds that each run really takes, so that it can be interrupted.
``BRICKS_FAKE_STATE`` is a factor on all latencies, including those of the reference kernels: it
simulates a slower host. ``BRICKS_FAKE_UNREST`` is a factor on the variation of samples: it
simulates a disturbed host.

Ranks send nothing: an all-reduce between n ranks takes 2(n-1) messages of 50 µs, and moves bytes at
1 GB/s; a rank computes half as fast meanwhile. So fits and formulas are exact.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from weakref import WeakSet

import numpy as np
import onnx

from bricks.backends.base import (
    Backend,
    Binding,
    BoundModel,
    ExecutedGraph,
    NodeEvent,
    Profiler,
    SizeLoader,
    StandaloneLoader,
)
from bricks.backends.instruments import Instrumented, Instruments
from bricks.backends.onnx_instruments import KERNEL
from bricks.backends.ranks import CollectiveTimes, Communicator
from bricks.decompose.identity import Cutter
from bricks.errors import BackendError
from bricks.graph.model import Graph
from bricks.graph.payload import is_referenced
from bricks.graph.topology import used_values
from bricks.graph.types import ValueType
from bricks.graph.view import graph_of
from bricks.system.host_conditions import KERNELS
from bricks.units.sample import Sample

CALL_OVERHEAD_S = 2e-6
PROFILING_S = 2e-7
# How much longer a run takes after another size, and of a size that never ran, relative to it.
CHANGE, NEW = 0.25, 1.5
DAMAGE = "damage"

_REFERENCES = frozenset(map(KERNEL.format, KERNELS))

# The latency of a read.
READ_S = 2e-6

LATENCY_S, BYTES_PER_S, UNIT_S, SLOWDOWN = 50e-6, 1e9, 4e-4, 2.0

# Messages that follow each other, for each rank but one; each holds a rank's part of the tensor.
_FACTORS = {"all_reduce": 2.0, "broadcast": 1.0, "all_gather": 1.0, "reduce_scatter": 1.0}
# The relative deviations of samples, over and over.
PATTERN = (0.0, 0.002, -0.002, 0.004, -0.004)


class FakeBackend(Backend, Profiler, StandaloneLoader, SizeLoader, Communicator, Instrumented):
    """The backend called ``fake``."""

    loaders = 2
    timed = False

    def __init__(self) -> None:
        self._loaded: WeakSet[FakeModel] = WeakSet()
        self._damage: FakeModel | None = None  # kept as long as the process

    def instruments(self) -> FakeInstruments:
        """Instruments with made-up latencies, too."""
        return FakeInstruments()

    def sign_sensitive(self, operator: str) -> bool:
        """False: latencies do not depend on data."""
        return False

    def executed(self, proto: onnx.ModelProto) -> ExecutedGraph:
        """The source graph: this runtime's only optimisation removes unused outputs."""
        graph = _typed(proto)
        if _fault(graph) == DAMAGE:
            self._damage = FakeModel(0.0, DAMAGE, self._loaded)
            self._loaded.add(self._damage)
        executed = onnx.ModelProto()
        executed.CopyFrom(proto)
        del executed.graph.node[:]
        executed.graph.node.extend(graph.nodes)
        return ExecutedGraph(executed, graph.types, {}, rewritten_bytes=0)

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """The types that ``onnx.shape_inference`` infers."""
        return _typed(proto).types, ()

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """An empty mapping: this runtime computes no values and needs none."""
        return {}

    def load(
        self, proto: onnx.ModelProto, *, key: str, optimize: bool, streams: Sequence[int] = ()
    ) -> FakeModel:
        """Load anything; loading takes no memory."""
        graph = _typed(proto)
        latencies_s = _latencies_s(graph)
        ends_s = [end_s for _, end_s in _spans(graph, latencies_s, streams)] if streams else []
        latency_s = CALL_OVERHEAD_S + (max(ends_s) if streams else sum(latencies_s))
        if is_reference(key):
            return FakeModel(latency_s)
        model = FakeModel(latency_s, _fault(graph), self._loaded)
        self._loaded.add(model)
        return model

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> FakeProfiled:
        """Each node takes as long as its brick, plus the time to record it."""
        graph = _typed(proto)
        return FakeProfiled(graph, streams or [0] * len(graph.nodes), _fault(graph))

    def collectives(self) -> FakeCollectives:
        """This process as a rank among others."""
        return FakeCollectives()

    def standalone(
        self, proto: onnx.ModelProto, *, key: str, folder: Path, inline: bool = False
    ) -> FakeStandalone:
        """A model that takes memory for its weights when it is loaded, and for values in runs."""
        return FakeStandalone(_typed(proto))

    def load_sizes(
        self, opened: onnx.ModelProto, sizes: Sequence[onnx.ModelProto], *, key: str
    ) -> list[FakeSize]:
        """A run after another size takes longer by a share of its latency."""
        ran: list[FakeSize] = []
        return [FakeSize(CALL_OVERHEAD_S + sum(_latencies_s(_typed(of))), ran) for of in sizes]


class FakeSize:
    """A size of a model; ``ran`` is the size that ran last, and perhaps earlier ones."""

    def __init__(self, latency_s: float, ran: list[FakeSize]) -> None:
        self._latency_s, self._ran = latency_s, ran

    def sample(self) -> Sample:
        """The latency, longer after another size and longest at the first run."""
        extra = 0.0 if self._ran[-1:] == [self] else CHANGE if self in self._ran else NEW
        self._ran.append(self)
        return Sample(self._latency_s * (1 + extra))


class FakeModel:
    """A loaded model with a latency and a ``fault``; ``loaded`` is the set of all loaded models."""

    def __init__(
        self, latency_s: float, fault: str | None = None, loaded: Collection[FakeModel] = ()
    ) -> None:
        self.latency_s, self.fault, self._loaded = latency_s, fault, loaded

    def bind(self, binding: Binding, region: np.ndarray) -> FakeBoundModel:
        """A model ready to run; its memory changes nothing."""
        return FakeBoundModel(self)

    @property
    def crowded(self) -> bool:
        """Whether another model is loaded."""
        return len(self._loaded) > 1

    @property
    def damaged(self) -> bool:
        """Whether a model that was decomposed or is loaded has damaged the process."""
        return any(model.fault == DAMAGE for model in self._loaded)


class FakeStandalone:
    """A whole model that takes memory for its weights and values, and writes to all of it."""

    def __init__(self, graph: Graph) -> None:
        weights = {name for name, t in graph.initializers.items() if is_referenced(t)}
        made = {name for node in graph.nodes for name in node.output if name}
        self._weight_bytes = sum(graph.types[name].size_bytes for name in weights)
        self._value_bytes = sum(graph.types[name].size_bytes for name in {*made, *graph.inputs})
        self._weights = np.empty(0, np.uint8)

    def load(self) -> None:
        """Take memory for the weights."""
        self._weights = np.ones(self._weight_bytes, np.uint8)

    def run(self) -> None:
        """Take memory for all values, and release it."""
        np.ones(self._value_bytes, np.uint8)


class FakeBoundModel:
    """A bound model, ready to run."""

    def __init__(self, model: FakeModel) -> None:
        self._model = model
        self._runs = count()
        self._pace_s = float(os.environ.get("BRICKS_FAKE_PACE", "0"))
        self._state = float(os.environ.get("BRICKS_FAKE_STATE", "1"))
        self._unrest = float(os.environ.get("BRICKS_FAKE_UNREST", "1"))

    def sample(self) -> Sample:
        """The latency, varied by a fixed pattern."""
        if self._pace_s:  # sleeping for no time takes as long as the system's timer is coarse
            time.sleep(self._pace_s)
        run = next(self._runs)
        fault = "crash" if self._model.damaged else self._model.fault
        if fault is not None:
            self._strike(fault, run)
        factor = 1 + self._unrest * PATTERN[run % len(PATTERN)]
        return Sample(self._state * self._model.latency_s * factor)

    def _strike(self, fault: str, run: int) -> None:
        if (fault == "later" and run == 0) or (fault == "crowd" and not self._model.crowded):
            return
        if struck := os.environ.get("BRICKS_FAKE_STRUCK"):
            Path(struck).touch()
        if fault == "crash":
            os.abort()
        if fault == "hang":
            time.sleep(3600)
        if fault in ("memory", "crowd"):
            raise MemoryError("ordered by BRICKS_FAKE_FAULTS")
        if fault in ("error", "later"):
            raise BackendError("failed as ordered by BRICKS_FAKE_FAULTS")


class FakeProfiled:
    """A model with the start and end time of each node; a node's stream is its thread."""

    def __init__(self, graph: Graph, streams: Sequence[int], fault: str | None) -> None:
        written_s = [latency_s + PROFILING_S for latency_s in _latencies_s(graph)]
        begin_s = CALL_OVERHEAD_S / 2
        self._events = [
            NodeEvent(
                name=node.name,
                operator=node.op_type,
                begin_s=begin_s + node_begin_s,
                end_s=begin_s + node_end_s - PROFILING_S,
                thread=stream,
            )
            for node, stream, (node_begin_s, node_end_s) in zip(
                graph.nodes, streams, _spans(graph, written_s, streams), strict=True
            )
        ]
        last_s = max((event.end_s for event in self._events), default=begin_s)
        latency_s = last_s + PROFILING_S + CALL_OVERHEAD_S / 2
        self._bound = FakeBoundModel(FakeModel(latency_s, fault))
        self._latency_s = latency_s
        self._samples_s: list[float] = []

    def sample(self) -> float:
        """The latency in seconds, varied by a fixed pattern."""
        self._samples_s.append(self._bound.sample().host_s)
        return self._samples_s[-1]

    def runs(self) -> list[list[NodeEvent]]:
        """The nodes of each run, scaled to the latency of that run."""
        return [
            [
                replace(event, begin_s=f * event.begin_s, end_s=f * event.end_s)
                for event in self._events
            ]
            for f in (sample_s / self._latency_s for sample_s in self._samples_s)
        ]


def node_latency_s(key: str) -> float:
    """A latency between 10 and 510 microseconds, derived from a brick's key."""
    return 1e-5 + int(key.removeprefix("b1-")[:8], 16) / 0xFFFFFFFF * 5e-4


def _latencies_s(graph: Graph) -> list[float]:
    cutter = Cutter(graph)
    keys = [cutter.cut((i,)).brick.key for i in range(len(graph.nodes))]
    return list(map(node_latency_s, keys))


def _spans(
    graph: Graph, latencies_s: Sequence[float], streams: Sequence[int]
) -> list[tuple[float, float]]:
    """The start and end of each node, in seconds from the first start."""
    spans = []
    available_s: dict[str, float] = {}  # by value
    free_s: dict[int, float] = {}  # by stream
    for node, latency_s, stream in zip(graph.nodes, latencies_s, streams, strict=True):
        inputs_s = [available_s[name] for name in used_values(node) if name in available_s]
        begin_s = max([free_s.get(stream, 0.0), *inputs_s])
        free_s[stream] = begin_s + latency_s
        spans.append((begin_s, free_s[stream]))
        available_s.update((name, free_s[stream]) for name in node.output)
    return spans


def _typed(proto: onnx.ModelProto) -> Graph:
    try:
        inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True)
    except Exception as exc:  # onnx raises several unrelated types here
        raise BackendError(f"the fake runtime needs inferable shapes: {exc}") from exc
    graph = graph_of(inferred)
    # Unread outputs of unknown type, such as masks of Dropout, are left out.
    kept = {name for node in graph.nodes for name in used_values(node)}
    kept.update((*graph.outputs, *graph.types))
    nodes = []
    for node in graph.nodes:
        outputs = [name if i == 0 or name in kept else "" for i, name in enumerate(node.output)]
        while outputs and not outputs[-1]:
            outputs.pop()
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.output[:] = outputs
        nodes.append(copy)
        for name in outputs:
            if name and name not in graph.types:
                domain = f" of domain {node.domain}" if node.domain else ""
                raise BackendError(
                    f"the fake runtime cannot infer the shape of {name!r},"
                    f" which {node.op_type}{domain} makes: choose --runtime onnxruntime"
                )
    return replace(graph, nodes=tuple(nodes))


def is_reference(key: str) -> bool:
    """Whether ``key`` is that of a reference kernel: none fails, or counts as loaded."""
    return key in _REFERENCES


def fault_of(proto: onnx.ModelProto) -> str | None:
    """The fault that ``BRICKS_FAKE_FAULTS`` injects for a model, if there is one."""
    return _fault(_typed(proto))


def kernels_s(proto: onnx.ModelProto) -> list[tuple[str, float]]:
    """The operator of each node, and the seconds that it takes without the call overhead."""
    graph = _typed(proto)
    operators = [node.op_type for node in graph.nodes]
    return list(zip(operators, _latencies_s(graph), strict=True))


def _fault(graph: Graph) -> str | None:
    entries = os.environ.get("BRICKS_FAKE_FAULTS", "").split(",")
    faults = dict(entry.split("=", 1) for entry in entries if "=" in entry)
    present = {node.op_type for node in graph.nodes}
    return next(
        (fault for ops, fault in faults.items() if present.issuperset(ops.split("+"))), None
    )


class FakeInstruments(Instruments):
    """Instruments with fixed latencies."""

    def eviction_read(self, memory: np.ndarray) -> BoundModel:
        """A model that reads nothing."""
        return FakeBoundModel(FakeModel(READ_S))


class FakeCollectives:
    """A rank that knows the number of ranks, and nothing else of them."""

    def __init__(self) -> None:
        self._ranks = 1
        self._runs = count()

    def open_store(self, address: str, timeout_s: float) -> int:
        """A port that nothing listens on."""
        return 1

    def join(
        self, rank: int, ranks: int, address: str, port: int, interface: str, timeout_s: float
    ) -> None:
        """Keep the number of ranks."""
        self._ranks = ranks

    def leave(self) -> None:
        """Do nothing."""

    def time(self, operation: str, num_bytes: int, passes: int, computing: bool) -> CollectiveTimes:
        """Latencies by formula, which vary by a fixed pattern."""
        messages = _FACTORS[operation] * (self._ranks - 1)
        seconds = messages * (LATENCY_S + num_bytes / self._ranks / BYTES_PER_S)
        factors = [1 + PATTERN[next(self._runs) % len(PATTERN)] for _ in range(passes)]
        if not computing:
            return CollectiveTimes(tuple(seconds * factor for factor in factors))
        return CollectiveTimes(
            tuple(seconds * SLOWDOWN * factor for factor in factors),
            before_s=tuple(UNIT_S * factor for factor in factors),
            during_s=tuple(UNIT_S * SLOWDOWN * factor for factor in factors),
        )
