"""Where a bench spends its wall time, by kind of request to its worker and its cache."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from bricks import Bench
from bricks.measure.protocol.loading import BindPiece, LoadPiece, LoadPieces
from bricks.measure.protocol.request import Request
from bricks.measure.protocol.walking import RunWalk

# Requests to the worker; the others take hardly any time.
_ASKED: Mapping[type[Request[Any]], str] = {
    LoadPieces: "loading bricks",
    LoadPiece: "loading bricks",
    BindPiece: "placing them in memory",
}
_READS = ("results", "load_bricks", "brick_usage", "load_plan", "claim", "refuse_damage")
_WRITES = ("append_rounds", "supplement", "finish", "release", "renew", "save_decomposition")


class Profile:
    """Adds up the seconds of a bench's requests by kind, as told by ``clock``."""

    def __init__(self, bench: Bench, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = defaultdict(float)
        supervisor: Any = bench.workspace.supervisor
        supervisor.ask = self._watched(supervisor.ask, self._asked)
        store: Any = bench.store
        for names, what in ((_READS, "reading the cache"), (_WRITES, "writing to the cache")):
            for name in names:
                watched = self._watched(getattr(store, name), lambda *_, what=what, **__: what)
                setattr(store, name, watched)

    def _watched(self, call: Callable[..., Any], name: Callable[..., str]) -> Callable[..., Any]:
        def watched(*args: Any, **fields: Any) -> Any:
            started = self._clock()
            try:
                return call(*args, **fields)
            finally:
                self.seconds[name(*args, **fields)] += self._clock() - started

        return watched

    def _asked(self, request: Request[Any], **_: Any) -> str:
        if isinstance(request, RunWalk):
            return "running each once, announced" if request.announce else "sampling"
        return _ASKED.get(type(request), "everything else")

    def of(self, total_s: float) -> Mapping[str, float]:
        """Seconds by kind; whatever is left of ``total_s`` is "everything else"."""
        rest_s = total_s - sum(self.seconds.values())
        return {**self.seconds, "everything else": self.seconds["everything else"] + rest_s}
