"""Requests to load pieces and to bind them, and to unload everything.

Must not know what is loaded, nor why.
"""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

from bricks.measure.protocol.loading import BindPiece, LoadPiece, LoadPieces, MakeRegion, UnloadAll
from bricks.measure.worker.handlers import Announce, Handlers
from bricks.measure.worker.instruments import WorkerInstruments
from bricks.measure.worker.joints import Joints
from bricks.measure.worker.memory import release_freed_memory
from bricks.measure.worker.pieces import Pieces
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.measure.worker.warmth import Warmth


class LoadingRequests:
    """Loads ``pieces``; ``joints``, ``warmth`` and ``instruments`` are about what is loaded."""

    def __init__(
        self,
        runtime: WorkerRuntime,
        instruments: WorkerInstruments,
        pieces: Pieces,
        joints: Joints,
        warmth: Warmth,
        announce: Announce,
    ) -> None:
        self._runtime, self._instruments, self._pieces = runtime, instruments, pieces
        self._joints, self._warmth, self._announce = joints, warmth, announce

    def handlers(self) -> Handlers:
        """See :class:`.handlers.RequestHandler`."""
        return {
            MakeRegion: self.make_region,
            LoadPiece: self._pieces.load,
            LoadPieces: self.load_pieces,
            BindPiece: self.bind,
            UnloadAll: self.unload,
        }

    def make_region(self, request: MakeRegion) -> None:
        """Make the region; the old one is given up."""
        self._instruments.evictor.announce(request.eviction_bytes)
        self._pieces.region.resize(request.size_bytes)
        self._pieces.refill()

    def load_pieces(self, request: LoadPieces) -> tuple[float, ...]:
        """Load several at once, as far as the runtime allows; the seconds that each took."""

        def load(piece: LoadPiece) -> float:
            started = time.perf_counter()
            self._pieces.load(piece)
            return time.perf_counter() - started

        taken: list[float] = []
        with ThreadPoolExecutor(self._runtime.backend.loaders) as pool:  # gone before any timing
            for seconds in pool.map(load, request.pieces):
                self._announce(len(taken))
                taken.append(seconds)
        return tuple(taken)

    def bind(self, request: BindPiece) -> None:
        """Bind a piece as a step."""
        self._joints.forget()
        self._pieces.bind(request)

    def unload(self, request: UnloadAll | None = None) -> None:
        """Unload everything, and give its memory back."""
        self._pieces.unload()
        self._joints.forget()
        self._warmth.reset()
        self._instruments.unload()
        gc.collect()
        release_freed_memory()
