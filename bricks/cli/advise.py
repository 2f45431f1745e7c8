"""``bricks advise``: which of the known systems keeps a latency, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.known import refuse_missing
from bricks.cli.options import (
    Surveying,
    decomposed,
    open_workspace,
    read_all,
    takes_options,
)
from bricks.cli.output import finish, print_json, show
from bricks.cli.predict import PROVENANCE
from bricks.cli.remedies import Remedies, width_of
from bricks.cli.systems import known_targets
from bricks.errors import BricksError, UsageError
from bricks.graph.sizes import LARGEST_DIM
from bricks.sources import Unread
from bricks.units.quantities import seconds_of, whole_numbers_of

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.report.wide import ShownEstimate
    from bricks.session.workspace import Workspace
    from bricks.system.target import Target

Slo = Annotated[
    str | None,
    typer.Option(metavar="20ms", help="The latency to keep: in us, ms or s.", show_default=False),
]
Systems = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        autocompletion=completion.systems,
        help="Only this system; may be repeated.",
    ),
]
Batches = Annotated[
    str | None,
    typer.Option(metavar="1,4,8", help="Batch sizes to look at, instead of the model's."),
]


Runtimes = Annotated[
    str | None,
    typer.Option(
        metavar="onnxruntime,openvino",
        help="Tell which of these runtimes is the fastest, and how sure that is.",
        show_default=False,
    ),
]

_SERVING = "Serving"

Scenario = Annotated[
    str | None,
    typer.Option(
        metavar="server",
        help="Advice for a server that keeps the bound at a rate; see 'bricks scenario'.",
        show_default=False,
        rich_help_panel=_SERVING,
    ),
]
Qps = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Samples a second, which arrive as a Poisson process.",
        show_default=False,
        rich_help_panel=_SERVING,
    ),
]
Percentile = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="The percentile of the latencies that keeps the bound.",
        show_default="99",
        rich_help_panel=_SERVING,
    ),
]
Batching = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Largest batch to look at.",
        show_default="8",
        rich_help_panel=_SERVING,
    ),
]


@takes_options
def advise(
    options: Surveying,
    slo: Slo = None,
    runtimes: Runtimes = None,
    system: Systems = None,
    batches: Batches = None,
    scenario: Scenario = None,
    qps: Qps = None,
    percentile: Percentile = None,
    batching: Batching = None,
) -> None:
    """Tell on which known systems models keep a latency, how sure that is, and what it costs.

    Of models named, on all systems of the cache and all published ones; without any, of the whole
    zoo. Nothing is timed; bricks that a system has not measured are predicted. Prices are those of
    'bricks systems set'. With --scenario server: instances, batches and hosts that keep the latency
    at a rate. With --runtimes: the fastest runtime for each model, on this host or --system; one
    that is not installed counts where it was measured. Example: bricks advise resnet50 --slo 20ms
    """
    from bricks.compose.advice import PROMISE

    if runtimes is not None:
        from bricks.cli.runtime_advice import advise_runtimes

        others = {
            "--slo": slo,
            "--batches": batches,
            "--scenario": scenario,
            "--qps": qps,
            "--percentile": percentile,
            "--batching": batching,
        }
        if needless := [option for option, value in others.items() if value is not None]:
            raise UsageError(
                f"--runtimes compares latencies alone: leave out {' and '.join(needless)}"
            )
        advise_runtimes(options, runtimes, system or [])
        return
    if slo is None:
        raise UsageError("a latency is to be kept: add --slo 20ms")
    if scenario is not None:
        from bricks.cli.serving_advice import Wanted, advise_server

        wanted = Wanted(scenario, slo, qps, percentile, batching)
        advise_server(options, system or [], wanted, batches)
        return
    for option, given in (("--qps", qps), ("--percentile", percentile), ("--batching", batching)):
        if given is not None:
            raise UsageError(f"{option} is for a server: add --scenario server")
    slo_s, sizes = seconds_of("--slo", slo), _sizes(batches, options)
    refuse_missing(options.cache)
    answers: list[tuple[dict[str, Any], ShownEstimate | None]] = []
    with open_workspace(options) as workspace:
        targets = list(known_targets(workspace, system or []))
        for size in sizes:
            sized, words = replace(options, batch=size), dict[str, str]()
            models = decomposed(workspace, read_all(sized, words=words))
            places = [(t, Remedies.on(t, workspace.target, "advise", sized)) for t in targets]
            for model in models:
                answers += [
                    _row(workspace, model, target, slo_s, remedies, words)
                    for target, remedies in places
                ]
    answers.sort(key=lambda answer: _order(answer[0]))
    rows = [row for row, _ in answers]
    if options.json:
        print_json({"slo_s": slo_s, "promise": PROMISE, "answers": rows})
    else:
        from bricks.report.tables import advice_table
        from bricks.report.wide import wide_lines

        told = [row for row in rows if row["error"] is None]
        if told:
            show(advice_table(told))
            show(*wide_lines([shown for _, shown in answers if shown is not None]))
    finish(row["error"] for row in rows if row["error"] is not None)


def _sizes(text: str | None, options: Surveying) -> list[int | None]:
    if text is None:
        return [options.batch]
    if options.batch is not None:
        raise UsageError("--batch and --batches are both given: leave one out")
    sizes = whole_numbers_of("--batches", text, LARGEST_DIM, "batch sizes")
    return [*sizes]


def _row(
    workspace: Workspace,
    model: Model | Unread,
    target: Target,
    slo_s: float,
    remedies: Remedies,
    words: Mapping[str, str],
) -> tuple[dict[str, Any], ShownEstimate | None]:
    """The facts of a model on a target, and its estimate if there is one."""
    from bricks.analysis.answers import NoAnswer, answer
    from bricks.compose.advice import PROMISE, risk

    figures, size = ("estimate_s", "low_s", "high_s", *PROVENANCE), remedies.options.batch
    row: dict[str, Any] = {
        "model": model.name,
        "batch": size,
        "system": target.system.name,
        "system_key": target.system.key,
        "threads": target.runtime.threads,
        "runtime_version": target.runtime.version,
        **dict.fromkeys((*figures, "risk", "keeps", "cost_per_million")),
        "error": None,
        **width_of(None),
    }
    if isinstance(model, Unread):
        return {**row, "error": model.error}, None
    try:
        told = answer(workspace, workspace.plans.plan(model, target=target), target, batch=size)
    except BricksError as error:
        return {**row, "error": str(error)}, None
    if isinstance(told, NoAnswer):
        return {**row, "error": told.reason}, None
    found = told.estimate
    late = risk(found, slo_s)
    sized = "" if size is None else f", batch {size}"
    threads = f"{target.runtime.threads} {'thread' if target.runtime.threads == 1 else 'threads'}"
    title = f"{model.name} on {target.system.name} with {threads}{sized}"
    shown = remedies.shown(title, found, words[model.digest])
    return {
        **row,
        **{name: getattr(found, name) for name in figures},
        "risk": late,
        "keeps": late <= PROMISE,
        "cost_per_million": told.cost_per_million,
        **width_of(shown),
    }, shown


def _order(row: dict[str, Any]) -> tuple[Any, ...]:
    """The best first: systems that keep the latency, by cost if that is known, and by latency."""
    cost, estimate_s = row["cost_per_million"], row["estimate_s"]
    return (
        row["model"],
        row["error"] is not None,
        not row["keeps"],
        cost is None,
        cost or 0.0,
        estimate_s or 0.0,
        row["system"],
        row["threads"],
    )
