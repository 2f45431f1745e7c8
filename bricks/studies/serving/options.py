"""What a study of a served model is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bricks.errors import UsageError
from bricks.measure.served import refuse_without_loadgen
from bricks.studies.serving.scenario import ScenarioLoad, Serving
from bricks.system import Target

# Each size of a batch is a session with weights of its own.
_MAX_BATCH = 32

# So many queries are slower than the percentile that counts.
_BEYOND = 20
_MIN_QUERIES, _MAX_QUERIES = 200, 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioOptions:
    """``model`` under ``load``, as ``serving`` says.

    ``shapes`` and ``values`` are those of :meth:`Workspace.read`, which gets each size of a batch.
    ``system`` is a known one in place of this host, or ``target`` is given. With ``check``, the
    model is really served, and asked ``queries``, by default enough for the percentile that counts.
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
            raise UsageError("--check serves the model on this host: leave out --system")
        _refuse_unchecked(self.load, self.serving)


def queries_for(load: ScenarioLoad) -> int:
    """How many queries tell the percentile that counts."""
    enough = int(_BEYOND / (1 - load.counted_percentile / 100) + 0.5)
    return min(_MAX_QUERIES, max(_MIN_QUERIES, enough))


def _refuse_unchecked(load: ScenarioLoad, serving: Serving) -> None:
    """:class:`UsageError` for what real queries cannot show, or LoadGen cannot ask."""
    refuse_without_loadgen()
    if load.arrivals_s is not None:
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
