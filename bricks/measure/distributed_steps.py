"""Real data-parallel steps on this host: DDP over several ranks, in turn with solo steps.

Each rank is a process that torchrun starts, as users start theirs, with a core of its own; ranks
talk on loopback or between network namespaces. There is a torchrun for each rank, since the ranks
of one share a namespace. Must not know what is predicted of the steps.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bricks import backends
from bricks.backends.base import BackendInfo
from bricks.errors import WorkerError
from bricks.measure.ranks import LocalRanks, RankPlace
from bricks.measure.rounds import StopRule
from bricks.measure.supervisor import WorkerSettings
from bricks.measure.timing_lock import WAITING, timing_lock
from bricks.samples.statistics import Spread, median, spread

# Rounds are of a solo and a synchronised step each; every one of them may be disturbed.
RULE = StopRule(precision=0.01, min_rounds=10, max_rounds=40, passes=1)

# Making a program and warming it up may take this long, and a step at most that long.
_BEGIN_TIMEOUT_S, _STEP_TIMEOUT_S = 600.0, 300.0

# Torchrun meets at a port: another process may take it before torchrun does.
_PORT_TRIES = 3
_PORTS = 20_000, 30_000

_TAKEN = "address already in use"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together: DDP's number of it, its bytes, and its parameters."""

    index: int
    size_bytes: int
    parameters: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DistributedSteps:
    """Steps of a program on several ranks, in seconds: ``rounds`` of (solo, synchronised).

    A round's times are means over ranks, which all begin a step at once. ``buckets`` are in the
    order in which they were reduced; ``bucket_bytes`` are DDP's own list of their sizes.
    DDP also sends the module's buffers (of normalisation, say) from the first rank to the others
    before each step: ``broadcast_bytes`` has those of each such broadcast.
    ``unused`` are parameters that the loss does not depend on: DDP then looks for them in each
    step.
    """

    ranks: int
    rounds: tuple[tuple[float, float], ...]
    buckets: tuple[Bucket, ...]
    bucket_bytes: tuple[int, ...]
    broadcast_bytes: tuple[int, ...]
    unused: tuple[str, ...]

    @property
    def solo(self) -> Spread:
        """A step of one rank, while the others do the same without communicating."""
        return spread([solo for solo, _ in self.rounds])

    @property
    def synchronised(self) -> Spread:
        """A step of all ranks."""
        return spread([synchronised for _, synchronised in self.rounds])

    @property
    def exposed(self) -> Spread:
        """How much longer a synchronised step takes than the solo step before it."""
        return spread([synchronised - solo for solo, synchronised in self.rounds])


def measure_steps(
    program: Mapping[str, Any],
    places: Sequence[RankPlace],
    *,
    bucket_cap_mb: float | None = None,
    accumulation: int = 1,
    delays_s: Sequence[float] = (),
    seed: int = 0,
    rule: StopRule = RULE,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> DistributedSteps:
    """Measure steps of a training on ranks in ``places`` (see :mod:`bricks.measure.ranks`).

    ``program`` has its ``entry``, the ``folder`` that a relative file starts from, and ``options``
    such as ``batch``, which is that of each rank. ``bucket_cap_mb`` is DDP's option; gradients of
    ``accumulation`` batches are added before they are reduced. Each rank computes for its
    ``delays_s`` longer in every synchronised step: a straggler.

    Raises :class:`WorkerError` for a program that is no training, and if a rank dies or hangs.
    """
    info = backends.describe("torch")
    begin = {
        **program, "seed": seed, "bucket_cap_mb": bucket_cap_mb, "accumulation": accumulation,
    }  # fmt: skip
    with timing_lock(lambda: progress(WAITING, 0.0)):
        for attempt in range(_PORT_TRIES):
            with _launched(info, places) as ranks:
                try:
                    ranks.join()
                except WorkerError as error:
                    if _TAKEN not in str(error).lower() or attempt == _PORT_TRIES - 1:
                        raise
                    continue
                progress(f"{program['entry']}: beginning on {len(places)} ranks", 0.0)
                ranks.ask("begin_steps", timeout_s=_BEGIN_TIMEOUT_S, **begin)
                return _sampled(ranks, rule, delays_s, str(program["entry"]), progress)
    raise AssertionError("unreachable")


def _launched(info: BackendInfo, places: Sequence[RankPlace]) -> LocalRanks:
    """Ranks that torchrun starts: for each place one, as if it were a host of its own."""
    port = _free_port(places[0])
    launchers = [
        (
            info.python, "-m", "torch.distributed.run",
            f"--nnodes={len(places)}", "--nproc-per-node=1", f"--node-rank={rank}",
            f"--master-addr={places[0].address}", f"--master-port={port}",
            "-m", "bricks.measure.worker.launched",
        )
        for rank in range(len(places))
    ]  # fmt: skip
    return LocalRanks(WorkerSettings(info.name, 1, 0), places, launchers=launchers)


def _free_port(place: RankPlace) -> int:
    """A port that nobody has: of this host, or any one in a namespace of the rank's own."""
    if place.prefix:
        return random.randint(*_PORTS)
    with socket.socket() as one:
        one.bind((place.address, 0))
        return int(one.getsockname()[1])


def _sampled(
    ranks: LocalRanks,
    rule: StopRule,
    delays_s: Sequence[float],
    entry: str,
    progress: Callable[[str, float], None],
) -> DistributedSteps:
    """Rounds until the synchronised step is known well enough, and then the buckets."""
    delays = [*delays_s, *[0.0] * (ranks.count - len(delays_s))]
    fields = [{"passes": rule.passes, "delay_s": delay_s} for delay_s in delays]
    rounds: list[tuple[float, float]] = []
    while not rounds or not rule.met([both for _, both in rounds], 1.0, 0.0):
        progress(f"{entry}: steps of {ranks.count} ranks", len(rounds) / rule.max_rounds)
        answers = ranks.ask_each("time_steps", fields, timeout_s=_STEP_TIMEOUT_S)
        rounds.append((_mean(answers, "solo_s"), _mean(answers, "synchronised_s")))
    told = ranks.ask("bucket_order", timeout_s=_STEP_TIMEOUT_S)[0]
    buckets = tuple(
        Bucket(each["index"], each["size_bytes"], tuple(each["parameters"]))
        for each in told["buckets"]
    )
    sizes = tuple(told["bucket_bytes"]), tuple(told["broadcast_bytes"])
    return DistributedSteps(ranks.count, tuple(rounds), buckets, *sizes, tuple(told["unused"]))


def _mean(answers: Sequence[Mapping[str, Any]], name: str) -> float:
    """The mean over ranks of the median over passes."""
    medians = [median(answer[name]) for answer in answers]
    return sum(medians) / len(medians)
