"""Scales a program's training over ranks: its step from bricks, recorded again for each batch.

Missing bricks are measured first, copies of a few sizes among them. Must not know how a step on
several ranks follows from that, nor how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from bricks.analysis.answers import inferences
from bricks.api.bench import Bench
from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Brick, by_itself
from bricks.errors import BricksError, ModelError, UsageError
from bricks.graph.model import Model
from bricks.measure.rounds import StopRule
from bricks.samples.measurement import Measurement, round_spread
from bricks.sources import Recorded, read, recorded_program
from bricks.studies.scaling.copies import (
    SIZES,
    CopyTimes,
    by_size,
    copy_bricks,
    ddp_bricks,
    ddp_times,
)
from bricks.studies.scaling.result import CheckedStep, ScaleFailure, ScalePoint, ScaleResult
from bricks.studies.scaling.scaling import DataParallelTraining, Scaling
from bricks.studies.scaling.strategies import Strategy
from bricks.studies.scaling.training_step import TrainingStep, module_tensors, training_step
from bricks.system import Target
from bricks.units.interval import Interval

# Copies are a small part of a step: a few rounds tell them well enough.
_COPY_RULE = StopRule(precision=0.05, min_rounds=6, max_rounds=6)

# Beyond this, only the numbers of ranks that are asked for are looked at.
_MAX_LOOKED = 128

# Runs real steps on so many ranks, with so many samples each (None: the program's own number); the
# last argument is the seconds that a rank computes in a step.
Check = Callable[[int, int | None, float], CheckedStep]


def scale_training(
    bench: Bench,
    workload: str,
    training: DataParallelTraining,
    ranks: Sequence[int],
    *,
    strategies: Sequence[Strategy] = (),
    batch: int | None = None,
    target: Target | None = None,
    measure: bool = True,
    checks: Mapping[int, Check] | None = None,
) -> tuple[ScaleResult, ...]:
    """Predict ``training`` of ``workload`` on each number of ``ranks``, for each of ``strategies``.

    ``workload`` is ``FILE.py:FUNCTION``, ``module:FUNCTION`` or a recorded training step of the
    zoo; ``batch`` is passed on to it, and replaces that of ``training``, as its price is that of
    the target's system. With ``measure``, missing bricks are measured first; nothing can be
    measured on a ``target`` other than the bench's. Without ``strategies``, that of ``training``
    counts. ``checks`` run real steps for some numbers of ranks, with the first strategy. Raises
    :class:`~bricks.errors.UsageError` for a program that is no training step and for a batch that
    is missing, and :class:`~bricks.errors.BricksError` if no step can be predicted.
    """
    if training.divided and batch is None:
        raise UsageError("a batch that ranks divide must be given: add --batch N")
    target = bench.target if target is None else target
    steps, problems = _Steps(bench, workload, target, measure), dict[int, str]()
    if training.divided and batch is not None:
        size, (found, problems) = batch, _shared(steps, batch, ranks)
    else:
        size, step = steps.of(batch)
        found = {size: step}
    training = replace(training, batch=size, price_per_hour=target.system.price_per_hour)
    copies, results = _copies(bench, target, measure), []
    for number, strategy in enumerate(strategies or [training.strategy]):
        scaling = Scaling(replace(training, strategy=strategy), found, copies)
        own = checks or {} if number == 0 else {}
        points = tuple(
            ScaleFailure(n, problems[n])
            if n in problems
            else _point(scaling, n, own.get(n), workload, batch)
            for n in ranks
        )
        # Where no number of ranks can be predicted, neither can those between.
        told = [each.ranks for each in points if isinstance(each, ScalePoint)]
        looked = _looked(training, told)
        results.append(
            ScaleResult(
                workload=workload,
                target=target,
                network=training.network.name,
                strategy=strategy.name,
                points=points,
                pays_up_to=scaling.last_that_pays(looked),
                looked_up_to=looked[-1],
            )
        )
    return tuple(results)


def _looked(training: DataParallelTraining, ranks: Sequence[int]) -> list[int]:
    """The numbers of ranks that are compared to tell where further ones add too little.

    Where ranks divide a batch, each share of it would have to be recorded.
    """
    most = max(ranks, default=1)
    between = () if training.divided else range(1, min(most, _MAX_LOOKED) + 1)
    return sorted({1, *ranks, *between})


def _point(
    scaling: Scaling, ranks: int, check: Check | None, workload: str, batch: int | None
) -> ScalePoint | ScaleFailure:
    try:
        if check is None:
            return scaling.point(ranks)
        share = None if batch is None else scaling.training.share(ranks)
        return scaling.point(ranks, check(ranks, share, scaling.computing_s(ranks)))
    except BricksError as error:
        return ScaleFailure(ranks, f"{workload} on {ranks} ranks: {error}")


def _shared(
    steps: _Steps, batch: int, ranks: Sequence[int]
) -> tuple[dict[int, TrainingStep], dict[int, str]]:
    """The step at each share of ``batch``, and why there is none by the number of ranks.

    That of one rank must be there, since all others are relative to it.
    """
    found, problems = {batch: steps.of(batch)[1]}, dict[int, str]()
    for n in ranks:
        share, rest = divmod(batch, n)
        if rest:
            problems[n] = f"a batch of {batch} cannot be divided by {n} ranks: choose others"
        elif share not in found:
            try:
                found[share] = steps.of(share)[1]
            except BricksError as error:
                problems[n] = f"the step of {n} ranks, at batch {share}: {error}"
    return found, problems


class _Steps:
    """A rank's own steps of a workload."""

    def __init__(self, bench: Bench, workload: str, target: Target, measure: bool) -> None:
        self._bench, self._workload, self._target = bench, workload, target
        self._measure = measure

    def of(self, batch: int | None) -> tuple[int, TrainingStep]:
        """The step at ``batch``, by default the program's own; that batch, and the step."""
        bench, model = self._bench, self._recorded(batch)
        basis = bench.basis(model, measure=self._measure, target=self._target)
        estimate = recompose(basis)
        if isinstance(estimate, IncompleteEstimate):
            raise ModelError(
                f"{model.name} on {self._target.system.name}: {len(estimate.gaps)} bricks are"
                " neither measured nor can they be predicted: leave out --no-measure, or measure"
                " more there"
            )
        size = inferences(basis.plan) if batch is None else batch
        return size, training_step(model, basis, estimate)

    def _recorded(self, batch: int | None) -> Model:
        """The program; one of the zoo is recorded anew if its recording lacks what is needed."""
        options = self._bench.workspace.read_options(batch=batch, name=self._workload)
        model = read(self._workload, options)
        known = recorded_program(self._workload)
        if known is None or known.code is None or module_tensors(model) is not None:
            return model
        return Recorded(known).record(options)


def _copies(bench: Bench, target: Target, measure: bool) -> CopyTimes:
    """What copies and DDP itself take on ``target``.

    Where DDP was not measured, a gradient takes two copies, and nothing is done once.
    """
    if measure and target.key == bench.target.key:
        rule, asked = _COPY_RULE, bench.options.conditions.rule.precision
        if asked > rule.precision:  # fewer rounds do
            rule = replace(rule, precision=asked, min_rounds=2, max_rounds=3)
        bench.measure_alone([*copy_bricks(), *ddp_bricks()], rule=rule)
    known = [_copy_s(bench, target, brick) for brick in copy_bricks()]
    copies = by_size(zip(SIZES, (copy_s for copy_s, _ in known), strict=True))
    results = bench.known.measurements.results(target.key, [brick.key for brick in ddp_bricks()])
    measured = [results.get(brick.key) for brick in ddp_bricks()]
    added = [round_spread(each) for each in measured if isinstance(each, Measurement)]
    if len(added) == len(measured):
        return CopyTimes(copies, *ddp_times(added), measured=all(sure for _, sure in known))
    twice = copies.map(lambda copy_s: copy_s.scaled(2.0))
    return CopyTimes(copies, Interval.exact(0.0), twice, measured=False)


def _copy_s(bench: Bench, target: Target, brick: Brick) -> tuple[Interval, bool]:
    """What a copy takes without the call of the runtime, and whether it was measured."""
    plan = by_itself(brick, str(bench.granularity)).plan
    found = bench.predict_plan(plan, target=target)
    if isinstance(found, IncompleteEstimate):
        raise ModelError(
            f"copies of gradients are neither measured on {target.system.name} nor can they be"
            " predicted: leave out --no-measure, or scale there"
        )
    count, call_s = len(plan.occurrences), found.call_overhead_s
    whole_s = Interval(found.estimate_s, found.low_s, found.high_s)
    return whole_s.map(lambda s: max(0.0, s - call_s) / count), not found.predicted_share
