"""``bricks zoo coverage``: how much of each model is measured, and the cost of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import SurveyOptions, SystemOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import read_all
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.cli.zoo.plans import plans_of, rows_of
from bricks.session.targets import target_called
from bricks.sources import Unread

if TYPE_CHECKING:
    from bricks.analysis.coverage import Coverage, Covered
    from bricks.predict.cost import CostModel
    from bricks.units.interval import Interval


@command
def coverage(options: SurveyOptions, asked: SystemOptions) -> None:
    """Tell which models are covered by what is measured, and what measuring the others would take.

    Nothing is measured. A brick that several models lack adds its cost to the first of them.
    Example: bricks zoo coverage resnet50 my_model.onnx
    """
    from bricks.analysis.coverage import coverage as coverage_of

    with open_workspace(options) as workspace:
        target = workspace.target
        if asked.system is not None:
            target = target_called(workspace, asked.system)
        plans = plans_of(workspace, read_all(options).models, target)
        result = coverage_of(
            workspace, [p for p in plans if not isinstance(p, Unread)], target=target
        )
    rows = rows_of(plans, map(_row, result.models), _nothing)
    union = {"models": len(result.models), **_facts(result.together)}
    cost_model = _cost_model(result.cost_model)
    if options.general.json:
        totals = {"models": rows, "union": union, "cost_model": cost_model}
        print_json(target_facts(target, options) | totals)
    elif result.models:
        from bricks.report.models import coverage_table

        show(coverage_table(rows, union), *_words(cost_model, union))
    finish(row["error"] for row in rows if row["error"] is not None)


def _row(covered: Covered) -> dict[str, Any]:
    return {
        "model": covered.model,
        **_facts(covered.coverage),
        "new": list(covered.new),
        **_seconds("marginal", covered.marginal_s),
        "error": None,
    }


def _facts(coverage: Coverage) -> dict[str, Any]:
    return {
        "bricks": coverage.bricks,
        "measured": coverage.measured,
        "failed": coverage.failed,
        "missing": list(coverage.missing),
        "occurrences": coverage.occurrences,
        "coverage": coverage.share,
        "flops_share": coverage.flops_share,
        "bytes_share": coverage.bytes_share,
        "complete": coverage.complete,
        **_seconds("cost", coverage.cost_s),
    }


def _nothing(name: str) -> dict[str, Any]:
    counts = dict.fromkeys(("bricks", "measured", "failed", "occurrences"))
    shares = dict.fromkeys(("coverage", "flops_share", "bytes_share"))
    costs = {**_seconds("cost", None), **_seconds("marginal", None)}
    return {"model": name, **counts, **shares, **costs, "missing": [], "new": [], "complete": False}


def _seconds(name: str, cost_s: Interval | None) -> dict[str, float | None]:
    return {
        f"{name}_s": None if cost_s is None else cost_s.value,
        f"{name}_low_s": None if cost_s is None else cost_s.low,
        f"{name}_high_s": None if cost_s is None else cost_s.high,
    }


def _cost_model(model: CostModel | None) -> dict[str, Any] | None:
    if model is None:
        return None
    return {"bricks": len(model.outcomes), "median_abs_error": model.median_abs_error}


def _words(cost_model: dict[str, Any] | None, union: dict[str, Any]) -> list[str]:
    if not union["missing"]:
        return []
    from bricks.report.tables import percent, seconds

    if cost_model is None:
        from bricks.predict.cost import MIN

        return [
            f"What measuring would take cannot be told: fewer than {MIN} bricks are measured"
            " on this system."
        ]
    low, high = seconds(union["cost_low_s"]), seconds(union["cost_high_s"])
    error = percent(cost_model["median_abs_error"], 0)
    return [
        f"Measuring all that lacks takes {seconds(union['cost_s'])}, by what measuring"
        f" {cost_model['bricks']} bricks took: about {low} to {high}, for estimates of parts of"
        f" these from the rest were {error} off in the median."
    ]
