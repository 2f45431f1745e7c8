"""Requests for graphs of models: as executed, as recorded, with shapes, with values."""

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

    The types of the values ``observed`` depend on data, and come from one run. ``contents`` has no
    steering values: :class:`ReadValues` returns computed ones. ``notes`` are sentences about the
    graph for its user.
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

    Types and contents that depend on data follow from the model's own weights, if they are in
    ``folder``.
    """

    model: bytes
    key: str = ""
    folder: str = ""


@dataclass(frozen=True, slots=True)
class ReadSource(Request[TypedGraph]):
    """The graph of a model called ``name`` as its file has it."""

    name: str
    model: bytes


@dataclass(frozen=True, slots=True)
class ReadValues(Request[Mapping[str, tuple[float, ...]]]):
    """The flattened contents of the values called ``names`` of the graph of ``model``.

    ``source`` is the model as written, whose weights lie in ``folder``.
    """

    model: bytes
    names: tuple[str, ...]
    source: bytes
    folder: str


@dataclass(frozen=True, slots=True)
class RecordProgram(Request[bytes]):
    """Record a step of a program as a model, without weights.

    ``entry`` is a file in ``folder`` or a module, and its function, which gets ``options``.
    """

    entry: str
    folder: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QuantiseModel(Request[None]):
    """Write a quantised model to the file ``target``, with the tool of the runtime ``tool``.

    ``location`` is that of its offer, ``method`` a value of
    :class:`~bricks.backends.quantising.QuantisationMethod`. The ``model`` has its own weights if
    they are in ``folder``; all others, and the inputs that calibrate it, are synthetic.
    """

    model: bytes
    folder: str
    tool: str
    location: str
    method: str
    target: str
