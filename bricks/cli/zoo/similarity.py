"""``bricks zoo similarity``: which models are made of the same bricks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.cli.command import command
from bricks.cli.options import SurveyOptions
from bricks.cli.output import finish, print_json, show
from bricks.cli.reading import read_all
from bricks.cli.workspaces import open_workspace
from bricks.cli.zoo.plans import plans_of, rows_of
from bricks.sources import Unread
from bricks.studies.options import option
from bricks.zoo import entries

if TYPE_CHECKING:
    from bricks.analysis.similarity import Similarity
    from bricks.graph.model import Model

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

    _check_picture(picture.out)
    with open_workspace(options) as workspace:
        models = read_all(options).models
        plans = plans_of(workspace, models)
        runtime = workspace.runtime
    result = similarity_of([plan for plan in plans if not isinstance(plan, Unread)])
    if picture.out is not None and result.models:
        about = f"{runtime.backend} {runtime.version}, granularity {options.runtime.granularity}"
        _draw(result, picture.out, about, _tasks(models))
    rows = rows_of(plans, _rows(result), _nothing)
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
        _show(result)
    finish(row["error"] for row in rows if row["error"] is not None)


def _check_picture(out: Path | None) -> None:
    if out is not None:
        from bricks.report.heatmap import check_picture

        check_picture(out)


def _draw(result: Similarity, out: Path, about: str, tasks: Mapping[str, str]) -> None:
    from bricks.report.heatmap import draw_similarity

    title = f"Bricks that {len(result.models)} models share ({about})"
    draw_similarity(result, out, title=title, kinds=tasks)


def _show(result: Similarity) -> None:
    from bricks.report.models import nearest_table, similarity_table

    rows = _rows(result)
    few = len(rows) <= _WIDEST_GRID
    show(similarity_table(rows, result.grid) if few else nearest_table(rows))


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
    """Tasks of the models that are in the zoo, by model name."""
    zoo = {(entry.name, entry.path.parent.resolve()): entry.task for entry in entries()}
    return {
        model.name: task
        for model in models
        if not isinstance(model, Unread)
        and (task := zoo.get((model.name, model.folder.resolve()))) is not None
    }
