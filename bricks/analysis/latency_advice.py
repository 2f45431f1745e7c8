"""Whether a model meets an SLO on a target, with which probability, and at what cost.

Nothing is measured. Must not know how answers are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from bricks.analysis.answers import ESTIMATE, NoAnswer, answer
from bricks.compose.advice import PROMISE, risk
from bricks.compose.estimate import Estimate
from bricks.errors import BricksError
from bricks.graph.model import Model
from bricks.session.workspace import Workspace
from bricks.sources import Unread
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class LatencyAdvice:
    """A model on a target: its estimate, and the probability ``risk`` that it exceeds the bound.

    ``batch`` is None for the model's own. ``cost_per_million`` inferences is None without a price.
    ``advice`` says in words what would narrow a wide interval, where somebody has asked for it.
    """

    FACTS: ClassVar = (
        "model", "batch", ("target.system.name", "system"), ("target.system.key", "system_key"),
        ("target.runtime.threads", "threads"), ("target.runtime.version", "runtime_version"),
        *ESTIMATE, "risk", "keeps", "cost_per_million", "error",
        ("estimate.uncertainty", "uncertainty"), "advice",
    )  # fmt: skip

    model: str
    batch: int | None
    target: Target
    estimate: Estimate
    risk: float
    cost_per_million: float | None
    advice: str | None = None

    @property
    def keeps(self) -> bool:
        """Whether the SLO is met with the promised probability."""
        return self.risk <= PROMISE


@dataclass(frozen=True, slots=True)
class NoLatencyAdvice:
    """Why there is no estimate of a model on a target, in one line."""

    LIKE: ClassVar = LatencyAdvice

    model: str
    batch: int | None
    target: Target
    error: str


@dataclass(frozen=True, slots=True)
class LatencyAnswer:
    """Models on targets, and whether each meets ``slo_s`` seconds."""

    FACTS: ClassVar = ("slo_s", "promise", "answers")

    slo_s: float
    answers: tuple[LatencyAdvice | NoLatencyAdvice, ...]

    @property
    def promise(self) -> float:
        """The greatest probability of missing an SLO that counts as met."""
        return PROMISE

    @property
    def advised(self) -> tuple[LatencyAdvice, ...]:
        """The answers with an estimate."""
        return tuple(answer for answer in self.answers if isinstance(answer, LatencyAdvice))

    @property
    def errors(self) -> tuple[str, ...]:
        """The reasons of the answers without an estimate."""
        return tuple(answer.error for answer in self.answers if isinstance(answer, NoLatencyAdvice))


def advise_latency(
    workspace: Workspace, model: Model | Unread, target: Target, slo_s: float, batch: int | None
) -> LatencyAdvice | NoLatencyAdvice:
    """Whether ``model`` meets ``slo_s`` seconds on ``target``, with ``batch`` inferences a run."""
    if isinstance(model, Unread):
        return NoLatencyAdvice(model.name, batch, target, model.error)
    try:
        plan = workspace.plans.plan(model, target=target)
        known = answer(workspace, plan, target, batch=batch)
    except BricksError as error:
        return NoLatencyAdvice(model.name, batch, target, str(error))
    if isinstance(known, NoAnswer):
        return NoLatencyAdvice(model.name, batch, target, known.reason)
    late = risk(known.estimate, slo_s)
    return LatencyAdvice(model.name, batch, target, known.estimate, late, known.cost_per_million)


def best_first(of: LatencyAdvice | NoLatencyAdvice) -> tuple[Any, ...]:
    """The sort key: targets that meet the SLO first, by cost if known, and by latency."""
    name, threads = of.target.system.name, of.target.runtime.threads
    if isinstance(of, NoLatencyAdvice):
        return of.model, True, True, True, 0.0, 0.0, name, threads
    cost = of.cost_per_million
    rank = (not of.keeps, cost is None, cost or 0.0, of.estimate.estimate_s)
    return of.model, False, *rank, name, threads
