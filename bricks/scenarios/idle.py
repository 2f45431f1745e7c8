"""A processor that was idle runs slower for a while: how it falls asleep, and how it wakes.

A benchmark repeats runs one after another; a server at a low rate runs each after a pause, in which
the processor lowers its clocks and powers down parts. Must not know how that is measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

# A pause after which a processor sleeps, in seconds.
LONG_S = 0.1

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
class PausedRuns:
    """Median seconds of runs around pauses.

    ``waking_s`` are those of runs one after another, the first of which came after :data:`LONG_S`
    seconds without work; ``paused_s`` those of single runs of an awake processor after the pauses
    that are their keys, in seconds.
    """

    waking_s: Sequence[float]
    paused_s: Mapping[float, float]


def fitted_waking(runs: PausedRuns) -> tuple[Waking, float]:
    """The time constants that fit ``runs`` best, and by how much sleep lengthens such a run.

    That share is relative to a run of an awake processor.
    """
    measured = np.asarray([*runs.waking_s, *runs.paused_s.values()])
    awake_s = float(min(runs.waking_s[-1], measured.min()))

    def told(parameters: np.ndarray) -> np.ndarray:
        base_s, share, *logs = parameters
        waking = Waking(*map(math.exp, logs))
        return np.asarray(_told(runs, waking, float(base_s), float(share)))

    first = [awake_s, max(0.01, measured.max() / awake_s - 1), math.log(0.02), math.log(0.01)]
    log_bounds = math.log(_SHORTEST_S), math.log(_LONGEST_S)
    bounds = (
        [0.5 * awake_s, 0.0, log_bounds[0], log_bounds[0]],
        [1.5 * awake_s, 10.0, log_bounds[1], log_bounds[1]],
    )
    found = least_squares(
        lambda p: told(p) / measured - 1, first, bounds=bounds, loss="soft_l1", f_scale=0.02
    ).x
    return Waking(math.exp(found[2]), math.exp(found[3])), float(found[1])


def fitted_share(runs: PausedRuns, waking: Waking) -> float:
    """By how much sleep lengthens such a run, where the time constants are known."""
    measured = np.asarray([*runs.waking_s, *runs.paused_s.values()])
    awake_s = float(min(runs.waking_s[-1], measured.min()))
    found = least_squares(
        lambda p: np.asarray(_told(runs, waking, p[0], p[1])) / measured - 1,
        [awake_s, 0.1],
        bounds=([0.5 * awake_s, 0.0], [1.5 * awake_s, 10.0]),
        loss="soft_l1",
        f_scale=0.02,
    ).x
    return float(found[1])


def _told(runs: PausedRuns, waking: Waking, awake_s: float, share: float) -> list[float]:
    """The seconds of ``runs`` as the model has them."""
    found, sleep = [], waking.after_idling(0.0, LONG_S)
    for _ in runs.waking_s:
        found.append(awake_s * (1 + share * sleep))
        sleep = waking.after_work(sleep, found[-1])
    pauses = (waking.after_idling(0.0, pause_s) for pause_s in runs.paused_s)
    return [*found, *(awake_s * (1 + share * sleep) for sleep in pauses)]
