"""``bricks measure``: measure what the cache lacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bricks.cli.options import Measuring, Unread, open_bench, read_all, takes_options
from bricks.cli.output import finish, print_json, show
from bricks.errors import BricksError

if TYPE_CHECKING:
    from bricks.bench import Bench, Measured
    from bricks.graph.model import Model


@takes_options
def measure(
    options: Measuring,
) -> None:
    """Measure the bricks of models, each once per system and runtime.

    What the cache holds is not measured again. Example: bricks measure models/ --threads 1
    """
    rows: list[dict[str, Any]] = []
    with open_bench(options) as bench:
        good: list[Model] = []
        for model in read_all(options):
            row = _row(bench, model)
            rows.append(row)
            if row["error"] is None and not isinstance(model, Unread):
                good.append(model)
        done = bench.measure(good)
        facts = {
            "system": bench.target.system.to_json(),
            "runtime": bench.runtime.to_json(),
            "granularity": options.granularity,
            "models": rows,
            **_totals(done),
        }
        failed = _failed(bench, done)
    errors = [row["error"] for row in rows if row["error"] is not None]
    errors += failed
    if done.unfinished:
        errors.append(
            f"the budget of {options.budget} s ended with {done.unfinished} bricks unfinished:"
            " run the same command again to go on"
        )
    if options.json:
        print_json(facts)
    elif done.models:
        show(
            f"{done.new_bricks} bricks measured, {done.bricks - done.new_bricks} were not measured"
            f" again; {done.bricks} bricks stand for {done.occurrences} occurrences in"
            f" {done.models} models ({done.wall_s:.1f} s)"
        )
    finish(errors)


def _row(bench: Bench, model: Model | Unread) -> dict[str, Any]:
    row: dict[str, Any] = {"model": model.name, "bricks": None, "occurrences": None, "error": None}
    if isinstance(model, Unread):
        return {**row, "error": model.error}
    try:
        plan = bench.decompose(model).plan
    except BricksError as error:
        return {**row, "error": str(error)}
    return {**row, "bricks": len(plan.keys), "occurrences": len(plan.occurrences)}


def _failed(bench: Bench, done: Measured) -> list[str]:
    """A line for each brick that could not be measured."""
    bricks = bench.store.load_bricks([failure.key for failure in done.failures])
    return [
        f"brick {f.key} ({', '.join(bricks[f.key].operators)}) could not be measured: {f.reason};"
        " --retry tries again"
        for f in done.failures
    ]


def _totals(done: Measured) -> dict[str, Any]:
    return {
        "occurrences": done.occurrences,
        "bricks": done.bricks,
        "new_bricks": done.new_bricks,
        "unfinished": done.unfinished,
        "failures": [{"brick": f.key, "reason": f.reason} for f in done.failures],
        "wall_s": done.wall_s,
    }
