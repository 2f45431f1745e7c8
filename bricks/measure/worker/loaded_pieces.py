"""Loads pieces (bricks, whole models, probes), and binds them to memory as steps.

All steps of a walk share that memory, which is filled with ordinary numbers. Bound inputs and
outputs are offsets into it, so that each step finds its inputs where the step before has written
them. Must not know in which order steps run, nor what is measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bricks.backends.base import BindableModel, Binding, BoundModel, RotatingInputs
from bricks.backends.input_values import Turns
from bricks.backends.instruments import Preparation
from bricks.graph.subgraphs import with_noted_iterations
from bricks.graph.topology import all_nodes
from bricks.graph.view import parse_model
from bricks.graph.weights import with_own_weights
from bricks.measure.protocol.walking import BindPiece, LoadPiece
from bricks.measure.worker.input_turns import turns_of
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.runtime import ALIGNMENT_BYTES, WorkerRuntime, aligned
from bricks.operators.dependence import data_decides
from bricks.operators.rotated_inputs import rotated_inputs
from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class LoadedPiece:
    """A piece that the backend has loaded.

    ``preparation`` runs before it. ``parallel`` is whether its nodes run along streams,
    ``sign_sensitive`` whether unpredictable signs slow it down. Sets of values take ``turns`` at
    its inputs, since it would be faster twice on the same ones.
    """

    loaded: BindableModel
    preparation: Preparation
    parallel: bool
    sign_sensitive: bool
    turns: Turns


@dataclass(frozen=True, slots=True)
class BoundPiece:
    """A step: a piece with its inputs and outputs bound.

    Functions ``before`` it run untimed. A ``repeated`` step runs once untimed before each sample.
    """

    bound: BoundModel
    before: tuple[Callable[[], object], ...]
    repeated: bool
    parallel: bool

    def runner(self, *, sampled: bool) -> Callable[[], Sample]:
        """A function that runs the step, and returns its sample.

        A repeated step runs twice if it is ``sampled``: then the second run counts.
        """
        run, before = self.bound.sample, self.before

        def prepared() -> Sample:
            for prepare in before:
                prepare()
            return run()

        once = prepared if before else run

        def twice() -> Sample:
            once()
            return once()

        return twice if sampled and self.repeated else once


class LoadedPieces:
    """Loaded pieces by name, bound ``steps`` by name, and the ``region`` that steps share."""

    def __init__(self, runtime: WorkerRuntime, instruments: WorkerInstruments) -> None:
        self._runtime, self._instruments = runtime, instruments
        self._loaded: dict[str, LoadedPiece] = {}
        self.steps: dict[str, BoundPiece] = {}
        self.region = ActivationRegion()

    def load(self, request: LoadPiece) -> None:
        """Load a piece; several threads may do so at once if the backend allows it."""
        proto = with_noted_iterations(parse_model(request.model))
        if request.folder and data_decides(proto):
            proto = with_own_weights(proto, Path(request.folder))
        backend = self._runtime.backend
        loaded = backend.load(
            proto, key=request.key, optimize=request.optimize, streams=request.streams
        )
        operators = {node.op_type for node in all_nodes(proto.graph)}
        signs = any(map(backend.sign_sensitive, operators))
        turns: Turns = {}
        if not self._runtime.settings.repeat_inputs:
            rotated = rotated_inputs(proto, backend.sign_sensitive)
            turns = turns_of(backend, proto, request.key, rotated)
        preparation = self._runtime.instruments.preparation(proto)
        self._loaded[request.name] = LoadedPiece(
            loaded, preparation, bool(request.streams), signs, turns
        )

    def bind(self, request: BindPiece) -> None:
        """Bind a piece as a step."""
        piece, region = self._loaded[request.piece], self.region.memory
        bound = piece.loaded.bind(Binding(request.inputs, request.outputs), region)
        prepared = piece.preparation.bound(request.inputs, region)
        before: list[Callable[[], object]] = [model.sample for model in prepared]
        if piece.turns and isinstance(bound, RotatingInputs):
            next_values = bound.rotation(piece.turns)
            before += [] if next_values is None else [next_values]
        repeated = request.repeated and not piece.turns
        self.steps[request.step] = BoundPiece(bound, tuple(before), repeated, piece.parallel)

    def refill(self, parts: Sequence[tuple[int, int]] | None) -> None:
        """Fill ``parts`` of the region (offset and bytes) with ordinary numbers; None: all."""
        signed = any(piece.sign_sensitive for piece in self._loaded.values())
        self.region.fill(self._instruments.filling(signed=signed), parts=parts)

    def unload(self) -> None:
        """Unload everything, and keep the region."""
        self.steps.clear()
        self._loaded.clear()


class ActivationRegion:
    """The region; empty until :meth:`resize`."""

    def __init__(self) -> None:
        self._memory = np.zeros(0, np.uint8)

    @property
    def memory(self) -> np.ndarray:
        """Bytes of the region (uint8), from an aligned address."""
        return aligned(self._memory)

    def resize(self, size_bytes: int) -> None:
        """Allocate ``size_bytes``, and drop the old memory."""
        self._memory = np.zeros(size_bytes + ALIGNMENT_BYTES, np.uint8)

    def fill(self, filling: np.ndarray, *, parts: Sequence[tuple[int, int]] | None = None) -> None:
        """Write ``filling`` repeatedly into ``parts`` (offset and bytes); None: everywhere.

        A walk over some of a model's bricks may read values at its beginning that it wrote at its
        end. Without new numbers, such values would grow or shrink without bound.
        """
        memory, period = self.memory, len(filling)
        for begin, size_bytes in [(0, len(memory))] if parts is None else parts:
            end = min(begin + size_bytes, len(memory))
            while begin < end:
                phase = begin % period
                count = min(period - phase, end - begin)
                memory[begin : begin + count] = filling[phase : phase + count]
                begin += count
