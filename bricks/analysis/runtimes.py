"""Which runtime is the fastest for a model on this host, by how much, and how sure that is.

Nothing is measured: what the cache holds of each runtime counts. Must not know how answers are
shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from bricks.analysis.explain import Explainer
from bricks.errors import BricksError
from bricks.estimate.estimate import Estimate
from bricks.graph.model import Model
from bricks.samples.statistics import NORMAL_95
from bricks.session.bench import Bench


@dataclass(frozen=True, slots=True)
class RuntimeAnswer:
    """A model in a runtime: its estimate, or why there is none.

    ``lower_s`` is the latency if each of its bricks were as fast as the fastest implementation of
    the same work that is known on the system, of any runtime.
    """

    runtime: str
    version: str | None
    estimate: Estimate | None = None
    lower_s: float | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """A model in several runtimes, the fastest first, those without an estimate last.

    ``ahead`` is how much longer the next one takes, relative to the fastest; ``risk`` is the
    probability that another is faster. Both are None unless two have estimates.
    """

    model: str
    threads: int
    answers: Sequence[RuntimeAnswer]
    ahead: float | None
    risk: float | None

    @property
    def fastest(self) -> str | None:
        """The runtime to take; None without any estimate."""
        first = self.answers[0]
        return None if first.estimate is None else first.runtime


def choose_runtime(
    benches: Mapping[str, Bench | BricksError], read: Callable[[Bench], Model], name: str
) -> RuntimeChoice:
    """Compare the model that ``read`` reads for a bench of each runtime.

    In place of a bench there may be why there is none: a runtime that is not installed.
    """
    answers = [_answer(runtime, bench, read) for runtime, bench in benches.items()]
    known = sorted(
        (each for each in answers if each.estimate is not None),
        key=lambda each: _estimate_s(each.estimate),
    )
    estimates = [each.estimate for each in known if each.estimate is not None]
    several = len(estimates) > 1
    threads = {b.runtime.threads for b in benches.values() if isinstance(b, Bench)}
    return RuntimeChoice(
        name,
        max(threads, default=0),
        [*known, *(each for each in answers if each.estimate is None)],
        estimates[1].estimate_s / estimates[0].estimate_s - 1 if several else None,
        1 - math.prod(1 - slower(estimates[0], e) for e in estimates[1:]) if several else None,
    )


def slower(one: Estimate, other: Estimate) -> float:
    """The probability that what ``one`` estimates takes longer than the ``other``.

    Intervals are treated as the middle 95 % of independent log-normal distributions, with a
    separate width on each side, of which those that face each other count.
    """
    gap = _log_ratio(other.estimate_s, one.estimate_s)
    if gap >= 0:
        ends = (_log_ratio(one.high_s, one.estimate_s), _log_ratio(other.estimate_s, other.low_s))
    else:
        ends = (_log_ratio(one.estimate_s, one.low_s), _log_ratio(other.high_s, other.estimate_s))
    deviation = math.hypot(*ends) / NORMAL_95
    if math.isinf(deviation):  # an interval that reaches down to nothing tells nothing
        return 0.5
    if deviation == 0.0:
        return 0.5 if gap == 0 else float(gap < 0)
    return 1.0 - NormalDist().cdf(gap / deviation)


def _log_ratio(longer_s: float, shorter_s: float) -> float:
    """The logarithm of how many times as long; infinite where one may take no time."""
    if longer_s <= 0 or shorter_s <= 0:
        return math.inf
    return math.log(longer_s / shorter_s)


def _estimate_s(estimate: Estimate | None) -> float:
    return math.inf if estimate is None else estimate.estimate_s


def _answer(
    runtime: str, bench: Bench | BricksError, read: Callable[[Bench], Model]
) -> RuntimeAnswer:
    if isinstance(bench, BricksError):
        return RuntimeAnswer(runtime, None, error=str(bench))
    version = bench.runtime.version
    try:
        model = read(bench)
        found = bench.predict(model, measure=False)
        if not isinstance(found, Estimate):
            missing = (
                f"{model.name}: {len(found.gaps)} bricks are neither measured with {runtime} nor"
                f" can they be predicted: bricks measure {model.name} --runtime {runtime}"
            )
            return RuntimeAnswer(runtime, version, error=missing)
        lower_s = Explainer(bench).explain(model, found).fastest_s
    except BricksError as error:
        return RuntimeAnswer(runtime, version, error=str(error))
    return RuntimeAnswer(runtime, version, found, lower_s)
