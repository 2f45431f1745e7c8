"""What a runtime must offer to be measured: a small interface, spoken inside the worker process.

A backend loads what it is given, and times single runs of it. Nothing of a runtime's own objects
leaves its backend. It must not know of the store, of plans, or of how often something is sampled.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import onnx

from bricks._version import renamed_fields
from bricks.graph.containers import ValueType


@renamed_fields(real="timed", frugal="bounded_memory")
@dataclass(frozen=True, slots=True)
class BackendInfo:
    """What is known of a backend without starting it.

    ``timed`` is whether it takes real time, ``parallel`` whether it can run nodes side by side.
    ``brick_optimization`` is which of its optimisations it applies to bricks, ``all`` or ``none``,
    whichever the granularity; None where that decides. ``python`` is the interpreter that the
    worker needs. ``bounded_memory`` is whether it holds no more memory than what is loaded needs:
    of others nobody can tell how much a model may take. ``levels`` are those of its optimisation.
    ``build`` is the package that it was installed from, as far as that is known.
    """

    name: str
    version: str
    provider: str
    timed: bool
    parallel: bool = False
    brick_optimization: str | None = None
    python: str = sys.executable
    bounded_memory: bool = True
    levels: tuple[str, ...] = ("all",)
    build: str | None = None


@dataclass(frozen=True, slots=True)
class Executed:
    """The graph that a runtime executes for a model, after its own optimisation.

    ``proto`` holds no weights; ``types`` has every value's type, ``observed`` names those that were
    found in a run, since they depend on data. ``in_place`` maps a value to the value whose memory
    the runtime gives it. ``groups`` are the nodes, by position, that the runtime executes as one,
    in an order to run: where its fusions make no nodes that an ONNX file could hold. None: each
    node by itself.
    """

    proto: onnx.ModelProto
    types: Mapping[str, ValueType]
    in_place: Mapping[str, str]
    observed: Sequence[str] = ()
    groups: Sequence[tuple[int, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the inputs and outputs of something loaded live while it runs.

    One entry per graph input (output), in order: an offset in bytes into the shared activation
    region, or None for a buffer of its own.
    """

    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]


class Placed(Protocol):
    """Something loaded, with its inputs and outputs bound: ready to run."""

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        ...


class Loaded(Protocol):
    """Something a backend has loaded. It may be placed more than once."""

    def place(self, placement: Placement, region: np.ndarray) -> Placed:
        """Bind inputs and outputs, into ``region`` (bytes) where the placement says so."""
        ...


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A node that a runtime ran, in seconds from the run's beginning; ``thread`` tells which did.

    ``name`` is that in the executed graph (see :class:`Executed`); empty where the runtime calls a
    node otherwise each time. ``inner`` are nodes that ran inside of another.
    """

    name: str
    operator: str
    begin_s: float
    end_s: float
    thread: int
    inner: bool = False


class Profiled(Protocol):
    """A whole model whose runs the runtime itself writes down, node by node."""

    def sample(self) -> float:
        """Run once; the latency in seconds."""
        ...

    def runs(self) -> Sequence[Sequence[NodeEvent]]:
        """The nodes of each run so far, on each thread as they ended. No more runs can follow."""
        ...


class Profiler(Protocol):
    """What a backend may offer beside :class:`Backend`: a profile of the runtime's own."""

    def profiled(
        self, proto: onnx.ModelProto, *, key: str, streams: Sequence[int] = ()
    ) -> Profiled:
        """``proto`` made ready as by :meth:`Backend.load`, optimised, with buffers of its own."""
        ...


class Backend(Protocol):
    """A runtime with a fixed number of threads, in this process.

    ``loaders`` is how many threads may call :meth:`load` at the same time.
    """

    loaders: int

    def sign_sensitive(self, operator: str) -> bool:
        """Whether an operator takes longer where the signs of its input cannot be foreseen."""
        ...

    def executed(self, proto: onnx.ModelProto) -> Executed:
        """The graph that is really executed for ``proto`` (a model without weights)."""
        ...

    def types(self, proto: onnx.ModelProto) -> tuple[Mapping[str, ValueType], Sequence[str]]:
        """Every value's type, and the values whose type was found by running ``proto``."""
        ...

    def values(self, proto: onnx.ModelProto, names: Sequence[str]) -> Mapping[str, Sequence[float]]:
        """What the values called ``names`` hold in a run of ``proto``, flattened."""
        ...

    def load(
        self,
        proto: onnx.ModelProto,
        *,
        key: str,
        optimize: bool,
        streams: Sequence[int] = (),
    ) -> Loaded:
        """Make ``proto`` ready, with synthetic weights; ``key`` and the seed decide their values.

        ``optimize`` asks for all of the runtime's graph optimisations, otherwise for none, of a
        runtime that can have both. Inputs hold what the metadata of ``proto`` says
        (:mod:`bricks.graph.model_metadata`), or are made up.

        With ``streams``, a number for each node of the graph that is executed for ``proto``, nodes
        with different numbers run side by side, those with one number in order.
        """
        ...

    def evaluate(
        self,
        proto: onnx.ModelProto,
        weights: Mapping[str, np.ndarray],
        feeds: Mapping[str, Any],
        *,
        optimize: bool,
    ) -> Sequence[Any]:
        """The outputs of ``proto`` with these weights and inputs, in the order of its outputs.

        Arrays, and for what is no tensor lists, dicts and None.
        """
        ...

    def materialised(
        self, proto: onnx.ModelProto, weights: Mapping[str, np.ndarray]
    ) -> tuple[Executed, Mapping[str, np.ndarray]]:
        """As :meth:`executed`, with the weights as that graph wants them (fused, reordered)."""
        ...
