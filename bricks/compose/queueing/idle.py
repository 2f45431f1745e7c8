"""The idle-state penalty: runs after a pause take longer, since an idle processor powers down.

A benchmark repeats runs back to back; a server at a low rate runs each after a pause, in which the
processor lowers its clocks and powers down parts. Must not know how runs are measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bricks.units.interval import Interval

# Bounds of the fitted time constants, in seconds.
_SHORTEST_S, _LONGEST_S = 1e-3, 1.0

# The least share of a median run that an active processor takes: without a bound, the fit makes a
# penalty of changes of the host. Assumed: penalties are smaller.
_LEAST_ACTIVE = 0.7


@dataclass(frozen=True, slots=True)
class IdleModel:
    """The depth of a processor's idle state, from 0 (active) to 1.

    The depth approaches 1 while the processor is idle, with the time constant ``onset_s``, and 0
    while it is busy, with the time constant ``recovery_s``; both exponentially.
    """

    onset_s: float
    recovery_s: float

    def after_idling(self, depth: float, idle_s: float) -> float:
        """The depth after a pause of ``idle_s`` seconds."""
        return 1 - (1 - depth) * math.exp(-idle_s / self.onset_s)

    def after_work(self, depth: float, busy_s: float) -> float:
        """The depth after ``busy_s`` seconds of work."""
        return depth * math.exp(-busy_s / self.recovery_s)


# A processor that stays active while idle.
NO_IDLE_PENALTY = IdleModel(math.inf, 1.0)


@dataclass(frozen=True, slots=True)
class ServerRuns:
    """Runs of a server in order: seconds of idling before each run, and seconds of the run.

    ``looped_s`` are the seconds of runs back to back, without a server. Both kinds of runs took
    ``turns`` turns, each with as many runs as any other.
    """

    idle_s: Sequence[float]
    run_s: Sequence[float]
    looped_s: Sequence[float]
    turns: int = 1


@dataclass(frozen=True, slots=True)
class ServerState:
    """How runs in a server differ from runs back to back.

    The median of runs on an active processor is ``factor`` times as long, which is as uncertain as
    turns differ; full idle depth lengthens a run by the share ``idle_penalty``. ``spread`` holds
    single runs relative to the model: shape ``(runs,)``.
    """

    idle_model: IdleModel
    factor: Interval
    idle_penalty: float
    spread: np.ndarray = field(repr=False)


def fit_server_state(runs: ServerRuns, idle_model: IdleModel | None = None) -> ServerState:
    """Fit a :class:`ServerState` to ``runs``; the time constants too, unless ``idle_model``."""
    from scipy.optimize import least_squares  # here, since it takes a moment to import

    measured_s = np.asarray(runs.run_s)
    median_s = float(np.median(measured_s))
    log_bounds = math.log(_SHORTEST_S), math.log(_LONGEST_S)
    free = [] if idle_model else [math.log(0.02), math.log(0.01)]

    def fitted_s(parameters: Sequence[float]) -> np.ndarray:
        active_s, penalty, *logs = map(float, parameters)
        model = idle_model or IdleModel(*map(math.exp, logs))
        # The processor is active before the first run.
        seconds, depth = [], 0.0
        for idle_s, run_s in zip(runs.idle_s, runs.run_s, strict=True):
            depth = model.after_idling(depth, idle_s)
            seconds.append(active_s * (1 + penalty * depth))
            depth = model.after_work(depth, run_s)
        return np.asarray(seconds)

    parameters = least_squares(
        lambda parameters: fitted_s(parameters) / measured_s - 1,
        [median_s, 0.1, *free],
        bounds=(
            [_LEAST_ACTIVE * median_s, 0.0, *(log_bounds[0] for _ in free)],
            [1.5 * median_s, 10.0, *(log_bounds[1] for _ in free)],
        ),
        loss="soft_l1",
        f_scale=0.02,
    ).x
    residuals = measured_s / fitted_s(parameters)
    middle = float(np.median(residuals))
    return ServerState(
        idle_model or IdleModel(*map(math.exp, parameters[2:])),
        _slowdown(float(parameters[0]) * middle / float(np.median(runs.looped_s)), residuals, runs),
        float(parameters[1]),
        residuals / middle,
    )


def _slowdown(value: float, residuals: np.ndarray, runs: ServerRuns) -> Interval:
    """``value`` with the error of a mean over turns; exact with one turn.

    The host changes within a turn, so a turn's runs in the server and back to back differ by more
    than the server. ``residuals`` are the runs in the server, without what pauses cost.
    """
    if runs.turns == 1:
        return Interval.exact(value)
    from scipy.special import stdtrit  # here, since it takes a moment to import

    turns = zip(
        np.array_split(residuals, runs.turns),
        np.array_split(runs.looped_s, runs.turns),
        strict=True,
    )
    logs = [math.log(np.median(served) / np.median(looped)) for served, looped in turns]
    mean_error = float(np.std(logs, ddof=1)) / math.sqrt(runs.turns)
    return Interval.within_factor(
        value, math.exp(float(stdtrit(runs.turns - 1, 0.975)) * mean_error)
    )
