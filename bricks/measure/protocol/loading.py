"""Requests to load pieces (bricks, whole models, probes) and to bind them to memory."""

from __future__ import annotations

from dataclasses import dataclass

from bricks.measure.protocol.request import Request


@dataclass(frozen=True, slots=True)
class MakeRegion(Request[None]):
    """Make the region of ``size_bytes`` that all steps of a walk share.

    Walks read at most ``eviction_bytes`` to evict the caches. Steps use only the parts ``used``,
    each with its offset and bytes; None: the whole region.
    """

    size_bytes: int
    eviction_bytes: int = 0
    used: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class LoadPiece(Request[None]):
    """Load a model under a name; see :class:`bricks.measure.walk.Load` for the other fields."""

    name: str
    key: str
    model: bytes
    optimize: bool
    streams: tuple[int, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class LoadPieces(Request[tuple[float, ...]]):
    """Load several pieces at once; the answer has the seconds of loading each.

    Each piece is announced when it is loaded.
    """

    pieces: tuple[LoadPiece, ...]


@dataclass(frozen=True, slots=True)
class BindPiece(Request[None]):
    """Bind the inputs and outputs of a loaded ``piece``, so that it is a ``step`` that can run.

    Inputs and outputs are offsets in bytes into the region, or None for memory of their own. A
    ``repeated`` step runs once untimed right before each sample.
    """

    step: str
    piece: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class UnloadAll(Request[None]):
    """Unload all pieces, and return their memory to the system."""
