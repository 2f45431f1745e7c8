"""Which scenarios real queries can check, and how many it takes. Must not know how that is done."""

from __future__ import annotations

from bricks.errors import UsageError
from bricks.measure.served import refuse_without_loadgen
from bricks.studies.serving.scenario import ScenarioLoad, Serving

# Each size of a batch is a session with weights of its own.
_MAX_BATCH = 32

# So many queries are slower than the percentile that counts.
_BEYOND = 20
_MIN_QUERIES, _MAX_QUERIES = 200, 100_000


def queries_for(load: ScenarioLoad) -> int:
    """How many queries tell the percentile that counts."""
    enough = int(_BEYOND / (1 - load.counted_percentile / 100) + 0.5)
    return min(_MAX_QUERIES, max(_MIN_QUERIES, enough))


def refuse_unchecked(load: ScenarioLoad, serving: Serving) -> None:
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
