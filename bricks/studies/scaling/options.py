"""Options of a study of scaling: a training, its ranks, their network, and strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bricks.errors import UsageError, suggestion
from bricks.sources import find_training_step
from bricks.studies.options import argument, batch_option, option, system_option
from bricks.units.quantities import bytes_per_s_of, seconds_of, whole_numbers_of

if TYPE_CHECKING:
    from bricks.network.times import Network
    from bricks.studies.scaling.strategies import Strategy

# The most ranks: predictions for more cannot be checked.
MAX_RANKS = 1 << 16

DDP = "ddp"

# In the order in which they are shown.
STRATEGIES: Mapping[str, str] = {
    DDP: "PyTorch's DistributedDataParallel",
    "horovod": "ring all-reduce with tensor fusion",
    "parameter-server": "one server, synchronously",
}

# The collectives that each strategy sends.
COLLECTIVES: Mapping[str, Sequence[str]] = {
    DDP: ("all_reduce", "broadcast"),
    "horovod": ("all_reduce",),
    "parameter-server": ("all_gather",),
}

_NETWORK = "Network"

# The network that is assumed where none is named: in bytes a second, and seconds of a message.
ASSUMED_BANDWIDTH, ASSUMED_LATENCY_S = 10e9 / 8, 50e-6


def ranks_of(flag: str, text: str) -> Sequence[int]:
    """Numbers of ranks such as ``1,2,4``."""
    return whole_numbers_of(flag, text, MAX_RANKS, "numbers of ranks")


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """A measured ``network`` of the cache, a stated one, or ``given`` as an object.

    Without any, this host's loopback if real steps are run, NVLink between GPUs that it joins,
    otherwise one of ``ASSUMED_BANDWIDTH``. ``bandwidth`` is in bytes a second, ``latency`` in
    seconds.
    """

    network: str | None = option(
        "A network that was measured.",
        default=None, metavar="NAME", shown=False, group=_NETWORK,
    )  # fmt: skip
    bandwidth: float | None = option(
        "The bandwidth of a network that nobody has measured, of each rank's link.",
        default=None, metavar="10Gbit", read=bytes_per_s_of, shown=False, group=_NETWORK,
    )  # fmt: skip
    latency: float | None = option(
        "The latency of a message in it.",
        default=None, metavar="50us", read=seconds_of, shown=False, group=_NETWORK,
    )  # fmt: skip
    given: Network | None = None

    def __post_init__(self) -> None:
        if self.network is not None and (self.bandwidth, self.latency) != (None, None):
            raise UsageError("--network has a bandwidth and a latency: leave these out")
        if (self.bandwidth is None) != (self.latency is None):
            raise UsageError(
                "a network has a bandwidth and a latency: give --bandwidth 10Gbit --latency 50us,"
                " or --network NAME"
            )

    @property
    def stated(self) -> bool:
        """Whether bandwidth and latency are stated."""
        return self.bandwidth is not None and self.latency is not None

    @property
    def unnamed(self) -> bool:
        """Whether no field is set."""
        said = (self.given, self.network, self.bandwidth, self.latency)
        return all(field_value is None for field_value in said)


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyOptions:
    """How ranks keep parameters equal: by name, or ``given``."""

    strategy: list[str] | None = option(
        "How parameters are kept equal; may be repeated.",
        default=None, metavar="|".join(STRATEGIES), values=STRATEGIES, shown=DDP,
    )  # fmt: skip
    bucket_cap_mb: float | None = option(
        "Size of DDP's buckets.",
        default=None, metavar="MiB", least=1e-3, shown="25 MiB, the first 1 MiB",
    )  # fmt: skip
    given: Sequence[Strategy] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if name not in STRATEGIES:
                meant = suggestion(name, STRATEGIES, "give")
                raise UsageError(f"no strategy is called {name!r}: {meant}")
        if self.bucket_cap_mb is not None and DDP not in self.names:
            raise UsageError("--bucket-cap-mb is for --strategy ddp: leave it out")

    @property
    def names(self) -> Sequence[str]:
        """Each once, in the order given."""
        given = [strategy.name for strategy in self.given]
        return list(dict.fromkeys(given or self.strategy or [DDP]))

    def strategies(self) -> Sequence[Strategy]:
        """All of them, ready to be simulated."""
        from bricks.studies.scaling.strategies import (
            DistributedDataParallel,
            Horovod,
            ParameterServer,
        )
        from bricks.studies.scaling.training_step import MIB

        cap_bytes = None if self.bucket_cap_mb is None else int(self.bucket_cap_mb * MIB)
        known: Sequence[Strategy] = (
            DistributedDataParallel(cap_bytes), Horovod(), ParameterServer(),
        )  # fmt: skip
        named = {strategy.name: strategy for strategy in (*known, *self.given)}
        return [named[name] for name in self.names]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """A step of the optimiser, the samples of an epoch, and the epochs of a run.

    A step accumulates the gradients of ``accumulate`` batches. If ``strong``, ranks divide the
    batch (strong scaling); otherwise each has a whole one. One rank computes ``straggler`` times
    slower than the others.
    """

    accumulate: int = option(
        "Batches of a step of the optimiser.", default=1, metavar="K", least=1, most=10_000
    )
    strong: bool = option("Ranks divide the batch, instead of having one each.", default=False)
    straggler: float = option(
        "How much slower one of the ranks is.", default=1.0, metavar="FACTOR", least=1.0, most=1e3
    )
    samples_per_epoch: int | None = option(
        "Samples of an epoch, to tell how long it takes and what it costs.",
        default=None, metavar="N", least=1, shown=False,
    )  # fmt: skip
    epochs: int | None = option(
        "Epochs of a run, to tell how long it takes.",
        default=None, metavar="N", least=1, shown=False,
    )  # fmt: skip

    def steps_per_epoch(self, step_samples: int) -> int | None:
        """Steps of an epoch, the last of which may be short; None without its samples."""
        samples = self.samples_per_epoch
        return None if samples is None else -(-samples // step_samples)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingOptions:
    """Scaling ``workload`` to each number of ``ranks``, each a host of its own or a GPU.

    ``workload`` is ``FILE.py:FUNCTION``, ``module:FUNCTION`` or a recorded training step of the
    zoo; ``batch`` is passed on to it. Real steps are run on ``check`` ranks, with the first
    strategy. ``system`` is the name of the hosts; None: hosts like this one.

    Raises :class:`~bricks.errors.UsageError` for options that contradict each other.
    """

    workload: str = argument(
        "FILE.py:FUNCTION, module:FUNCTION, or a training step of the zoo.",
        metavar="WORKLOAD", values="training_steps",
    )  # fmt: skip
    ranks: Sequence[int] = option(
        "Numbers of ranks to predict.",
        default=(1, 2, 4, 8), metavar="1,2,4,8", read=ranks_of, shown="1,2,4,8",
    )  # fmt: skip
    network: NetworkOptions = field(default_factory=NetworkOptions)
    strategies: StrategyOptions = field(default_factory=StrategyOptions)
    step: StepOptions = field(default_factory=StepOptions)
    check: int | None = option(
        "Also run real steps of DDP on N ranks, each with one thread; without a network, over this"
        " host's loopback, which is measured first.",
        default=None, metavar="N", least=2, most=MAX_RANKS, shown=False,
    )  # fmt: skip
    system: str | None = system_option()
    batch: int | None = batch_option()

    def __post_init__(self) -> None:
        find_training_step(self.workload)  # refuses a mistyped name before anything is run
        if self.step.strong and self.batch is None:
            raise UsageError("--strong divides a batch: add --batch N")
        if self.check is not None:
            if self.network.stated:
                raise UsageError(
                    "--check runs real steps on a network that was measured: leave out --bandwidth"
                    " and --latency for this host's loopback, or give --network NAME"
                )
            if self.strategies.names[0] != DDP:
                raise UsageError("--check runs real steps of DDP: give --strategy ddp first")

    @property
    def loopback(self) -> bool:
        """Whether ranks run here, over this host's loopback."""
        return self.check is not None and self.network.unnamed

    @property
    def all_ranks(self) -> Sequence[int]:
        """The numbers of ranks, with the one to check."""
        return self.ranks if self.check is None else sorted({*self.ranks, self.check})
