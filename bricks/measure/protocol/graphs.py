"""Requests about the graphs of models: executed, recorded, with shapes, with values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bricks.decompose.lowering import AS_WRITTEN, UNKNOWN, Contents, Lowering
from bricks.graph.containers import ValueType
from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph to cut: a ``model`` without weights, and the type of each value by its name.

    The values ``observed`` have types that depend on data, as one run has shown them. ``contents``
    has no steering values: those that are computed are asked for by name. ``notes`` are sentences
    about the graph for its user.
    """

    model: bytes
    types: Mapping[str, ValueType]
    observed: tuple[str, ...] = ()
    lowering: Lowering = AS_WRITTEN
    contents: Contents = UNKNOWN
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadExecuted(Request[TypedGraph]):
    """The graph that the runtime executes for a model.

    What values decide follows from the model's own weights, if they are in ``folder``.
    """

    model: bytes
    key: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ReadSource(Request[TypedGraph]):
    """The own graph of a model called ``name``."""

    name: str
    model: bytes


@dataclass(frozen=True, slots=True)
class ReadValues(Request[Mapping[str, tuple[float, ...]]]):
    """The flattened contents of the values called ``names``."""

    model: bytes
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordProgram(Request[bytes]):
    """Record a step of a program as a model, without weights.

    ``entry`` is a file in ``folder`` or a module, and its function, which gets ``options``.
    """

    entry: str
    folder: str
    options: Mapping[str, Any]
