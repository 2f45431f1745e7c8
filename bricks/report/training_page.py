"""The loss curves of a training as one self-contained HTML file; see :mod:`bricks.report.page`.

Must not compute results, except means of neighbouring losses where there are too many.
"""

from __future__ import annotations

from typing import Any

from bricks.errors import printable
from bricks.report.answers.training import training_answer
from bricks.report.columns import cells_of
from bricks.report.figures import target_text
from bricks.report.page import in_script, render_page, script
from bricks.report.training import COLUMNS
from bricks.studies.training.result import TrainingFailure, TrainingResult

# Points of a curve: more than a screen has columns would only enlarge the page.
_MAX_POINTS = 500


def training_page(result: TrainingResult, *, version: str, made: str) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation."""
    from bricks.report.charts import losses

    window = max((-(-run.steps // _MAX_POINTS) for run in result.runs), default=1)
    rows = [row for run in result.runs for row in _curve(run.seed, run.losses, window)]
    return render_page(
        "training",
        answer=training_answer(result),
        title=printable(result.workload),
        until=result.until,
        where=target_text(result.target),
        runs=cells_of(result.runs, COLUMNS),
        failures=[f.error for f in result.trainings if isinstance(f, TrainingFailure)],
        window=window,
        version=version,
        made=made,
        data=in_script({"rows": rows}),
        specs=in_script({"losses": losses()}),
        script=script("curves"),
    )  # fmt: skip


def _curve(seed: int, losses: tuple[float, ...], window: int) -> list[dict[str, Any]]:
    """Mean losses of every ``window`` steps, at the last step of each."""
    return [
        {
            "seed": f"seed {seed}",
            "step": min(start + window, len(losses)),
            "loss": float(f"{sum(part) / len(part):.4g}"),
        }
        for start in range(0, len(losses), window)
        for part in [losses[start : start + window]]
    ]
