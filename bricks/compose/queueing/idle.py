"""A processor that was idle runs slower for a while: how it falls asleep, and how it wakes.

A benchmark repeats runs one after another; a server at a low rate runs each after a pause, in which
the processor lowers its clocks and powers down parts. Must not know how that is measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import least_squares

# Time constants are looked for within these bounds, in seconds.
_SHORTEST_S, _LONGEST_S = 1e-3, 1.0


@dataclass(frozen=True, slots=True)
class Waking:
    """A processor's sleep, from 0 (awake) to 1: it nears 1 while idle, and 0 while busy.

    Both exponentially, with the time constants ``falls_asleep_s`` and ``wakes_s``.
    """

    falls_asleep_s: float
    wakes_s: float

    def after_idling(self, sleep: float, idle_s: float) -> float:
        """The sleep after a pause."""
        return 1 - (1 - sleep) * math.exp(-idle_s / self.falls_asleep_s)

    def after_work(self, sleep: float, busy_s: float) -> float:
        """The sleep after so many seconds of work."""
        return sleep * math.exp(-busy_s / self.wakes_s)


# One that never sleeps.
AWAKE = Waking(math.inf, 1.0)


@dataclass(frozen=True, slots=True)
class ServedRuns:
    """Runs of a server in order: the idle seconds before each, and the seconds that it took.

    ``looped_s`` are those of runs one after another, without a server.
    """

    idle_s: Sequence[float]
    taken_s: Sequence[float]
    looped_s: Sequence[float]


@dataclass(frozen=True, slots=True)
class ServerState:
    """How runs in a server differ from runs one after another.

    A run of an awake processor takes ``factor`` times as long in the median, and sleep lengthens it
    by ``asleep_share``. ``spread`` has single runs relative to that: shape ``(runs,)``.
    """

    waking: Waking
    factor: float
    asleep_share: float
    spread: np.ndarray = field(repr=False)


def fitted_state(runs: ServedRuns, waking: Waking | None = None) -> ServerState:
    """The state that fits ``runs`` best; ``waking`` where it is known."""
    measured_s = np.asarray(runs.taken_s)
    median_s = float(np.median(measured_s))
    log_bounds = math.log(_SHORTEST_S), math.log(_LONGEST_S)
    free = [] if waking else [math.log(0.02), math.log(0.01)]

    def told_s(parameters: Sequence[float]) -> np.ndarray:
        base_s, share, *logs = map(float, parameters)
        return np.asarray(_told(runs, waking or Waking(*map(math.exp, logs)), base_s, share))

    found = least_squares(
        lambda parameters: told_s(parameters) / measured_s - 1,
        [median_s, 0.1, *free],
        bounds=(
            [0.5 * median_s, 0.0, *(log_bounds[0] for _ in free)],
            [1.5 * median_s, 10.0, *(log_bounds[1] for _ in free)],
        ),
        loss="soft_l1",
        f_scale=0.02,
    ).x
    off = measured_s / told_s(found)
    middle = float(np.median(off))
    return ServerState(
        waking or Waking(*map(math.exp, found[2:])),
        float(found[0]) * middle / float(np.median(runs.looped_s)),
        float(found[1]),
        off / middle,
    )


def _told(runs: ServedRuns, waking: Waking, awake_s: float, share: float) -> list[float]:
    """The seconds of ``runs`` as the model has them; the processor is awake before the first."""
    found, sleep = [], 0.0
    for idle_s, taken_s in zip(runs.idle_s, runs.taken_s, strict=True):
        sleep = waking.after_idling(sleep, idle_s)
        found.append(awake_s * (1 + share * sleep))
        sleep = waking.after_work(sleep, taken_s)
    return found
