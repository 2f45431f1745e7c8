"""Which runtime is the fastest for a model on a system, by how much, and how sure that is.

Nothing is measured: what is known of each runtime counts. Must not know how answers are shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar

from bricks.analysis.answers import ESTIMATE
from bricks.analysis.cache_summary import CacheSummary
from bricks.analysis.explain import Explainer
from bricks.analysis.explanation import Explanation
from bricks.compose.estimate import Estimate
from bricks.decompose.plan import Plan
from bricks.errors import BackendError, BricksError, UsageError
from bricks.graph.model import Model
from bricks.samples.statistics import NORMAL_95
from bricks.session import predicting
from bricks.session.workspace import Workspace
from bricks.system import System, Target

# Operators that are named as those in which a runtime loses most.
_LOSSES = 3


@dataclass(frozen=True, slots=True)
class Place:
    """A runtime where its latencies are of interest: what reads models for it, and the target.

    ``lack`` is why this host cannot run it: then only models whose plans are known have answers.
    """

    workspace: Workspace
    target: Target
    lack: BackendError | None = None

    def plan(self, model: Model) -> Plan:
        """The model's plan there; :class:`BricksError` if it is not known and cannot be made."""
        if self.lack is None:
            return self.workspace.plans.plan(model, target=self.target)
        known = self.workspace.plans.known_plan(model.digest, target=self.target)
        if known is None:
            runtime, where = self.target.runtime.backend, self.target.system.name
            raise UsageError(
                f"{model.name} was not measured with {runtime} on {where}, and {self.lack}"
            )
        return known


@dataclass(frozen=True, slots=True)
class Loss:
    """What a runtime loses in an operator to others that have a faster implementation of its work.

    ``runtimes`` are these others, for any of the operator's bricks.
    """

    operator: str
    lost_s: float
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuntimeAnswer:
    """A model in a runtime: its estimate, or why there is none.

    ``available`` says whether the runtime can be run on this host; otherwise an estimate is from
    what is known of the system.
    ``lower_s`` is the latency if each of its bricks were as fast as the fastest implementation of
    the same work that is known on the system, of any runtime, and ``losses`` are the operators in
    which most is lost to other runtimes.
    """

    FACTS: ClassVar = (
        "runtime", "version", "available", *ESTIMATE, "lower_s", "losses", "error",
    )  # fmt: skip

    runtime: str
    version: str | None
    estimate: Estimate | None = None
    lower_s: float | None = None
    error: str | None = None
    losses: tuple[Loss, ...] = ()
    available: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """A model in several runtimes on a system, the fastest first, those without an estimate last.

    ``system`` is None where no runtime can be asked. ``ahead`` is how much longer the next one
    takes, relative to the fastest; ``risk`` is the probability that another is faster. Both are
    None unless two have estimates.
    """

    FACTS: ClassVar = (
        "model", ("system.name", "system"), ("system.key", "system_key"), "threads", "fastest",
        "ahead", "risk", ("answers", "runtimes"),
    )  # fmt: skip

    model: str
    system: System | None
    threads: int
    answers: Sequence[RuntimeAnswer]
    ahead: float | None
    risk: float | None

    @property
    def fastest(self) -> str | None:
        """The runtime to take; None without any estimate."""
        first = self.answers[0]
        return None if first.estimate is None else first.runtime


@dataclass(frozen=True, slots=True)
class RuntimeAdvice:
    """Which runtime to take for each of several models, on each of several systems."""

    models: tuple[RuntimeChoice, ...]

    @property
    def answered(self) -> tuple[RuntimeChoice, ...]:
        """The choices with an estimate in any runtime."""
        return tuple(each for each in self.models if each.fastest)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runtimes have no estimate, each reason once."""
        told = (answer.error for choice in self.models for answer in choice.answers)
        return tuple(dict.fromkeys(error for error in told if error is not None))


def choose_runtime(
    places: Mapping[str, Place | BricksError], read: Callable[[Workspace], Model], name: str
) -> RuntimeChoice:
    """Compare the model that ``read`` reads for a workspace of each runtime.

    All ``places`` are on one system, with as many threads. Instead of one there may be why there is
    none: a runtime that is not installed, say.
    """
    answers = [_answer(runtime, place, read) for runtime, place in places.items()]
    targets = [place.target for place in places.values() if isinstance(place, Place)]
    system = targets[0].system if targets else None
    return _ranked(name, system, targets[0].runtime.threads if targets else 0, answers)


def _ranked(
    name: str, system: System | None, threads: int, answers: Sequence[RuntimeAnswer]
) -> RuntimeChoice:
    """The choice among ``answers`` for one model on a system with so many threads."""
    known = sorted(
        (each for each in answers if each.estimate is not None),
        key=lambda each: _estimate_s(each.estimate),
    )
    estimates = [each.estimate for each in known if each.estimate is not None]
    several = len(estimates) > 1
    return RuntimeChoice(
        name,
        system,
        threads,
        [*known, *(each for each in answers if each.estimate is None)],
        estimates[1].estimate_s / estimates[0].estimate_s - 1 if several else None,
        1 - math.prod(1 - slower(estimates[0], e) for e in estimates[1:]) if several else None,
    )


def _answer_of(target: Target, explanation: Explanation, names: Mapping[str, str]) -> RuntimeAnswer:
    """The answer of a target, from where the time goes; ``names`` as in :func:`_losses`."""
    runtime, found = target.runtime, explanation.estimate
    name = runtime.backend
    if runtime.optimization != "all":
        name += f" ({runtime.optimization})"
    if not isinstance(found, Estimate):
        return RuntimeAnswer(name, runtime.version, error=f"{len(found.gaps)} bricks lack")
    return RuntimeAnswer(
        name,
        runtime.version,
        found,
        explanation.fastest_s,
        losses=_losses(explanation, runtime.backend, names),
    )


def _names(targets: Iterable[Target]) -> dict[str, str]:
    """The names of the runtimes of ``targets``, by the target's key."""
    return {each.key: each.runtime.backend for each in targets}


def _losses(explanation: Explanation, own: str, names: Mapping[str, str]) -> tuple[Loss, ...]:
    """The operators in which most is lost to runtimes other than ``own``.

    ``names`` are those of runtimes, by key of a target: of all that are compared.
    """
    lost_s: dict[str, float] = defaultdict(float)
    faster: dict[str, set[str]] = defaultdict(set)
    for part in explanation.parts:
        best = None if part.fastest is None else names.get(part.fastest.target, own)
        if best not in (None, own) and part.lost_s > 0:
            lost_s[part.operator] += part.lost_s
            faster[part.operator].add(str(best))
    most = sorted(lost_s, key=lambda operator: (-lost_s[operator], operator))[:_LOSSES]
    return tuple(Loss(each, lost_s[each], tuple(sorted(faster[each]))) for each in most)


def choices(summary: CacheSummary) -> list[RuntimeChoice]:
    """The models of a cache that several runtimes ran on one host with as many threads."""
    found: dict[tuple[str, int, str], list[tuple[str, System, RuntimeAnswer]]] = defaultdict(list)
    names = _names(view.target for view in summary.targets)
    for view in summary.targets:
        system, threads = view.target.system, view.target.runtime.threads
        for model in view.models:
            answer = _answer_of(view.target, model.explanation, names)
            if answer.estimate is not None:
                place = system.key, threads, model.plan.digest
                found[place].append((model.title, system, answer))
    return [
        _ranked(rows[0][0], rows[0][1], threads, [answer for _, _, answer in rows])
        for (_, threads, _), rows in found.items()
        if len({answer.runtime for _, _, answer in rows}) > 1
    ]


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
    runtime: str, place: Place | BricksError, read: Callable[[Workspace], Model]
) -> RuntimeAnswer:
    if isinstance(place, BricksError):
        available = not isinstance(place, BackendError)
        return RuntimeAnswer(runtime, None, error=str(place), available=available)
    workspace, target, available = place.workspace, place.target, place.lack is None
    version, elsewhere = target.runtime.version, target.system.key != workspace.target.system.key
    try:
        model = read(workspace)
        plan = place.plan(model)
        found = predicting.predict_plan(workspace, plan, target=target)
        if not isinstance(found, Estimate):
            where = f" on {target.system.name}" if elsewhere else ""
            missing = (
                f"{model.name}: {len(found.gaps)} bricks are neither measured with {runtime}{where}"
                f" nor can they be predicted: bricks measure {model.name} --runtime {runtime}"
                f"{' there' if elsewhere else ''}"
            )
            return RuntimeAnswer(runtime, version, error=missing, available=available)
        explanation = Explainer(workspace, target).of(plan, found)
    except BricksError as error:
        return RuntimeAnswer(runtime, version, error=str(error), available=available)
    answer = _answer_of(target, explanation, _names(workspace.known.systems.targets()))
    return replace(answer, available=available)
