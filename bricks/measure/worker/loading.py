"""Handles requests to load pieces, to bind them, and to unload everything.

Must not know which pieces are loaded, nor why.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from bricks.measure.protocol.loading import BindPiece, LoadPiece, LoadPieces, MakeRegion, UnloadAll
from bricks.measure.worker.walk_state import WalkState


@dataclass(frozen=True, slots=True)
class LoadingRequests:
    """Loads and binds the pieces of ``state``."""

    state: WalkState

    def make_region(self, request: MakeRegion) -> None:
        """Make the region, and drop the old one."""
        self.state.instruments.evictor.announce(request.eviction_bytes)
        self.state.pieces.region.resize(request.size_bytes)
        self.state.pieces.refill(request.used)

    def load(self, request: LoadPiece) -> None:
        """Load a piece."""
        self.state.pieces.load(request)

    def load_several(self, request: LoadPieces) -> tuple[float, ...]:
        """Load pieces at once, in as many threads as the runtime allows; seconds of each."""

        def load(piece: LoadPiece) -> float:
            started = time.perf_counter()
            self.state.pieces.load(piece)
            return time.perf_counter() - started

        loads_s: list[float] = []
        with ThreadPoolExecutor(self.state.runtime.backend.loaders) as pool:  # ends before timing
            for load_s in pool.map(load, request.pieces):
                self.state.announce(len(loads_s))
                loads_s.append(load_s)
        return tuple(loads_s)

    def bind(self, request: BindPiece) -> None:
        """Bind a piece as a step."""
        self.state.fused.clear()
        self.state.pieces.bind(request)

    def unload(self, request: UnloadAll) -> None:
        """Unload all pieces and instruments."""
        self.state.unload()
