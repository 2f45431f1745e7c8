"""The load of a scenario as MLPerf defines it, and the options of a server. Plain data.

Must not know models, nor how servers are simulated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from bricks.errors import UsageError
from bricks.studies.options import option
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    import numpy as np

# A batch larger than this would be a mistake.
MAX_BATCH = 4096

# The percentile that counts by default, as in MLPerf inference (Reddi et al., ISCA 2020).
_PERCENTILES = {"single-stream": 90.0, "multi-stream": 99.0, "server": 99.0, "offline": 99.0}

_SERVER = "Server"
_COST = partial(seconds_of, what="cost")


class ScenarioKind(StrEnum):
    """How queries arrive.

    ``SINGLE_STREAM``: one sample, the next when it is answered. ``MULTI_STREAM``: several samples
    at once, the next when all are answered. ``SERVER``: each sample by itself, at its own time.
    ``OFFLINE``: all samples at once.
    """

    SINGLE_STREAM = "single-stream"
    MULTI_STREAM = "multi-stream"
    SERVER = "server"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class ScenarioLoad:
    """The queries of a scenario, and its SLO.

    ``qps`` is the mean rate of the server scenario's Poisson arrivals, or ``arrivals_s`` a trace of
    ascending arrival times in seconds. ``samples`` is the number of samples of a query in the
    multi-stream scenario. ``slo_s`` is the SLO's bound of ``percentile`` of the latencies, if any.
    """

    kind: ScenarioKind
    qps: float | None = None
    arrivals_s: Sequence[float] | None = None
    samples: int = 8
    slo_s: float | None = None
    percentile: float | None = None

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for options that contradict each other."""
        server = self.kind is ScenarioKind.SERVER
        if not server and (self.qps is not None or self.arrivals_s is not None):
            raise UsageError(
                f"queries of scenario {self.kind} come when others are answered, at no rate of"
                " their own: leave out --qps and --arrivals, or give --scenario server"
            )
        if self.qps is not None and self.arrivals_s is not None:
            raise UsageError("--arrivals has a rate of its own: leave out --qps")
        if self.qps is not None and self.qps <= 0:
            raise UsageError(f"--qps {self.qps:g} is no rate: give queries a second above 0")
        if server and self.qps is None and self.arrivals_s is None and self.slo_s is None:
            raise UsageError(
                "scenario server needs a rate: add --qps N or --arrivals FILE, or a bound for which"
                " the highest rate is to be found: --slo 50ms"
            )
        if self.kind is ScenarioKind.OFFLINE and self.slo_s is not None:
            raise UsageError("scenario offline has no latency to bound: leave out --slo")
        if self.arrivals_s is not None:
            for before, after in pairwise(self.arrivals_s):
                if after < before:
                    raise UsageError(
                        f"a trace of arrivals goes on in time, and {after:g} s comes after"
                        f" {before:g} s: sort it"
                    )
            if len(self.arrivals_s) < 2 or self.arrivals_s[-1] == self.arrivals_s[0]:
                raise UsageError(
                    "a trace needs arrivals at two times at least: one in seconds a line"
                )
        if not 0 < self.counted_percentile < 100:
            raise UsageError(f"--percentile {self.percentile:g} is none: give one such as 99")

    @property
    def counted_percentile(self) -> float:
        """The percentile of the SLO: ``percentile``, or MLPerf's for the scenario."""
        return _PERCENTILES[self.kind] if self.percentile is None else self.percentile

    @property
    def arrivals(self) -> int | None:
        """The number of arrivals of a trace."""
        return None if self.arrivals_s is None else len(self.arrivals_s)

    @property
    def rate_qps(self) -> float | None:
        """The mean rate of a trace or of Poisson arrivals; None without a rate."""
        if self.arrivals_s is None:
            return self.qps
        return (len(self.arrivals_s) - 1) / (self.arrivals_s[-1] - self.arrivals_s[0])


def _drawn(of: Sequence[float], count: int) -> np.ndarray:
    import numpy as np  # here, since the help of commands needs none

    return np.random.default_rng(0).choice(np.asarray(of), count)


@dataclass(frozen=True, slots=True)
class Serving:
    """The options of a server: instances, dynamic batching, queue, and its own costs.

    Each of ``instances`` runs one batch at a time. A free instance takes the waiting samples, up to
    ``max_batch``; with fewer, it waits until the first of them has waited for ``timeout_s``. A
    sample that arrives while ``max_queue`` others wait is dropped (None: no limit). In addition to
    the model, a batch costs the server ``batch_s`` seconds, and each sample ``request_s``. The
    transport of a query and its answer takes ``transport_s``, and occupies no instance. If
    ``transports_s`` or ``batches_s`` are given, costs are drawn from these samples.
    """

    max_batch: int = option(
        "Largest batch that waiting samples are joined to.",
        default=1, flag="--batching", metavar="N", group=_SERVER,
    )  # fmt: skip
    timeout_s: float = option(
        "How long a sample waits for others to fill a batch.",
        default=0.0, flag="--batch-timeout", metavar="2ms", shown="not at all",
        read=partial(seconds_of, what="time to wait"), group=_SERVER,
    )  # fmt: skip
    instances: int = option(
        "Instances of the model, each with --threads.",
        default=1, least=1, most=1024, metavar="N", group=_SERVER,
    )  # fmt: skip
    max_queue: int | None = option(
        "Samples that may wait; others are dropped.",
        default=None, least=1, metavar="N", shown="no bound", group=_SERVER,
    )  # fmt: skip
    request_s: float = option(
        "What a sample costs the server besides the model.",
        default=0.0, flag="--request-cost", metavar="50us", shown="nothing", read=_COST,
        group=_SERVER,
    )  # fmt: skip
    batch_s: float = option(
        "What a batch costs the server besides the model.",
        default=0.0, flag="--batch-cost", metavar="100us", shown="nothing", read=_COST,
        group=_SERVER,
    )  # fmt: skip
    transport_s: float = option(
        "How long a query and its answer are on the way.",
        default=0.0, flag="--transport", metavar="200us", shown="no time",
        read=partial(seconds_of, what="time on the way"), group=_SERVER,
    )  # fmt: skip
    transports_s: Sequence[float] = ()
    batches_s: Sequence[float] = ()

    def drawn_transports_s(self, queries: int) -> np.ndarray:
        """Transport seconds of each of ``queries`` with its answer: shape ``(queries,)``."""
        return _drawn(self.transports_s or [self.transport_s], queries)

    def drawn_batch_costs_s(self, batches: int) -> np.ndarray:
        """The server's own seconds for each of ``batches``: shape ``(batches,)``."""
        return _drawn(self.batches_s or [self.batch_s], batches)

    def __post_init__(self) -> None:
        """Raise :class:`UsageError` for options that contradict each other."""
        if not 1 <= self.max_batch <= MAX_BATCH:
            raise UsageError(
                f"--batching {self.max_batch} cannot be had: give 1 to {MAX_BATCH}, the largest"
                " batch"
            )
        if self.timeout_s > 0 and self.max_batch == 1:
            raise UsageError("--batch-timeout is for batches: add --batching N")
        if self.max_queue is not None and self.max_queue < self.max_batch:
            raise UsageError(
                f"a queue of {self.max_queue} never fills a batch of {self.max_batch}: give"
                f" --max-queue {self.max_batch} or more"
            )
