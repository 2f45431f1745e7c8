"""Latency and cost of a model on known targets, from existing measurements.

Answers a question of commands and of the server: nothing is measured. Must not
know who asks, nor how answers are shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.compose.slo import per_million
from bricks.session import predicting
from bricks.session.targets import as_there

if TYPE_CHECKING:
    from bricks.decompose.plan import Plan
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# An estimate in the JSON of an answer: its interval, and its shares by provenance.
ESTIMATE: tuple[tuple[str, ...], ...] = (
    ("estimate.latency_s", "estimate_s", "low_s", "high_s"),
    ("estimate.measured_share", "measured_share"),
    ("estimate.published_share", "published_share"),
    ("estimate.predicted_share", "predicted_share"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A model's estimate on a target; ``cost_per_million`` inferences, None without a price."""

    target: Target
    plan: Plan
    estimate: Estimate
    cost_per_million: float | None


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Why there is no estimate of a model on a target, in one line."""

    target: Target
    reason: str


def targets_like(workspace: Workspace) -> list[Target]:
    """Known targets of the workspace's runtime, in any version and with any number of threads."""
    usual = workspace.runtime
    return [
        target
        for target in workspace.known.systems.targets()
        if target.runtime == as_there(usual, target)
    ]


def answer(
    workspace: Workspace, plan: Plan, target: Target, *, batch: int | None = None
) -> Answer | NoAnswer:
    """The latency and cost of ``plan`` on ``target``; ``batch`` inferences a run, or its own."""
    estimate = predicting.predict_plan(workspace, plan, target=target)
    threads = target.runtime.threads
    if not isinstance(estimate, Estimate):
        return NoAnswer(
            target,
            f"{plan.model} on {target.system.name} with {threads} threads:"
            f" {len(estimate.gaps)} bricks are neither measured nor can they be predicted:"
            " measure more there",
        )
    price, size = target.system.price_per_hour, plan.inferences if batch is None else batch
    cost = None if price is None else per_million(price, estimate.estimate_s, size)
    return Answer(target, plan, estimate, cost)


def answers(workspace: Workspace, digest: str) -> list[Answer | NoAnswer]:
    """Latency and cost of the model with this digest on every known target.

    Nothing is decomposed. Targets of other runtimes are left out unless the model's plan is known
    there, and so are targets without measurements.
    """
    like = {target.key for target in targets_like(workspace)}
    results: list[Answer | NoAnswer] = []
    for target in workspace.known.systems.targets():
        if not workspace.known.measurements.costs(target.key):
            continue
        plan = workspace.plans.known_plan(digest, target=target)
        if plan is not None:
            results.append(answer(workspace, plan, target))
        elif target.key in like:
            results.append(
                NoAnswer(
                    target,
                    f"the model was never decomposed on {target.system.name}, whose runtime may"
                    " execute another graph: decompose it there",
                )
            )
    return results
