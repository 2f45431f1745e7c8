"""``bricks advise``: which of the known systems keeps a latency, and what that costs."""

from __future__ import annotations

from typing import Annotated

import typer

from bricks.cli import completion
from bricks.cli.options import Surveying, takes_options
from bricks.errors import UsageError

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
    serving = {"--qps": qps, "--percentile": percentile, "--batching": batching}
    if runtimes is not None:
        from bricks.cli.runtime_advice import advise_runtimes

        others = {"--slo": slo, "--batches": batches, "--scenario": scenario, **serving}
        if needless := [option for option, value in others.items() if value is not None]:
            raise UsageError(
                f"--runtimes compares latencies alone: leave out {' and '.join(needless)}"
            )
        return advise_runtimes(options, runtimes, system or [])
    if slo is None:
        raise UsageError("a latency is to be kept: add --slo 20ms")
    if scenario is not None:
        from bricks.cli.serving_advice import Wanted, advise_server

        wanted = Wanted(scenario, slo, qps, percentile, batching)
        return advise_server(options, system or [], wanted, batches)
    for option, given in serving.items():
        if given is not None:
            raise UsageError(f"{option} is for a server: add --scenario server")
    from bricks.cli.latency_advice import advise_latencies

    advise_latencies(options, system or [], slo, batches)
