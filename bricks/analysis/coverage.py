"""Coverage: the measured share of each model, and the cost of measuring the rest.

Models are counted in the order given: a missing brick of several models is counted in the cost of
the first. Nothing is measured. Must not know how measurements came about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.errors import CacheDamaged
from bricks.predict.cost import CostModel, fit
from bricks.samples.call_overhead import ALL_PROBES, PROBES
from bricks.samples.measurement import Failure, Measurement

if TYPE_CHECKING:
    from bricks.compose.basis import Results
    from bricks.decompose.plan import Brick, Plan
    from bricks.session.workspace import Workspace
    from bricks.store import Reading
    from bricks.system import Target
    from bricks.units.interval import Interval


@dataclass(frozen=True, slots=True)
class Coverage:
    """The coverage of one model, or of several, on one target.

    ``bricks`` are unique; of them, ``measured`` have a measurement, ``failed`` cannot have one, and
    ``missing`` (keys, in order) have none yet. ``share`` is the part of the occurrences whose brick
    is measured; ``flops_share`` and ``bytes_share`` are the measured parts of the operations, and
    of the bytes read and written, of all occurrences: None if these are unknown for one occurrence,
    or zero in total. ``complete`` says that the measurements suffice for an estimate. ``cost_s`` is
    the cost of measuring all missing bricks; None if too few are measured to predict it.
    """

    bricks: int
    measured: int
    failed: int
    missing: tuple[str, ...]
    occurrences: int
    share: float
    flops_share: float | None
    bytes_share: float | None
    complete: bool
    cost_s: Interval | None


@dataclass(frozen=True, slots=True)
class Covered:
    """One model's coverage; ``new`` are the missing bricks that no model before it needs.

    ``marginal_s`` is the cost of measuring those after the bricks of the models before it.
    """

    model: str
    coverage: Coverage
    new: tuple[str, ...]
    marginal_s: Interval | None


@dataclass(frozen=True, slots=True)
class ZooCoverage:
    """The coverage of models, one by one in their order, and of all together."""

    models: tuple[Covered, ...]
    together: Coverage
    cost_model: CostModel | None


def count_coverage(
    plans: Sequence[Plan],
    bricks: Mapping[str, Brick],
    results: Results,
    cost_model: CostModel | None,
) -> ZooCoverage:
    """The coverage of ``plans``, whose ``bricks`` and ``results`` (probes included) go by key.

    ``cost_model`` is that of the target of the results; measurements in other machine states count
    too, although a campaign may repeat them.
    """
    models: list[Covered] = []
    before: set[str] = set()
    for plan in plans:
        own = _coverage([plan], bricks, results, cost_model)
        new = tuple(key for key in own.missing if key not in before)
        before |= set(own.missing)
        models.append(Covered(plan.model, own, new, _cost(new, bricks, cost_model)))
    return ZooCoverage(tuple(models), _coverage(plans, bricks, results, cost_model), cost_model)


def _coverage(
    plans: Sequence[Plan],
    bricks: Mapping[str, Brick],
    results: Results,
    cost_model: CostModel | None,
) -> Coverage:
    keys = list(dict.fromkeys(key for plan in plans for key in plan.keys))
    placed = [o.brick for plan in plans for o in plan.occurrences]
    measured = {key for key in keys if isinstance(results.get(key), Measurement)}
    failed = sum(isinstance(results.get(key), Failure) for key in keys)
    missing = tuple(key for key in keys if key not in results)
    probed = all(isinstance(results.get(key), Measurement) for key in PROBES.values())
    return Coverage(
        bricks=len(keys),
        measured=len(measured),
        failed=failed,
        missing=missing,
        occurrences=len(placed),
        share=sum(key in measured for key in placed) / max(1, len(placed)),
        flops_share=_share((key in measured, bricks[key].flops) for key in placed),
        bytes_share=_share((key in measured, bricks[key].bytes_moved) for key in placed),
        complete=probed and len(measured) == len(keys),
        cost_s=_cost(missing, bricks, cost_model),
    )


def _share(parts: Iterable[tuple[bool, int | None]]) -> float | None:
    done = total = 0
    for measured, work in parts:
        if work is None:
            return None
        total += work
        done += work if measured else 0
    return done / total if total else None


def _cost(
    keys: Sequence[str], bricks: Mapping[str, Brick], cost_model: CostModel | None
) -> Interval | None:
    return None if cost_model is None else cost_model.cost_s(bricks[key] for key in keys)


def coverage(
    workspace: Workspace, plans: Sequence[Plan], *, target: Target | None = None
) -> ZooCoverage:
    """The coverage of ``plans`` by measurements on ``target``, by default this workspace's.

    Nothing is measured. The plans are those of the cache for the target.
    """
    target = workspace.target if target is None else target
    keys = list(dict.fromkeys(key for plan in plans for key in plan.keys))
    # Of this host the user's own measurements count, of others all that is known.
    here = target.key == workspace.target.key
    source: Reading = workspace.store if here else workspace.known
    results = source.measurements.results(target.key, [*keys, *ALL_PROBES])
    bricks = source.plans.load_bricks(keys)
    for key in keys:
        if key not in bricks:
            raise CacheDamaged(
                f"the cache {workspace.store.path} lacks {key}, which a plan names:"
                " run 'bricks cache verify'"
            )
    return count_coverage(plans, bricks, results, cost_model(workspace, target))


def cost_model(workspace: Workspace, target: Target | None = None) -> CostModel | None:
    """The model of measuring costs on ``target``; None while too little is measured there."""
    costs = workspace.store.measurements.costs((workspace.target if target is None else target).key)
    bricks = workspace.store.plans.load_bricks(list(costs))  # omits models and probes
    return fit([(brick, costs[key]) for key, brick in bricks.items()])
