"""The fastest runtime for a model on a system, its lead, and the risk of being wrong.

Nothing is measured: what is known of each runtime counts. Must not know how answers are shown.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from bricks.analysis.answers import ESTIMATE
from bricks.analysis.explain import Explainer
from bricks.analysis.explanation import Explanation
from bricks.analysis.ranking import longer
from bricks.compose.estimate import Estimate
from bricks.decompose.plan import Plan
from bricks.errors import BackendError, BricksError, UsageError
from bricks.graph.model import Model
from bricks.session import predicting
from bricks.session.workspace import Workspace
from bricks.system import System, Target

# Operators that are named as those in which a runtime loses most.
_LOSSES = 3


@dataclass(frozen=True, slots=True)
class RuntimeCandidate:
    """A runtime on a ``target``, and a ``workspace`` to read models with.

    ``lack`` is why this host cannot run it: then only models with a known plan have an estimate.
    """

    workspace: Workspace
    target: Target
    lack: BackendError | None = None

    def plan(self, model: Model) -> Plan:
        """The plan of ``model`` on the target; :class:`BricksError` if it cannot be had."""
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
    """Seconds that a runtime loses in an operator to ``runtimes`` with faster implementations.

    ``runtimes`` are faster for at least one of the operator's bricks.
    """

    operator: str
    lost_s: float
    runtimes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RuntimeEstimate:
    """The latency of a model in a runtime.

    ``available`` says whether this host can run the runtime. ``lower_s`` is the latency if each
    brick were as fast as the fastest implementation of the same work, in any runtime, that is known
    on the system; ``losses`` are the operators in which most time is lost to other runtimes.
    """

    FACTS: ClassVar = (
        "runtime", "version", "available", *ESTIMATE, "lower_s", "losses", "error",
    )  # fmt: skip

    runtime: str
    version: str | None
    estimate: Estimate
    lower_s: float | None
    losses: tuple[Loss, ...] = ()
    available: bool = True


@dataclass(frozen=True, slots=True)
class NoRuntimeEstimate:
    """Why there is no estimate of a model in a runtime, in one line."""

    LIKE: ClassVar = RuntimeEstimate
    losses: ClassVar[tuple[Loss, ...]] = ()

    runtime: str
    version: str | None
    error: str
    available: bool = True


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """A model in several runtimes on a system, the fastest first, failures last.

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
    answers: Sequence[RuntimeEstimate | NoRuntimeEstimate]
    ahead: float | None
    risk: float | None

    @property
    def fastest(self) -> str | None:
        """The name of the fastest runtime; None without any estimate."""
        return self.estimates[0].runtime if self.estimates else None

    @property
    def estimates(self) -> tuple[RuntimeEstimate, ...]:
        """The runtimes with an estimate."""
        return tuple(answer for answer in self.answers if isinstance(answer, RuntimeEstimate))


@dataclass(frozen=True, slots=True)
class RuntimeAdvice:
    """The fastest runtime for each of several models, on each of several systems."""

    models: tuple[RuntimeChoice, ...]

    @property
    def answered(self) -> tuple[RuntimeChoice, ...]:
        """The choices with an estimate in any runtime."""
        return tuple(choice for choice in self.models if choice.estimates)

    @property
    def errors(self) -> tuple[str, ...]:
        """Why runtimes have no estimate, each reason once."""
        answers = [answer for choice in self.models for answer in choice.answers]
        failures = (answer.error for answer in answers if isinstance(answer, NoRuntimeEstimate))
        return tuple(dict.fromkeys(failures))


def choose_runtime(
    candidates: Mapping[str, RuntimeCandidate | BricksError],
    read: Callable[[Workspace], Model],
    name: str,
) -> RuntimeChoice:
    """Compare the runtimes of ``candidates`` for the model that ``read`` reads for a workspace.

    All candidates are on one system, with equally many threads. An error in place of a candidate
    says why the runtime has none: it is not installed, say.
    """
    answers = [_answer(runtime, candidate, read) for runtime, candidate in candidates.items()]
    targets = [
        candidate.target
        for candidate in candidates.values()
        if isinstance(candidate, RuntimeCandidate)
    ]
    system = targets[0].system if targets else None
    return _ranked(name, system, targets[0].runtime.threads if targets else 0, answers)


def _ranked(
    name: str,
    system: System | None,
    threads: int,
    answers: Sequence[RuntimeEstimate | NoRuntimeEstimate],
) -> RuntimeChoice:
    """The choice among ``answers`` for one model on a system with so many threads."""
    known = [answer for answer in answers if isinstance(answer, RuntimeEstimate)]
    known.sort(key=lambda answer: answer.estimate.estimate_s)
    estimates = [answer.estimate for answer in known]
    several = len(estimates) > 1
    return RuntimeChoice(
        name,
        system,
        threads,
        [*known, *(answer for answer in answers if isinstance(answer, NoRuntimeEstimate))],
        estimates[1].estimate_s / estimates[0].estimate_s - 1 if several else None,
        1 - math.prod(1 - slower(estimates[0], e) for e in estimates[1:]) if several else None,
    )


def _estimate_of(
    target: Target, estimate: Estimate, explanation: Explanation, names: Mapping[str, str]
) -> RuntimeEstimate:
    """The estimate of a runtime with its losses; ``names`` as in :func:`_losses`."""
    runtime = target.runtime
    level = "" if runtime.optimization == "all" else f" ({runtime.optimization})"
    return RuntimeEstimate(
        f"{runtime.backend}{level}",
        runtime.version,
        estimate,
        explanation.fastest_s,
        losses=_losses(explanation, runtime.backend, names),
    )


def _names(targets: Iterable[Target]) -> dict[str, str]:
    """The names of the runtimes of ``targets``, by the target's key."""
    return {target.key: target.runtime.backend for target in targets}


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
    return tuple(
        Loss(operator, lost_s[operator], tuple(sorted(faster[operator]))) for operator in most
    )


def slower(one: Estimate, other: Estimate) -> float:
    """The probability that the latency of ``one`` is longer than that of the ``other``."""
    return longer(one.latency_s, other.latency_s)


def _answer(
    runtime: str, candidate: RuntimeCandidate | BricksError, read: Callable[[Workspace], Model]
) -> RuntimeEstimate | NoRuntimeEstimate:
    if isinstance(candidate, BricksError):
        available = not isinstance(candidate, BackendError)
        return NoRuntimeEstimate(runtime, None, str(candidate), available)
    available = candidate.lack is None
    try:
        return replace(_estimated(runtime, candidate, read), available=available)
    except BricksError as error:
        return NoRuntimeEstimate(runtime, candidate.target.runtime.version, str(error), available)


def _estimated(
    runtime: str, candidate: RuntimeCandidate, read: Callable[[Workspace], Model]
) -> RuntimeEstimate:
    """The estimate of a candidate; :class:`BricksError` where there is none."""
    workspace, target = candidate.workspace, candidate.target
    model = read(workspace)
    plan = candidate.plan(model)
    estimate = predicting.predict_plan(workspace, plan, target=target)
    if not isinstance(estimate, Estimate):
        other_system = target.system.key != workspace.target.system.key
        raise BricksError(
            f"{model.name}: {len(estimate.gaps)} bricks are neither measured with {runtime}"
            f"{f' on {target.system.name}' if other_system else ''} nor can they be predicted:"
            f" bricks measure {model.name} --runtime {runtime}{' there' if other_system else ''}"
        )
    explanation = Explainer(workspace, target).of(plan, estimate)
    names = _names(workspace.known.systems.targets())
    return _estimate_of(target, estimate, explanation, names)
