"""``bricks scenario``: latency under load and throughput of a served model, from its bricks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bricks.cli import completion
from bricks.cli.options import (
    Cache,
    EffortName,
    GranularityText,
    Json,
    Measuring,
    Optimization,
    Precision,
    RuntimeName,
    Seed,
    Shapes,
    Threads,
    Timeout,
    Values,
    open_bench,
)
from bricks.cli.output import print_json, show
from bricks.cli.predict import NoMeasure
from bricks.cli.scenario_facts import facts_of
from bricks.cli.systems import SystemName
from bricks.cli.verbosity import Quiet, Verbose
from bricks.errors import UsageError, suggestion
from bricks.session.defaults import (
    CACHE,
    EFFORT,
    GRANULARITY,
    OPTIMIZATION,
    PRECISION,
    RUNTIME,
    TIMEOUT_S,
)
from bricks.session.targets import target_called
from bricks.units.quantities import seconds_of

if TYPE_CHECKING:
    from bricks.studies.serving.check import ServedScenario
    from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving

SCENARIOS: Mapping[str, str] = {
    "single-stream": "one sample at a time",
    "multi-stream": "several samples at a time",
    "server": "samples that arrive at a rate",
    "offline": "all samples at once",
    "generation": "texts that a decoder makes token by token",
}

_LOAD, _SERVER, _TEXT = "Load", "Server", "Generation of text"

OneModel = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        autocompletion=completion.models,
        help="An ONNX file, the name of a zoo model, FILE.py:FUNCTION or module:FUNCTION.",
    ),
]
ScenarioName = Annotated[
    str,
    typer.Option(
        "--scenario",
        metavar="|".join(SCENARIOS),
        autocompletion=completion.values(SCENARIOS),
        help="How queries arrive, in the terms of MLPerf.",
        rich_help_panel=_LOAD,
    ),
]
Qps = Annotated[
    float | None,
    typer.Option(
        metavar="N",
        help="Samples a second, which arrive as a Poisson process.",
        show_default=False,
        rich_help_panel=_LOAD,
    ),
]
Arrivals = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Times at which samples arrive, in seconds, one a line.",
        show_default=False,
        rich_help_panel=_LOAD,
    ),
]
Samples = Annotated[
    int,
    typer.Option(
        "--samples-per-query",
        min=1,
        max=10_000,
        metavar="N",
        help="Samples of a query of the multi-stream scenario.",
        rich_help_panel=_LOAD,
    ),
]
Slo = Annotated[
    str | None,
    typer.Option(
        metavar="50ms",
        help="Bound of the latency; finds the highest rate that keeps it.",
        show_default=False,
        rich_help_panel=_LOAD,
    ),
]
Percentile = Annotated[
    float | None,
    typer.Option(
        metavar="P",
        help="The percentile that the bound is for.",
        show_default="90 for single-stream, else 99",
        rich_help_panel=_LOAD,
    ),
]
BatchingSize = Annotated[
    int,
    typer.Option(
        "--batching",
        metavar="N",
        help="Largest batch that waiting samples are joined to.",
        rich_help_panel=_SERVER,
    ),
]
BatchTimeout = Annotated[
    str | None,
    typer.Option(
        metavar="2ms",
        help="How long a sample waits for others to fill a batch.",
        show_default="not at all",
        rich_help_panel=_SERVER,
    ),
]
Instances = Annotated[
    int,
    typer.Option(
        min=1,
        max=1024,
        metavar="N",
        help="Instances of the model, each with --threads.",
        rich_help_panel=_SERVER,
    ),
]
MaxQueue = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="Samples that may wait; others are dropped.",
        show_default="no bound",
        rich_help_panel=_SERVER,
    ),
]
RequestCost = Annotated[
    str | None,
    typer.Option(
        metavar="50us",
        help="What a sample costs the server besides the model.",
        show_default="nothing",
        rich_help_panel=_SERVER,
    ),
]
BatchCost = Annotated[
    str | None,
    typer.Option(
        metavar="100us",
        help="What a batch costs the server besides the model.",
        show_default="nothing",
        rich_help_panel=_SERVER,
    ),
]
Transport = Annotated[
    str | None,
    typer.Option(
        metavar="200us",
        help="How long a query and its answer are on the way.",
        show_default="no time",
        rich_help_panel=_SERVER,
    ),
]
PromptTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Tokens of each prompt.",
        show_default="512",
        rich_help_panel=_TEXT,
    ),
]
NewTokens = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        help="Tokens that are generated for each.",
        show_default="128",
        rich_help_panel=_TEXT,
    ),
]
TextBatch = Annotated[
    int | None,
    typer.Option(
        "--batch",
        metavar="N",
        help="Texts at once; with --qps, the most that are worked on at once.",
        show_default="1",
        rich_help_panel=_TEXT,
    ),
]
StepCost = Annotated[
    str | None,
    typer.Option(
        metavar="200us",
        help="What the server takes between two steps.",
        show_default="nothing",
        rich_help_panel=_TEXT,
    ),
]
Check = Annotated[
    bool,
    typer.Option(
        "--check",
        help="Also serve the model here, and let MLPerf LoadGen ask real queries; or generate"
        " texts.",
    ),
]
CheckedQueries = Annotated[
    int | None,
    typer.Option(
        "--queries",
        min=20,
        max=1_000_000,
        metavar="N",
        help="Real queries of --check.",
        show_default="enough for the percentile",
    ),
]


def scenario(
    model: OneModel,
    scenario: ScenarioName = "single-stream",
    qps: Qps = None,
    arrivals: Arrivals = None,
    samples_per_query: Samples = 8,
    slo: Slo = None,
    percentile: Percentile = None,
    batching: BatchingSize = 1,
    batch_timeout: BatchTimeout = None,
    instances: Instances = 1,
    max_queue: MaxQueue = None,
    request_cost: RequestCost = None,
    batch_cost: BatchCost = None,
    transport: Transport = None,
    prompt_tokens: PromptTokens = None,
    new_tokens: NewTokens = None,
    batch: TextBatch = None,
    step_cost: StepCost = None,
    check: Check = False,
    queries: CheckedQueries = None,
    system: SystemName = None,
    no_measure: NoMeasure = False,
    shape: Shapes = None,
    value: Values = None,
    runtime: RuntimeName = RUNTIME,
    granularity: GranularityText = GRANULARITY,
    optimization: Optimization = OPTIMIZATION,
    threads: Threads = None,
    seed: Seed = 0,
    precision: Precision = PRECISION,
    effort: EffortName = EFFORT,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
    cache: Cache = CACHE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict a served model's latency under load, its throughput, and the rate it can keep.

    Missing bricks are measured first, for batches of several sizes; a simulated server then runs
    them. With --scenario generation, a decoder makes text token by token, such as decoder_llama
    of the zoo. docs/scenarios.md says what is assumed. Example: bricks scenario resnet50 --scenario
    server --qps 40 --slo 100ms --batching 4 --threads 1
    """
    options = Measuring(
        models=[model], json=json, cache=cache, seed=seed, runtime=runtime, threads=threads,
        granularity=granularity, optimization=optimization, precision=precision, effort=effort,
        timeout=timeout, quiet=quiet, verbose=verbose,
    )  # fmt: skip
    if scenario == "generation":
        from bricks.cli.generation import generation_scenario

        _refuse_others(
            scenario, slo=slo, arrivals=arrivals, percentile=percentile,
            batch_timeout=batch_timeout, max_queue=max_queue, request_cost=request_cost,
            batch_cost=batch_cost, transport=transport, queries=queries, shape=shape, value=value,
            batching=batching != 1, instances=instances != 1,
        )  # fmt: skip
        generation_scenario(
            options, model, prompt_tokens, new_tokens, batch, step_cost, qps, system,
            check=check, measure=not no_measure,
        )  # fmt: skip
        return
    kind = _kind(scenario)
    _refuse_others(
        kind, prompt_tokens=prompt_tokens, new_tokens=new_tokens, batch=batch, step_cost=step_cost
    )
    from bricks.graph.input_values import parse_value
    from bricks.graph.sizes import parse_shape
    from bricks.studies.serving.predict import predict_scenario, refuse_crowding
    from bricks.studies.serving.scenario import ScenarioLoad, Serving

    load = ScenarioLoad(
        kind,
        qps,
        None if arrivals is None else _arrivals(arrivals),
        samples_per_query,
        None if slo is None else seconds_of("--slo", slo, "bound"),
        percentile,
    )
    serving = Serving(
        batching,
        _optional_s("--batch-timeout", batch_timeout, "time to wait"),
        instances,
        max_queue,
        _optional_s("--request-cost", request_cost, "cost"),
        _optional_s("--batch-cost", batch_cost, "cost"),
        _optional_s("--transport", transport, "time on the way"),
    )
    if check:
        _refuse_check(load, serving, system)
    elif queries is not None:
        raise UsageError("--queries are those of --check: add --check")
    shapes = dict(map(parse_shape, shape or []))
    values = dict(map(parse_value, value or []))
    with open_bench(options) as bench, ExitStack() as opened:
        target = bench.target if system is None else target_called(bench.workspace, system)
        refuse_crowding(target, serving)
        served: ServedScenario | None = None
        if check:
            from bricks.studies.serving.check import ServedScenario, queries_for

            served = opened.enter_context(
                ServedScenario(
                    bench, model, load, serving, queries=queries or queries_for(load),
                    shapes=shapes, values=values,
                )
            )  # fmt: skip
            if load.kind != "server" or load.qps is not None:
                served.serve(load.qps)
        result = predict_scenario(
            bench, model, load, serving, target=target, measure=not no_measure,
            shapes=shapes, values=values,
        )  # fmt: skip
        if served is not None:
            result = served.checked(result)
    facts = facts_of(result)
    if json:
        print_json(facts)
    else:
        from bricks.report.scenario import scenario_parts

        show(*scenario_parts(facts))


def _refuse_check(load: ScenarioLoad, serving: Serving, system: str | None) -> None:
    from bricks.studies.serving.check import refuse_unchecked

    if system is not None:
        raise UsageError("--check serves the model on this host: leave out --system")
    refuse_unchecked(load, serving)


def _kind(name: str) -> ScenarioKind:
    from bricks.studies.serving.scenario import ScenarioKind

    if name not in SCENARIOS:
        raise UsageError(
            f"no scenario is called {name!r}: {suggestion(name, SCENARIOS, 'give one of')}"
        )
    return ScenarioKind(name)


def _refuse_others(kind: str, **options: object) -> None:
    """:class:`UsageError` for an option that is given and is not for this scenario."""
    for name, value in options.items():
        if value:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is not for scenario {kind}: leave it out")


def _optional_s(option: str, text: str | None, what: str) -> float:
    return 0.0 if text is None else seconds_of(option, text, what)


# A trace of a day at a thousand a second is no use to a simulation of minutes.
_MAX_ARRIVALS = 10_000_000


def _arrivals(file: Path) -> list[float]:
    """The times in a trace of arrivals, in seconds."""
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as exc:
        why = exc.strerror if isinstance(exc, OSError) else "it is no text"
        raise UsageError(f"{file} cannot be read ({why}): give --arrivals another file") from exc
    found = []
    for number, line in enumerate(lines[:_MAX_ARRIVALS], start=1):
        if not line.strip():
            continue
        try:
            time_s = float(line)
        except ValueError:
            time_s = math.nan
        if not math.isfinite(time_s):
            raise UsageError(
                f"{file}: line {number} is no time in seconds, but {line.strip()[:40]!r}: give one"
                " number a line"
            )
        found.append(time_s)
    return found
