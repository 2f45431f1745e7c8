"""Options of a study of a served model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bricks.errors import UsageError
from bricks.measure.served import refuse_without_loadgen
from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.system import Target

# Each batch size is a session with its own weights.
_MAX_BATCH = 32

# Queries beyond the percentile of the SLO.
_BEYOND = 20
_MIN_QUERIES, _MAX_QUERIES = 200, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """``model`` under ``load``, on a server with the options ``serving``.

    ``shapes`` and ``values`` are arguments of :meth:`Workspace.read` for each batch size.
    ``system`` is a known system in place of this host; ``target`` takes precedence. With ``check``,
    the model is really served with ``queries`` queries, by default enough for the percentile of
    the SLO.
    """

    model: str
    load: ScenarioLoad
    serving: Serving = field(default_factory=Serving)
    shapes: Mapping[str, Sequence[int | None]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    system: str | None = None
    target: Target | None = None
    check: bool = False
    queries: int | None = None

    def __post_init__(self) -> None:
        if not self.check:
            return
        if self.system is not None:
            raise UsageError("--check serves the model on this host: leave out --on")
        serving = self.serving
        refuse_without_loadgen()
        if self.load.arrivals_s is not None:
            raise UsageError("--check has LoadGen ask, which knows no --arrivals: give --qps")
        if serving.max_batch > _MAX_BATCH:
            raise UsageError(
                f"--check loads the model for each size of a batch, and {serving.max_batch} are too"
                f" many: give --batching {_MAX_BATCH} or less"
            )
        if serving.max_queue is not None:
            raise UsageError("--check has LoadGen ask, which waits for every answer: leave out"
                             " --max-queue")  # fmt: skip
        if serving.request_s or serving.batch_s or serving.transport_s:
            raise UsageError(
                "--check measures what the server takes: leave out --request-cost, --batch-cost and"
                " --transport"
            )


def queries_for(load: ScenarioLoad) -> int:
    """The number of queries that determine the percentile of the SLO."""
    enough = int(_BEYOND / (1 - load.counted_percentile / 100) + 0.5)
    return min(_MAX_QUERIES, max(_MIN_QUERIES, enough))
