"""``bricks zoo similarity`` and ``coverage``: bricks that models share, and that are measured.

A model without a plan doesn't stop the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import SurveyOptions, SystemOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import decomposed, read_all
from bricks.cli.workspaces import open_workspace, target_facts
from bricks.errors import BricksError
from bricks.session.targets import target_called
from bricks.sources import Unread
from bricks.studies.options import option
from bricks.zoo import entries

if TYPE_CHECKING:
    from bricks.analysis.coverage import Coverage, Covered
    from bricks.analysis.similarity import Similarity
    from bricks.decompose.plan import Plan
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target
    from bricks.units.interval import Interval

# A grid of more models is wider than a terminal.
_WIDEST_GRID = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureOptions:
    """The file of the picture; None: it is not drawn."""

    out: Path | None = option(
        "Draw the grid into this file.", default=None, metavar="PICTURE.svg|.png"
    )


@command
def similarity(options: SurveyOptions, picture: PictureOptions) -> None:
    """Compare the sets of bricks of every two models: bricks in both, of the bricks in either.

    Example: bricks zoo similarity --out similarity.svg
    """
    from bricks.analysis.similarity import similarity as similarity_of

    if picture.out is not None:
        from bricks.report.plots import check_picture

        check_picture(picture.out)
    with open_workspace(options) as workspace:
        models = read_all(options).models
        plans = plans_of(workspace, models)
        runtime = workspace.runtime
    result = similarity_of([plan for plan in plans if not isinstance(plan, Unread)])
    if picture.out is not None and result.models:
        about = f"{runtime.backend} {runtime.version}, granularity {options.runtime.granularity}"
        from bricks.report.plots import draw_similarity

        title = f"Bricks that {len(result.models)} models share ({about})"
        draw_similarity(result, picture.out, title=title, kinds=_tasks(models))
    known = _rows(result)
    rows = rows_of(plans, known, _nothing)
    if options.general.json:
        print_json(
            {
                "runtime": runtime.to_json(),
                "granularity": options.runtime.granularity,
                "models": rows,
                "grid": {"models": list(result.models), "similarity": list(map(list, result.grid))},
            }
        )
    elif result.models:
        from bricks.report.models import nearest_table, similarity_table

        few = len(known) <= _WIDEST_GRID
        show(similarity_table(known, result.grid) if few else nearest_table(known))
    finish(row["error"] for row in rows if row["error"] is not None)


def _rows(result: Similarity) -> list[dict[str, Any]]:
    return [
        {
            "model": name,
            "bricks": result.bricks[i],
            "shared": result.shared[i],
            "nearest": [
                {"model": result.models[j], "similarity": index}
                for j, index in result.nearest(i)[:5]
            ],
            "error": None,
        }
        for i, name in enumerate(result.models)
    ]


def _nothing(name: str) -> dict[str, Any]:
    return {"model": name, "bricks": None, "shared": None, "nearest": []}


def _tasks(models: Sequence[Model | Unread]) -> dict[str, str]:
    zoo = {(entry.name, entry.path.parent.resolve()): entry.task for entry in entries()}
    return {
        model.name: task
        for model in models
        if not isinstance(model, Unread)
        and (task := zoo.get((model.name, model.folder.resolve()))) is not None
    }


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
    rows = rows_of(plans, map(_row, result.models), _uncovered)
    union = {"models": len(result.models), **_facts(result.together)}
    of = result.cost_model
    cost_model = None
    if of is not None:
        cost_model = {"bricks": len(of.outcomes), "median_abs_error": of.median_abs_error}
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


def _uncovered(name: str) -> dict[str, Any]:
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


def plans_of(
    workspace: Workspace, models: Sequence[Model | Unread], target: Target | None = None
) -> list[Plan | Unread]:
    """The plan of each model on ``target``, or the reason why there is none.

    None is the target of the workspace.
    """
    if target is None or target.key == workspace.target.key:
        decomposed(workspace, models)
    plans: list[Plan | Unread] = []
    for model in models:
        if isinstance(model, Unread):
            plans.append(model)
            continue
        try:
            plans.append(workspace.plans.plan(model, target=target))
        except BricksError as error:
            plans.append(Unread(model.name, error))
    return plans


def rows_of(
    plans: Sequence[Plan | Unread],
    rows: Iterable[dict[str, Any]],
    nothing: Callable[[str], dict[str, Any]],
) -> list[dict[str, Any]]:
    """JSON objects in the order of ``plans``: the next of ``rows`` for each plan.

    For a model without a plan, ``nothing`` of its name, with the error.
    """
    position = iter(rows)
    return [
        {**nothing(plan.name), "error": plan.error} if isinstance(plan, Unread) else next(position)
        for plan in plans
    ]
