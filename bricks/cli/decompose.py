"""``bricks decompose``: the bricks of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import CommonOptions, DetailOptions
from bricks.cli.output import finish, print_json, show_answer
from bricks.cli.reading import DecomposedModel, decompositions, read_all, warn_of_denormals
from bricks.cli.workspaces import open_workspace
from bricks.errors import BricksError
from bricks.sources import Unread
from bricks.studies.options import option

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """Whether the chained bricks are run and compared with the model."""

    verify: bool = option("Chain the bricks and compare outputs with the model's.", default=False)


@command
def decompose(options: CommonOptions, checks: VerifyOptions, detail: DetailOptions) -> None:
    """Split models into bricks, and count how many of them are unique.

    Example: bricks decompose resnet50 densenet121 --verify
    """
    from bricks.report.models import decomposition_answer

    with open_workspace(options) as workspace:
        results = list(decompositions(workspace, read_all(options).models))
        rows = [_row(workspace, result, checks.verify) for result in results]
    decomposed = [of.decomposition for of in results if isinstance(of, DecomposedModel)]
    union = {**_counts(decomposed), "models": len(decomposed)}
    answer = decomposition_answer(rows, union)
    if options.general.json:
        print_json({"answer": answer, "models": rows, "union": union})
    elif decomposed:
        from bricks.report.models import decomposition_table

        verdicts = [_verdict(row) for row in rows if row.get("exact") is not None]
        assumed = [f"{row['model']}: {line}" for row in rows for line in row["assumed"]]
        table = decomposition_table(rows, union)
        show_answer(answer, table, *verdicts, remarks=assumed, every=detail.every)
    finish(row["error"] for row in rows if row["error"] is not None)


def _row(workspace: Workspace, result: DecomposedModel | Unread, verify: bool) -> dict[str, Any]:
    """The JSON object of a model; with ``verify``, how far the chained bricks differ from it."""
    unknown = dict.fromkeys(("exact", "max_abs_difference")) if verify else {}
    rest: dict[str, Any] = {"assumed": [], "denormal_share": None}
    if isinstance(result, Unread):
        names = ("nodes", "bricks", "occurrences", "unique_share", "flops", "weight_bytes")
        counts = dict.fromkeys(names)
        return {"model": result.name, **counts, **unknown, **rest, "error": result.error}
    model, decomposition = result.model, result.decomposition
    facts = {"model": model.name, **_counts([decomposition]), **unknown, **rest, "error": None}
    # Imported here, so that the other commands need not import it.
    from bricks.graph.model_metadata import known_values
    from bricks.graph.view import graph_of, parse_model
    from bricks.operators.integer_ranges import assumptions

    proto = parse_model(model.skeleton)
    lines = assumptions(graph_of(proto), specified=known_values(proto).keys())
    facts["assumed"] = [*lines, *decomposition.plan.assumed]
    facts["denormal_share"] = warn_of_denormals(model)
    if verify:
        try:
            facts |= _verified(workspace, model)
        except BricksError as error:
            facts["error"] = str(error)
    return facts


def _verified(workspace: Workspace, model: Model) -> dict[str, Any]:
    from bricks.session import whole_models

    result = whole_models.verify(workspace, model)
    relative = result.difference.max_rel
    error = None
    if not result.difference.within_tolerance:
        distance = "in kind" if relative is None else f"by {relative:.1e} of the greatest value"
        error = f"{model.name}: the chained bricks differ from the whole model {distance}"
    elif not result.difference.finite:
        error = f"{model.name}: outputs hold no finite number, so equality proves nothing"
    return {**result.to_json(), "error": error}


def _counts(decompositions: list[Decomposition]) -> dict[str, Any]:
    """Counts over one or more models; FLOPs and weights count every occurrence, net."""
    bricks: dict[str, Brick] = {}
    occurrences: list[tuple[int, Brick]] = []
    for decomposition in decompositions:
        bricks.update(decomposition.bricks)
        occurrences += [
            (o.sign, decomposition.bricks[o.brick]) for o in decomposition.plan.occurrences
        ]
    flops = [(times, brick.flops) for times, brick in occurrences]
    known = [times * count for times, count in flops if count is not None]
    return {
        "nodes": sum(d.plan.nodes for d in decompositions),
        "bricks": len(bricks),
        "occurrences": len(occurrences),
        "unique_share": len(bricks) / len(occurrences) if occurrences else None,
        "flops": sum(known) if len(known) == len(flops) else None,
        "weight_bytes": sum(times * brick.weight_bytes for times, brick in occurrences),
    }


def _verdict(facts: dict[str, Any]) -> str:
    weights = "its own" if facts["own_weights"] else "synthetic"
    form = "the model" if facts["optimised"] else "the model as it is written, not optimised,"
    if facts["exact"]:
        return f"{facts['model']}: chained bricks equal {form} bit by bit ({weights} weights)"
    difference = facts["max_abs_difference"]
    shown = "unknown" if difference is None else f"{difference:.1e}"
    return (
        f"{facts['model']}: chained bricks differ from {form} by at most {shown}"
        f" ({weights} weights)"
    )
