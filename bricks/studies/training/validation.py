"""Validates a training: its gradients, its optimiser, and the order of its data.

A worker computes gradients, trajectories and orders; this module judges them. The verdict of each
check is agrees, deviates, or unknown with a reason. Must not run the program.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from bricks.backends.programs import SeededProgram
from bricks.errors import WorkerError
from bricks.measure.protocol.training import CheckGradients, CheckItemOrders, CheckTrajectories
from bricks.samples.evaluation import GRADIENT_TOLERANCE
from bricks.sources import find_workload
from bricks.studies.training.optimizers import reference, trajectory, unknown_option

if TYPE_CHECKING:
    from bricks.backends.training_checks import (
        GradientDeviation,
        GradientDeviations,
        ItemOrders,
        OptimizerTrajectories,
        Trajectory,
    )
    from bricks.measure.protocol.request import Answer, Request
    from bricks.measure.supervisor import Supervisor
    from bricks.session.workspace import Workspace

# Steps of an optimiser, and how far it may be from its definition, relative to the norm of the
# point. Twenty steps of some twenty roundings (1e-16) may add up to 1e-13, and dividing by roots of
# small moments may make a hundred times as much of it. The slightest error of a formula is in the
# order of learning rate times weight decay or epsilon, at least 1e-9.
OPTIMIZER_STEPS, OPTIMIZER_TOLERANCE = 20, 1e-10

# Epochs whose orders are compared.
SAMPLING_EPOCHS = 10
# Orders this improbable are called biased: one training of a thousand is by chance.
MIN_PROBABILITY = 1e-3
# Positions in an epoch are grouped into tenths.
_GROUPS = 10
# With fewer items expected in each cell, the chi-squared distribution does not hold.
_MIN_EXPECTED = 5.0
# Data of which fewer items come back in the second epoch are drawn or changed anew each time.
_MIN_COMMON = 0.5

_TIMEOUT_S = 1800.0

AGREES, DEVIATES, UNKNOWN = "agrees", "deviates", "unknown"


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """A parameter's gradient compared with finite differences; ``deviation`` is relative.

    ``verdict`` is ``unknown`` if the gradient is below the resolution of finite differences.
    """

    parameter: str
    deviation: float | None
    verdict: str


@dataclass(frozen=True, slots=True)
class OptimizerCheck:
    """An optimiser compared with its ``definition``, on one function with one set of options.

    ``differences`` are the norms of the difference after each step, relative to the norm of the
    point.
    """

    optimizer: str
    definition: str | None
    objective: str
    options: Mapping[str, Any]
    differences: tuple[float, ...]
    verdict: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class SamplingCheck:
    """The items of several epochs.

    ``items`` is the number of different ones, ``per_epoch`` that of an epoch. ``even`` says whether
    each item appears equally often in every epoch; if not, ``even_p`` is the probability that the
    counts are as uneven by chance. ``never`` counts items of the data set that no epoch has, and
    ``repeated`` those that every epoch has more often than the data set. ``shuffled`` is whether
    epochs have other orders, and ``order_p`` then the probability of such orders if all were
    equally likely. They are None where there is nothing, or too little, to compute them from.
    """

    epochs: int
    items: int
    per_epoch: int
    even: bool | None
    even_p: float | None
    never: int | None
    repeated: int | None
    shuffled: bool | None
    order_p: float | None
    verdict: str
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class TrainingValidation:
    """The verdicts on a training; ``gradients_reason`` says why no gradient was compared."""

    FACTS: ClassVar = (
        "workload", "gradients", "optimizer", "sampling", "gradients_reason", "errors", "verdict",
    )  # fmt: skip

    workload: str
    gradients: tuple[GradientCheck, ...]
    optimizer: tuple[OptimizerCheck, ...]
    sampling: SamplingCheck
    gradients_reason: str | None
    errors: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """``deviates`` if anything does; ``agrees`` if all does that can be judged."""
        return DEVIATES if self.errors else AGREES


def validate_training(
    workspace: Workspace, workload: str, *, batch: int | None = None, seed: int = 0
) -> TrainingValidation:
    """Check the gradients, the optimiser and the data of ``workload``.

    ``workload`` is as in :func:`bricks.train`. Raises :class:`~bricks.errors.WorkerError` for a
    program that cannot be trained; deviations are part of the result.
    """
    program = SeededProgram(**find_workload(workload).request(batch), seed=seed)
    with workspace.worker() as worker:
        ask = partial(_asked, worker, workload)
        workspace.progress(f"{workload}: comparing gradients with differences", 0.0)
        deviations = ask(CheckGradients(program))
        workspace.progress(f"{workload}: comparing the optimiser with its definition", 0.5)
        steps = ask(CheckTrajectories(program, OPTIMIZER_STEPS))
        workspace.progress(f"{workload}: comparing the orders of data", 0.7)
        orders = ask(CheckItemOrders(program, SAMPLING_EPOCHS))
    return judge(workload, deviations, steps, orders)


def judge(
    workload: str,
    deviations: GradientDeviations,
    steps: OptimizerTrajectories,
    orders: ItemOrders,
) -> TrainingValidation:
    """The verdicts on gradients that were ``found``, on steps of the optimiser, and on orders."""
    gradients = tuple(map(judge_gradient, deviations.parameters))
    optimizer = judge_optimizer(steps)
    sampling = judge_sampling(orders.orders, orders.data_set, orders.reason)
    errors = []
    wrong = [check for check in gradients if check.verdict == DEVIATES]
    if wrong:
        named = ", ".join(f"{g.parameter} ({100 * (g.deviation or 0):.2g} %)" for g in wrong[:10])
        more = f" and {len(wrong) - 10} more" if len(wrong) > 10 else ""
        errors.append(
            f"{workload}: the gradient deviates from finite differences for {named}{more}: check"
            " the backward functions that they pass through"
        )
    for check in optimizer:
        if check.verdict == DEVIATES:
            step = next(n for n, d in enumerate(check.differences, 1) if d > OPTIMIZER_TOLERANCE)
            errors.append(
                f"{workload}: {check.optimizer} deviates from {check.definition} on the"
                f" {check.objective} from step {step} on, by {check.differences[-1]:.2g} in the end"
            )
    if sampling.verdict == DEVIATES:
        errors.append(f"{workload}: the data are biased: {_bias(sampling)}: check the sampler")
    return TrainingValidation(
        workload, gradients, optimizer, sampling, deviations.reason, tuple(errors)
    )


def _asked(worker: Supervisor, workload: str, request: Request[Answer]) -> Answer:
    try:
        return worker.ask(request, timeout_s=_TIMEOUT_S)
    except WorkerError as error:
        text = str(error)
        raise WorkerError(text if workload in text else f"{workload}: {text}") from error


def judge_gradient(gradient: GradientDeviation) -> GradientCheck:
    """The verdict on a parameter's gradient."""
    deviation, resolution = gradient.deviation, gradient.resolution
    if deviation is None or resolution is None:
        return GradientCheck(gradient.name, None, UNKNOWN)
    if deviation > GRADIENT_TOLERANCE and deviation > resolution:
        verdict = DEVIATES
    else:
        verdict = UNKNOWN if resolution > GRADIENT_TOLERANCE else AGREES
    return GradientCheck(gradient.name, deviation, verdict)


def judge_optimizer(steps: OptimizerTrajectories) -> tuple[OptimizerCheck, ...]:
    """The verdicts on an optimiser, one for each of its trajectories."""
    definition = reference(steps.bases)
    return tuple(
        _compared(steps.optimizer, definition, trajectory) for trajectory in steps.trajectories
    )


def _compared(optimizer: str, definition: str | None, run: Trajectory) -> OptimizerCheck:
    options, objective = run.options, run.objective
    reason = None
    if definition is None:
        reason = f"no definition of {optimizer} is known here"
    elif (unknown := unknown_option(definition, options)) is not None:
        reason = f"the definition of {definition} has no option {unknown!r}"
    if definition is None or reason is not None:
        return OptimizerCheck(optimizer, definition, objective, options, (), UNKNOWN, reason)
    points = np.array(run.points)
    expected = trajectory(definition, options, objective, run.scale, len(points))
    off = np.linalg.norm(points - expected, axis=1) / np.linalg.norm(expected, axis=1)
    agrees = bool(np.all(off <= OPTIMIZER_TOLERANCE))  # never true of NaN
    return OptimizerCheck(
        optimizer,
        definition,
        objective,
        options,
        tuple(map(float, np.nan_to_num(off, nan=np.finfo(float).max))),
        AGREES if agrees else DEVIATES,
    )


def judge_sampling(
    orders: Sequence[Sequence[int]],
    data_set: Sequence[int] | None = None,
    reason: str | None = None,
) -> SamplingCheck:
    """The verdict on the ``orders`` of several epochs, each a sequence of item numbers.

    ``data_set`` has the numbers of all items if known; ``reason`` says why orders are unknown.
    """
    per_epoch = len(orders[0]) if orders else 0
    items = len(set().union(data_set or (), *orders))
    if reason is None and (len(orders) < 2 or not per_epoch):
        reason = "there are too few items, or too many, to look at two epochs"
    if reason is None and len({*orders[0]} & {*orders[1]}) < _MIN_COMMON * len({*orders[0]}):
        reason = "items of an epoch do not come back in the next: they are drawn or changed anew"
    if reason is not None:
        return SamplingCheck(
            len(orders), items, per_epoch, None, None, None, None, None, None, UNKNOWN, reason
        )
    counts = np.array([np.bincount(order, minlength=items) for order in orders])
    even = bool((counts == counts[0]).all())
    even_p = None if even else _evenness(counts)
    shuffled = any(list(order) != list(orders[0]) for order in orders[1:])
    order_p = _independence(orders) if shuffled else None
    if not even and even_p is None:
        reason = "too few epochs to tell whether all items appear equally often"
    never = repeated = None
    if data_set is not None:
        in_data_set = np.bincount(data_set, minlength=items)
        never = int((in_data_set[counts.sum(axis=0) == 0] > 0).sum())
        repeated = int((counts.min(axis=0) > in_data_set).sum())
    biased = bool(repeated) or any(p is not None and p < MIN_PROBABILITY for p in (even_p, order_p))
    verdict = DEVIATES if biased else UNKNOWN if reason is not None else AGREES
    return SamplingCheck(
        len(orders), items, per_epoch, even, even_p, never, repeated, shuffled, order_p, verdict,
        reason,
    )  # fmt: skip


def _evenness(counts: np.ndarray) -> float | None:
    """The chi-squared p value of how often each item appears in all epochs together.

    Drawn with replacement, counts are about Poisson; of random subsets they vary less, so that the
    p value is too large rather than too small.
    """
    from scipy.stats import chi2

    totals = counts.sum(axis=0)
    expected = totals.mean()
    if expected < _MIN_EXPECTED:
        return None
    statistic = float(((totals - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, len(totals) - 1))


def _independence(orders: Sequence[Sequence[int]]) -> float | None:
    """The chi-squared p value of independence between positions in the first and later epochs.

    Items of one tenth of the first epoch should be in all tenths of the others equally often. Both
    margins are fixed, so there are (10 - 1)² degrees of freedom. Items that appear several times
    have no single position, and are left out.
    """
    from scipy.stats import chi2

    first = _positions(orders[0])
    size = len(orders[0])
    table = np.zeros((_GROUPS, _GROUPS))
    for order in orders[1:]:
        for item, position in _positions(order).items():
            if item in first:
                table[first[item] * _GROUPS // size, position * _GROUPS // size] += 1
    total = max(table.sum(), 1)
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / total
    if expected.min() < _MIN_EXPECTED:
        return None
    statistic = float(((table - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, (_GROUPS - 1) ** 2))


def _positions(order: Sequence[int]) -> dict[int, int]:
    """The position in an epoch of each item that appears once."""
    counts = Counter(order)
    return {item: position for position, item in enumerate(order) if counts[item] == 1}


def _bias(sampling: SamplingCheck) -> str:
    if sampling.repeated:
        return f"{sampling.repeated} items appear more often in each epoch than in the data set"
    if sampling.even_p is not None and sampling.even_p < MIN_PROBABILITY:
        return f"some items appear more often than others (p = {sampling.even_p:.2g})"
    return f"items keep to some places of an epoch (p = {sampling.order_p:.2g})"
