"""Requests about the graphs of models: executed, recorded, with shapes, with values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bricks.graph.containers import ValueType
from bricks.graph.sketch import Sketch
from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class TypedGraph:
    """A graph to cut: a ``model`` without weights, and the type of each value by its name.

    The values ``observed`` have types that depend on data, as one run has shown them. ``sketches``
    are of values on which the time of an operator depends; ``iterations`` are those of loops whose
    condition decides, by the name of their first output. The other fields are those of
    :class:`bricks.backends.base.Executed`.
    """

    model: bytes
    types: Mapping[str, ValueType]
    observed: tuple[str, ...] = ()
    in_place: Mapping[str, str] = field(default_factory=dict)
    groups: tuple[tuple[int, ...], ...] | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    other_kernels: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sketches: Mapping[str, Sketch] = field(default_factory=dict)
    iterations: Mapping[str, int] = field(default_factory=dict)
    rewritten_bytes: int | None = None


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
