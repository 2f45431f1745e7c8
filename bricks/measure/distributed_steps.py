"""Real data-parallel steps on this host: DDP over several ranks, in turn with solo steps.

Each rank is a process that torchrun starts, as users start theirs, with a core of its own; ranks
communicate on loopback or between network namespaces. Each rank has a torchrun of its own, since
the ranks of one torchrun share a namespace. Solo steps run in other processes, which wait
meanwhile: so a rank has one program, as a user's process does. Must not know any prediction.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks import backends
from bricks.backends.programs import SeededProgram
from bricks.errors import WorkerError
from bricks.graph.form import ModelForm
from bricks.measure.conditions import StopRule
from bricks.measure.protocol.training import BeginSteps, TimeSteps
from bricks.measure.ranks import LocalRanks, RankLocation
from bricks.measure.supervisor import WorkerSettings
from bricks.measure.timing_lock import timing_lock
from bricks.samples.statistics import spread

if TYPE_CHECKING:
    from bricks.backends import Offer
    from bricks.units.interval import Interval

# A round has solo steps and as many synchronised steps; each may be noisy.
RULE = StopRule(precision=0.01, min_rounds=10, max_rounds=40, passes=1)

# The most seconds for making a program and warming it up, and for a step.
_BEGIN_TIMEOUT_S, _STEP_TIMEOUT_S = 600.0, 300.0

# Seconds of consecutive steps, about, so that the wake-up of idle ranks counts little; the most
# steps.
_BLOCK_S, _MAX_STEPS = 0.3, 64

# Torchrun's rendezvous needs a port: another process may take it before torchrun does.
_PORT_TRIES = 3
_PORTS = 20_000, 30_000

_TAKEN = "address already in use"


@dataclass(frozen=True, slots=True)
class DistributedSteps:
    """Steps of a program on several ranks, in seconds: ``rounds`` of (solo, synchronised).

    A round's times are means over ranks, and over steps that follow one another.
    """

    ranks: int
    rounds: tuple[tuple[float, float], ...]

    @property
    def solo(self) -> Interval:
        """A step of one rank, while the others do the same without communicating."""
        return spread([solo for solo, _ in self.rounds])

    @property
    def synchronised(self) -> Interval:
        """A step of all ranks."""
        return spread([synchronised for _, synchronised in self.rounds])


def measure_steps(
    program: Mapping[str, Any],
    locations: Sequence[RankLocation],
    *,
    bucket_cap_mb: float | None = None,
    accumulation: int = 1,
    delays_s: Sequence[float] = (),
    seed: int = 0,
    rule: StopRule = RULE,
    python: str | None = None,
    progress: Callable[[str, float], None] = lambda what, share: None,
) -> DistributedSteps:
    """Measure steps of a training on ranks at ``locations`` (see :mod:`bricks.measure.ranks`).

    ``program`` has its ``entry``, the ``folder`` that a relative file starts from, and ``options``
    such as ``batch``, the batch size of each rank. ``bucket_cap_mb`` is DDP's option; gradients of
    ``accumulation`` batches are added before they are reduced. Each rank computes for its
    ``delays_s`` longer in every synchronised step: a straggler. ``python`` is the user's, as in
    :func:`bricks.backends.describe`.

    Raises :class:`WorkerError` for a program that is no training, and if a rank dies or hangs.
    """
    offer = backends.offer(backends.default(ModelForm.PROGRAMS)).in_python(python)
    seeded = SeededProgram(**program, seed=seed)
    entry = str(program["entry"])
    with (
        timing_lock(lambda message: progress(message, 0.0)),
        _joined(offer, locations) as solo,
        _joined(offer, locations) as synchronised,
    ):
        progress(f"{entry}: beginning on {len(locations)} ranks", 0.0)
        for ranks in (solo, synchronised):
            together = ranks is synchronised
            begin = BeginSteps(seeded, together, bucket_cap_mb, accumulation)
            ranks.ask(begin, timeout_s=_BEGIN_TIMEOUT_S)
        delays = [*delays_s, *[0.0] * (solo.count - len(delays_s))]
        longest_s = max(_step_s(solo, 1, delays), _step_s(synchronised, 1, delays))
        # So many consecutive steps are timed together.
        steps = max(1, min(_MAX_STEPS, round(_BLOCK_S / longest_s)))
        rounds: list[tuple[float, float]] = []
        while not rounds or not rule.met([both for _, both in rounds], 1.0, 0.0):
            progress(f"{entry}: steps of {solo.count} ranks", len(rounds) / rule.max_rounds)
            solo_s = _step_s(solo, steps, [0.0] * solo.count)
            rounds.append((solo_s, _step_s(synchronised, steps, delays)))
        return DistributedSteps(solo.count, tuple(rounds))


@contextmanager
def _joined(offer: Offer, locations: Sequence[RankLocation]) -> Iterator[LocalRanks]:
    """Ranks that torchrun has started, and that have joined a group."""
    for attempt in range(_PORT_TRIES):
        # One at each location, as if it were a host of its own.
        port = _free_port(locations[0])
        launchers = [
            (
                *offer.launcher(rank, len(locations), locations[0].address, port),
                "-m", "bricks.measure.worker.launched",
            )
            for rank in range(len(locations))
        ]  # fmt: skip
        settings = WorkerSettings(offer.name, 1, 0, python=offer.describe().python)
        ranks = LocalRanks(settings, locations, launchers=launchers)
        try:
            ranks.join()
        except BaseException as error:
            ranks.close()
            again = isinstance(error, WorkerError) and _TAKEN in str(error).lower()
            if not again or attempt == _PORT_TRIES - 1:
                raise
        else:
            with ranks:
                yield ranks
            return


def _free_port(location: RankLocation) -> int:
    """A free port of this host; a random port if the rank has a namespace of its own."""
    if location.prefix:
        return random.randint(*_PORTS)
    with socket.socket() as probe:
        probe.bind((location.address, 0))
        return int(probe.getsockname()[1])


def _step_s(ranks: LocalRanks, steps: int, delays_s: Sequence[float]) -> float:
    """Seconds of a step, the mean over ranks."""
    requests = [TimeSteps(steps, delay_s) for delay_s in delays_s]
    answers_s = ranks.ask_each(requests, timeout_s=_STEP_TIMEOUT_S)
    return sum(answers_s) / len(answers_s)
