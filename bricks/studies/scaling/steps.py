"""A rank's own step of a workload at each batch of a rank, its copies of gradients, and DDP's code.

Recorded steps lack both. Copies of a few sizes are bricks of the same runtime; other sizes are
interpolated. The time that DDP with a single rank adds to steps of small programs, with few and
many gradients, is a brick too: a fixed cost and a cost per gradient follow from it. Must not know
how steps on several ranks are simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.recompose import recompose
from bricks.decompose.identity import Cutter
from bricks.decompose.plan import Brick, isolated_decomposition
from bricks.errors import BricksError, ModelError
from bricks.graph.form import DOMAIN
from bricks.graph.program import REPLICATED, Call
from bricks.graph.view import graph_of
from bricks.measure.conditions import StopRule
from bricks.samples.measurement import Measurement, round_spread
from bricks.session.predicting import basis, predict_plan
from bricks.sources import read
from bricks.studies.scaling.training_step import TrainingStep, training_step
from bricks.units.curve import Curve, Extrapolation
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Copies are a small part of a step, but take a second: a few rounds suffice, however noisy.
_COPY_RULE = StopRule(precision=0.05, min_rounds=6, max_rounds=6, passes=1, retries=0)

# Bytes that are copied: from the smallest gradients to more than most caches hold.
SIZES = tuple(1 << power for power in (12, 16, 20, 23, 25))

_FLOAT = 4

# The number of gradients of small programs, and their bytes; the first two determine the fixed
# cost.
PROGRAMS = ((4, 1 << 8), (36, 1 << 8), (16, 1 << 16), (4, 1 << 22))


@dataclass(frozen=True, slots=True)
class RankModels:
    """One step of a workload at each batch that a rank has: None is the program's own.

    ``whole`` is the batch of one rank by itself; ``problems`` say by numbers of ranks why there is
    no step of them.
    """

    whole: int | None
    models: Mapping[int | None, Model]
    problems: Mapping[int, str]


def rank_models(
    workspace: Workspace, workload: str, batch: int | None, ranks: Sequence[int]
) -> RankModels:
    """The models of steps of ``workload`` if ``ranks`` divide ``batch``, or of ``batch`` only.

    Raises :class:`~bricks.errors.BricksError` if the step of one rank is missing, since all others
    are relative to it.
    """
    models = {batch: recorded(workspace, workload, batch)}
    problems = dict[int, str]()
    for n in ranks if batch is not None else ():
        assert batch is not None
        share, rest = divmod(batch, n)
        if rest:
            problems[n] = f"a batch of {batch} cannot be divided by {n} ranks: choose others"
        elif share not in models:
            try:
                models[share] = recorded(workspace, workload, share)
            except BricksError as error:
                problems[n] = _of_share(n, share, error)
    return RankModels(batch, models, problems)


def recorded(workspace: Workspace, workload: str, batch: int | None) -> Model:
    """A step of ``workload``: the zoo's own recording without a ``batch``."""
    return read(workload, workspace.read_options(batch=batch, name=workload))


@dataclass(frozen=True, slots=True)
class RankSteps:
    """A rank's own step by the samples that it has, ``whole`` of them by itself.

    ``problems`` say by numbers of ranks why there is no step of them.
    """

    whole: int
    steps: Mapping[int, TrainingStep]
    problems: Mapping[int, str]


def rank_steps(workspace: Workspace, of: RankModels, target: Target) -> RankSteps:
    """The steps of the models ``of`` on ``target``, from stored measurements.

    Raises :class:`~bricks.errors.UsageError` for a program that is no training step or that DDP
    would refuse, and :class:`~bricks.errors.ModelError` if there is no step of one rank.
    """
    whole, step = _sized_step(workspace, of.models[of.whole], target, of.whole)
    steps, problems = {whole: step}, dict(of.problems)
    for share, model in of.models.items():
        if share is None or share == of.whole:
            continue
        try:
            steps[share] = rank_step(workspace, model, target, share)
        except BricksError as error:
            n = whole // share
            problems[n] = _of_share(n, share, error)
    return RankSteps(whole, steps, problems)


def _of_share(ranks: int, share: int, error: BricksError) -> str:
    return f"the step of {ranks} ranks, at batch {share}: {error}"


def rank_step(workspace: Workspace, model: Model, target: Target, batch: int) -> TrainingStep:
    """The step of ``model`` with ``batch`` samples on ``target``, from stored measurements.

    Raises the errors of :func:`rank_steps`.
    """
    return _sized_step(workspace, model, target, batch)[1]


def _sized_step(
    workspace: Workspace, model: Model, target: Target, batch: int | None
) -> tuple[int, TrainingStep]:
    inputs = basis(workspace, model, measure=False, target=target)
    estimate = recompose(inputs)
    if isinstance(estimate, IncompleteEstimate):
        raise ModelError(
            f"{model.name} on {target.system.name}: {len(estimate.gaps)} bricks are neither"
            " measured nor can they be predicted: leave out --no-measure, or measure more there"
        )
    size = inputs.plan.inferences if batch is None else batch
    return size, training_step(model, inputs, estimate)


def copy_rule(workspace: Workspace) -> StopRule:
    """The stop rule of copies: a few rounds, or fewer for a lower precision of the workspace."""
    asked = workspace.options.conditions.rule.precision
    if asked <= _COPY_RULE.precision:
        return _COPY_RULE
    return replace(_COPY_RULE, precision=asked, min_rounds=3, max_rounds=3)


def copy_times(workspace: Workspace, target: Target) -> CopyTimes:
    """Costs of copies and of DDP on ``target``.

    If DDP was not measured, a gradient takes two copies, without a fixed cost.
    """
    known = [_copy_s(workspace, target, brick) for brick in copy_bricks()]
    copies = by_size(zip(SIZES, (copy_s for copy_s, _ in known), strict=True))
    keys = [brick.key for brick in ddp_bricks()]
    results = workspace.known.measurements.results(target.key, keys)
    measured = [results.get(key) for key in keys]
    added = [round_spread(result) for result in measured if isinstance(result, Measurement)]
    if len(added) == len(measured):
        return CopyTimes(copies, *ddp_times(added), measured=all(sure for _, sure in known))
    twice = copies.map(lambda copy_s: copy_s.scaled(2.0))
    return CopyTimes(copies, Interval.exact(0.0), twice, measured=False)


def _copy_s(workspace: Workspace, target: Target, brick: Brick) -> tuple[Interval, bool]:
    """Seconds of a copy without call overhead, and whether it was measured."""
    isolated = isolated_decomposition(brick, str(workspace.granularity))
    workspace.plans.know(isolated.bricks)
    plan = isolated.plan
    estimate = predict_plan(workspace, plan, target=target)
    if isinstance(estimate, IncompleteEstimate):
        raise ModelError(
            f"copies of gradients are neither measured on {target.system.name} nor can they be"
            " predicted: leave out --no-measure, or scale there"
        )
    count, call_s = len(plan.occurrences), estimate.call_overhead_s
    whole_s = estimate.latency_s
    return whole_s.map(lambda s: max(0.0, s - call_s) / count), not estimate.predicted_share


def by_size(times_s: Iterable[tuple[int, Interval]]) -> Curve:
    """Seconds over bytes: constant below the first size, proportional beyond the last."""
    return Curve.through(
        times_s, below=Extrapolation.CONSTANT, above=Extrapolation.PROPORTIONAL, widens=False
    )


@dataclass(frozen=True, slots=True)
class CopyTimes:
    """Seconds of moving gradients within a rank.

    ``copies_s`` are plain copies by bytes, ``ddp_step_s`` is the fixed cost of DDP in a step, and
    ``ddp_gradients_s`` its cost of a gradient by bytes, copied into a bucket and back.
    """

    copies_s: Curve
    ddp_step_s: Interval
    ddp_gradients_s: Curve
    measured: bool = True


@cache
def copy_bricks() -> tuple[Brick, ...]:
    """A brick for each of :data:`SIZES`: a tensor is copied into another."""
    return tuple(_copy(size_bytes // _FLOAT) for size_bytes in SIZES)


@cache
def ddp_bricks() -> tuple[Brick, ...]:
    """A brick for the time that DDP adds to a step of each of :data:`PROGRAMS`."""
    return tuple(_added(*program) for program in PROGRAMS)


def ddp_times(added_s: Sequence[Interval]) -> tuple[Interval, Curve]:
    """The fixed cost of DDP in a step, and its cost of a gradient by bytes; at least 0.

    ``added_s`` are the latencies of :func:`ddp_bricks`, whose errors are independent.
    """
    counts, sizes = zip(*PROGRAMS, strict=True)
    each_s = (added_s[1].value - added_s[0].value) / (counts[1] - counts[0])
    once_s = max(0.0, added_s[0].value - counts[0] * each_s)
    times_s = [
        Interval.around((one_s.value - once_s) / count, one_s.half_width / count).at_least(0.0)
        for one_s, count in zip(added_s[1:], counts[1:], strict=True)
    ]
    step_s = Interval.around(once_s, added_s[0].half_width).at_least(0.0)
    return step_s, by_size(zip(sizes[1:], times_s, strict=True))


def _added(gradients: int, size_bytes: int) -> Brick:
    arguments = [gradients, size_bytes // _FLOAT]
    node = Call(REPLICATED, "step", (arguments, {})).node([], ["y"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    return _brick(helper.make_graph([node], "steps", [], [y]), REPLICATED)


def _copy(count: int) -> Brick:
    node = Call("aten", "copy_", ([{"t": 0}, {"t": 1}], {}), aliases=(0,)).node(["to", "x"], ["y"])
    to, x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("to", "x", "y")
    )
    graph = helper.make_graph([node], "copy", [to, x], [y])
    return _brick(graph, "aten")


def _brick(graph: onnx.GraphProto, namespace: str) -> Brick:
    opsets = [helper.make_opsetid(DOMAIN + namespace, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    return Cutter(graph_of(model)).cut((0,)).brick
