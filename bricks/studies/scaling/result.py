"""The result of scaling a training over ranks: plain data, here so that reports need no simulation.

Must not know how it is computed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bricks.studies.scaling.simulation import NETWORK, rank_lane
from bricks.studies.study import Checked

if TYPE_CHECKING:
    from bricks.compose.lanes import LaneSpan, Timeline
    from bricks.studies.scaling.options import StepOptions
    from bricks.system import Target
    from bricks.units.interval import Interval

# Origins of networks: measured between hosts or on this one, published by the maker of cards,
# stated by the user, or assumed.
MEASURED, LOOPBACK, PUBLISHED = "measured", "loopback", "published"
STATED, ASSUMED = "stated", "assumed"


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the parts of a prediction come from.

    ``compute`` is ``measured``, ``published`` by others, or ``predicted``; ``copies`` are
    ``measured`` or ``predicted``; ``network`` and ``slowdown`` are ``measured``, ``fitted``,
    ``extrapolated``, ``published`` or ``stated``, the least certain of all that counts, or None
    where nothing is sent.
    """

    compute: str
    copies: str | None = None
    network: str | None = None
    slowdown: str | None = None


@dataclass(frozen=True, slots=True)
class CheckedStep:
    """Median seconds of real steps on ``ranks`` ranks, and of one isolated rank in turn."""

    ranks: int
    step_s: float
    solo_s: float


@dataclass(frozen=True, slots=True)
class ScalePoint:
    """A step of the optimiser on ``ranks`` ranks by a ``strategy``.

    ``speedup`` is relative to one rank, ``efficiency`` per rank. ``exposed_communication_s`` is the
    time of the step beyond its computation, ``communication_s`` the time of transfers and copies.
    ``bytes_sent`` is the sum over all nodes, per rank. ``cost_per_epoch`` is None without a price
    or a number of samples, ``epoch_s`` without the latter, and ``run_s`` without a number of
    epochs: neither has loading of data nor evaluations. ``solo_s`` is the step without
    communication, of ranks on one host while all run. ``simulated`` is the most likely timeline;
    the straggler, if there is one, is its first rank.
    """

    FACTS: ClassVar = (
        "ranks", "strategy", "batch", ("step_s", "step_s", "low_s", "high_s"), "samples_per_s",
        "speedup", "efficiency", "exposed_communication_s", "cost_per_epoch", "communication_s",
        ("sent_bytes", "bytes_sent"), ("origins", "origin"), ("checked.step_s", "measured_step_s"),
        "solo_s",
        ("checked.solo_s", "measured_solo_s"), "ratio", "epoch_s", "run_s", "error",
    )  # fmt: skip

    ranks: int
    strategy: str
    batch: int
    step_s: Interval
    samples_per_s: Interval
    speedup: Interval
    efficiency: Interval
    exposed_communication_s: Interval
    communication_s: float
    bytes_sent: float
    cost_per_epoch: Interval | None
    origins: Origins
    simulated: Timeline
    checked: CheckedStep | None = None
    epoch_s: Interval | None = None
    run_s: Interval | None = None
    solo_s: float | None = None

    @property
    def distinct_ranks(self) -> int:
        """The number of distinct ranks in the timeline: 2 with a straggler, otherwise 1."""
        return sum(lane != NETWORK for lane in self.simulated.lanes)

    def spans_of(self, rank: int) -> tuple[LaneSpan, ...]:
        """The work and waiting of a rank; all ranks but a straggler have the same."""
        return self.simulated.shown(rank_lane(min(rank, self.distinct_ranks - 1)))

    @property
    def sent_bytes(self) -> int:
        """``bytes_sent`` as a whole number."""
        return round(self.bytes_sent)

    @property
    def ratio(self) -> float | None:
        """The predicted step relative to the real one."""
        return None if self.checked is None else Checked(self.step_s, self.checked.step_s).ratio


@dataclass(frozen=True, slots=True)
class ScaleFailure:
    """Why there is no prediction for a number of ranks, in one line."""

    LIKE: ClassVar = ScalePoint

    ranks: int
    strategy: str
    error: str


@dataclass(frozen=True, slots=True)
class ScaleResult:
    """A training on several numbers of ranks, by one strategy.

    Beyond ``pays_up_to`` ranks, each further one adds less than half of the samples/s of an
    isolated rank; None if further ranks pay at all compared numbers, up to ``looked_up_to``.
    """

    FACTS: ClassVar = ("strategy", ("pays_up_to", "up_to"), "looked_up_to")

    strategy: str
    points: tuple[ScalePoint | ScaleFailure, ...]
    pays_up_to: int | None
    looked_up_to: int

    @property
    def predicted(self) -> tuple[ScalePoint, ...]:
        """The numbers of ranks with a prediction."""
        return tuple(point for point in self.points if isinstance(point, ScalePoint))


@dataclass(frozen=True, slots=True)
class RankNetwork:
    """The network between ranks: its ``origin`` is one of the constants of this module.

    ``bandwidth``, of a rank in one direction, in bytes a second and ``latency_s`` of a message are
    None if it was measured; the latency of a published one depends on the protocol. Only up to
    ``most_ranks`` have this network, if it has such a bound; more have the one ``beyond``.
    ``one_host`` is whether its ranks share one host.
    """

    name: str
    origin: str
    bandwidth: float | None = None
    latency_s: float | None = None
    most_ranks: int | None = None
    beyond: RankNetwork | None = None
    one_host: bool = False


@dataclass(frozen=True, slots=True)
class ScalingResult:
    """A training on several numbers of ranks, by each of several strategies.

    ``here`` is whether ranks are hosts like this one.
    """

    FACTS: ClassVar = (
        "workload", ("target.system", "system"), ("target.runtime", "runtime"),
        ("network.name", "network"), ("network.origin", "network_origin"),
        ("network.bandwidth", "bandwidth"), ("network.latency_s", "latency_s"),
        ("network.most_ranks", "network_most_ranks"), ("network.one_host", "one_host"), "scaling",
        ("step.accumulate", "accumulate"), ("step.straggler", "straggler"),
        ("step.samples_per_epoch", "samples_per_epoch"), ("step.epochs", "epochs"),
        ("points", "ranks"), ("strategies", "pays"),
    )  # fmt: skip

    workload: str
    target: Target
    network: RankNetwork
    step: StepOptions
    strategies: tuple[ScaleResult, ...]
    here: bool = True

    @property
    def scaling(self) -> str:
        """Whether ranks divide a batch."""
        return "strong" if self.step.strong else "weak"

    @property
    def points(self) -> tuple[ScalePoint | ScaleFailure, ...]:
        """All numbers of ranks, strategy by strategy."""
        return tuple(point for result in self.strategies for point in result.points)

    @property
    def predicted(self) -> tuple[ScalePoint, ...]:
        """The numbers of ranks with a prediction."""
        return tuple(point for result in self.strategies for point in result.predicted)

    @property
    def errors(self) -> tuple[str, ...]:
        """A line for each number of ranks without a prediction."""
        return tuple(point.error for point in self.points if isinstance(point, ScaleFailure))
