"""``bricks scale``: a program's training on several ranks, predicted from its bricks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bricks.cli import completion
from bricks.cli.options import (
    Batch,
    Cache,
    Json,
    Measuring,
    Precision,
    RuntimeName,
    Seed,
    Threads,
    Timeout,
    open_bench,
)
from bricks.cli.output import finish, print_json, remark, show
from bricks.cli.pages import check_page, today, write_page
from bricks.cli.predict import NoMeasure
from bricks.cli.systems import SystemName
from bricks.cli.verbosity import Quiet, Verbose
from bricks.cli.warnings import warn_of_crowding
from bricks.errors import StoreError, UsageError, suggestion
from bricks.session.defaults import CACHE, PRECISION, PROGRAMS_RUNTIME, TIMEOUT_S
from bricks.session.targets import target_called
from bricks.units.quantities import bytes_per_s_of, seconds_of, whole_numbers_of

if TYPE_CHECKING:
    from bricks.api.bench import Bench
    from bricks.compose.figure import Figure
    from bricks.measure.progress import Progress
    from bricks.network.times import Network
    from bricks.studies.scaling.result import ScaleFailure, ScalePoint, ScaleResult
    from bricks.studies.scaling.scale import Check
    from bricks.studies.scaling.scaling import DataParallelTraining
    from bricks.studies.scaling.strategies import Strategy
    from bricks.system import Target

# Further ranks are beyond what anybody can check.
MAX_RANKS = 1 << 16

# In the order in which they are shown.
STRATEGIES: Mapping[str, str] = {
    "ddp": "PyTorch's DistributedDataParallel",
    "horovod": "ring all-reduce with tensor fusion",
    "parameter-server": "one server, synchronously",
}

# What each of them sends.
COLLECTIVES: Mapping[str, Sequence[str]] = {
    "ddp": ("all_reduce", "broadcast"),
    "horovod": ("all_reduce",),
    "parameter-server": ("all_gather",),
}

_NETWORK = "Network"

Workload = Annotated[
    str,
    typer.Argument(
        metavar="WORKLOAD",
        autocompletion=completion.training_steps,
        help="FILE.py:FUNCTION, module:FUNCTION, or a training step of the zoo.",
    ),
]
Ranks = Annotated[str, typer.Option(metavar="1,2,4,8", help="Numbers of ranks to predict.")]
NetworkName = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NAME",
        help="A network that was measured.",
        show_default=False,
        rich_help_panel=_NETWORK,
    ),
]
Bandwidth = Annotated[
    str | None,
    typer.Option(
        metavar="10Gbit",
        help="The bandwidth of a network that nobody has measured, of each rank's link.",
        show_default=False,
        rich_help_panel=_NETWORK,
    ),
]
Latency = Annotated[
    str | None,
    typer.Option(
        metavar="50us",
        help="The latency of a message in it.",
        show_default=False,
        rich_help_panel=_NETWORK,
    ),
]
Strategies = Annotated[
    list[str] | None,
    typer.Option(
        "--strategy",
        metavar="|".join(STRATEGIES),
        autocompletion=completion.values(STRATEGIES),
        help="How parameters are kept equal; may be repeated.",
        show_default="ddp",
    ),
]
BucketCap = Annotated[
    float | None,
    typer.Option(
        min=1e-3,
        metavar="MiB",
        help="Size of DDP's buckets.",
        show_default="25 MiB, the first 1 MiB",
    ),
]
Accumulate = Annotated[
    int, typer.Option(min=1, max=10_000, metavar="K", help="Batches of a step of the optimiser.")
]
Strong = Annotated[
    bool, typer.Option("--strong", help="Ranks divide the batch, instead of having one each.")
]
Straggler = Annotated[
    float,
    typer.Option(min=1.0, max=1e3, metavar="FACTOR", help="How much slower one of the ranks is."),
]
Samples = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="Samples of an epoch, to tell its cost.", show_default=False
    ),
]
CheckedRanks = Annotated[
    int | None,
    typer.Option(
        "--check",
        min=2,
        max=MAX_RANKS,
        metavar="N",
        help="Also run real steps of DDP on N ranks, each with one thread; without a network, over"
        " this host's loopback, which is measured first.",
        show_default=False,
    ),
]
Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.html",
        help="Write curves and the timeline of a step into one page.",
        show_default=False,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="Write one step over the most ranks, for ui.perfetto.dev.",
        show_default=False,
    ),
]


def scale(
    workload: Workload,
    ranks: Ranks = "1,2,4,8",
    network: NetworkName = None,
    bandwidth: Bandwidth = None,
    latency: Latency = None,
    strategy: Strategies = None,
    bucket_cap_mb: BucketCap = None,
    accumulate: Accumulate = 1,
    strong: Strong = False,
    straggler: Straggler = 1.0,
    samples_per_epoch: Samples = None,
    check: CheckedRanks = None,
    out: Out = None,
    trace: Trace = None,
    system: SystemName = None,
    no_measure: NoMeasure = False,
    batch: Batch = None,
    runtime: RuntimeName = PROGRAMS_RUNTIME,
    threads: Threads = None,
    seed: Seed = 0,
    precision: Precision = PRECISION,
    timeout: Timeout = TIMEOUT_S,
    json: Json = False,
    cache: Cache = CACHE,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict a PyTorch training on several ranks, from the bricks of its step and a network.

    Missing bricks are measured first. Each rank is a host of its own. docs/scaling.md says how a
    step is put together, and what is assumed. Example: bricks scale train.py:step --ranks 1,2,4,8
    --bandwidth 10Gbit --latency 50us
    """
    from bricks.studies.scaling.scale import scale_training
    from bricks.studies.scaling.scaling import DataParallelTraining

    counts = whole_numbers_of("--ranks", ranks, MAX_RANKS, "numbers of ranks")
    strategies = _strategies(strategy or ["ddp"], bucket_cap_mb)
    _refuse_no_program(workload)
    if strong and batch is None:
        raise UsageError("--strong divides a batch: add --batch N")
    if out is not None:
        check_page(out)
    options = Measuring(
        models=[workload], json=json, cache=cache, batch=batch, runtime=runtime,
        threads=1 if threads is None and check is not None else threads,
        seed=seed, precision=precision, timeout=timeout, quiet=quiet, verbose=verbose,
    )  # fmt: skip
    here = check is not None and network is bandwidth is latency is None
    joined = None if here else _network(network, bandwidth, latency, cache)
    if check is not None:
        counts = sorted({*counts, check})
        _refuse_check(joined, strategies[0], runtime)
    with open_bench(options) as bench:
        target = bench.target if system is None else target_called(bench.workspace, system)
        warn_of_crowding(target, 1)
        checks: dict[int, Check] = {}
        if check is not None:
            _refuse_other_ranks(bench.target, target)
        if joined is None:
            joined = _loopback(bench, options, check or 1, strategies, measure=not no_measure)
        training = DataParallelTraining(
            strategies[0], joined, 1, divided=strong, accumulate=accumulate, straggler=straggler,
            samples_per_epoch=samples_per_epoch,
        )  # fmt: skip
        if check is not None:
            checks[check] = _real_steps(workload, training, bucket_cap_mb, seed, bench.progress)
        results = scale_training(
            bench, workload, training, counts, strategies=strategies, batch=batch, target=target,
            measure=not no_measure, checks=checks,
        )  # fmt: skip
    facts = _facts(results, training, out, trace)
    if out is not None:
        _write_page(out, results)
    errors = [] if trace is None else _write_trace(trace, results[0])
    if json:
        print_json(facts)
    else:
        from bricks.report.scaling import scaling_parts

        show(*scaling_parts(facts))
    finish([*(row["error"] for row in facts["ranks"] if row["error"] is not None), *errors])


def _refuse_no_program(workload: str) -> None:
    """What is mistyped is no function: say so before anything is run."""
    from bricks.graph.program_phases import TRAINING
    from bricks.zoo import is_entry, programs

    known = [each.name for each in programs() if each.kind == TRAINING]
    if workload not in known and not is_entry(workload):
        meant = suggestion(workload, known, "give FILE.py:FUNCTION or one of")
        raise UsageError(f"no training step is called {workload!r}: {meant}")


def _network(name: str | None, bandwidth: str | None, latency: str | None, cache: str) -> Network:
    """The network that options name."""
    if name is not None:
        if bandwidth is not None or latency is not None:
            raise UsageError("--network has a bandwidth and a latency: leave these out")
        return _measured_network(name, cache)
    if bandwidth is None or latency is None:
        raise UsageError(
            "no network is given: add --bandwidth 10Gbit --latency 50us, or --network NAME, or"
            " --check N for this host's loopback"
        )
    from bricks.network.times import StatedNetwork

    return StatedNetwork(bytes_per_s_of("--bandwidth", bandwidth), seconds_of("--latency", latency))


def _measured_network(name: str, cache: str) -> Network:
    """The network called ``name`` in the cache."""
    from bricks.session.networks import network_called
    from bricks.store import Store

    if not Store.exists(cache):
        raise StoreError(f"there is no cache in {cache}: give another --cache")
    with Store.open(cache, make=False) as store:
        return network_called(store, name)


def _loopback(
    bench: Bench, options: Measuring, check: int, strategies: Sequence[Strategy], *, measure: bool
) -> Network:
    """This host's loopback between the ranks to check, measured as far as it is not known."""
    from bricks.session.networks import loopback_network

    def announce(name: str) -> None:
        if not measure:
            raise UsageError(
                f"this host's loopback between {check} ranks is not measured yet: leave out"
                " --no-measure"
            )
        _refuse_program(options, bench)
        remark(
            f"no network is given: measuring this host's loopback between {check} ranks first,"
            f" once, as network {name!r}"
        )

    return loopback_network(
        bench.store, check, sorted({of for each in strategies for of in COLLECTIVES[each.name]}),
        announce=announce, progress=bench.progress,
    )  # fmt: skip


def _refuse_program(options: Measuring, bench: Bench) -> None:
    """An error of the program comes before networks are measured, which takes longer."""
    from bricks.sources import read

    (workload,) = options.models
    read(workload, bench.workspace.read_options(batch=options.batch))


def _refuse_check(network: Network | None, strategy: Strategy, runtime: str) -> None:
    """Real steps need a network that can be set up, and are those of DDP around plain modules."""
    from bricks.network.times import MeasuredNetwork

    if network is not None and not isinstance(network, MeasuredNetwork):
        raise UsageError(
            "--check runs real steps on a network that was measured: leave out --bandwidth and"
            " --latency for this host's loopback, or give --network NAME"
        )
    if strategy.name != "ddp":
        raise UsageError("--check runs real steps of DDP: give --strategy ddp first")
    if runtime != PROGRAMS_RUNTIME:
        raise UsageError(
            f"--check runs real steps with {PROGRAMS_RUNTIME}, not {runtime}: leave out --runtime"
        )


def _refuse_other_ranks(here: Target, target: Target) -> None:
    """Real ranks run here, with one thread each: others cannot be compared with them."""
    if target.key != here.key:
        raise UsageError(
            f"--check runs real steps on this host, not on {target.system.name}: leave out --system"
        )
    if target.runtime.threads != 1:
        raise UsageError("--check gives each rank one thread: give --threads 1")


def _real_steps(
    workload: str,
    training: DataParallelTraining,
    bucket_cap_mb: float | None,
    seed: int,
    progress: Progress,
) -> Check:
    """What runs real steps of ``workload``."""
    from bricks.network.times import MeasuredNetwork
    from bricks.studies.scaling.check import RealSteps

    assert isinstance(training.network, MeasuredNetwork)
    return RealSteps(
        workload, training.network, bucket_cap_mb, training.accumulate, training.straggler, seed,
        progress,
    )  # fmt: skip


def _strategies(names: Sequence[str], bucket_cap_mb: float | None) -> list[Strategy]:
    from bricks.studies.scaling.buckets import MIB
    from bricks.studies.scaling.strategies import DistributedDataParallel, Horovod, ParameterServer

    cap_bytes = None if bucket_cap_mb is None else int(bucket_cap_mb * MIB)
    known: dict[str, Strategy] = {
        each.name: each
        for each in (DistributedDataParallel(cap_bytes), Horovod(), ParameterServer())
    }
    for name in names:
        if name not in known:
            raise UsageError(f"no strategy is called {name!r}: {suggestion(name, known, 'give')}")
    if bucket_cap_mb is not None and "ddp" not in names:
        raise UsageError("--bucket-cap-mb is for --strategy ddp: leave it out")
    return [known[name] for name in dict.fromkeys(names)]


def _write_page(out: Path, results: Sequence[ScaleResult]) -> None:
    from bricks._version import __version__
    from bricks.report.scaling_page import scaling_page

    write_page(out, scaling_page(results, version=__version__, made=today()))


def _write_trace(file: Path, result: ScaleResult) -> list[str]:
    """Write the step on the most ranks; the lines of what went wrong."""
    from bricks.report.scaling_trace import scaling_trace

    if not result.predicted:
        return []
    try:
        file.write_text(scaling_trace(result), encoding="utf-8")
    except OSError as exc:
        return [f"{file} cannot be written ({exc.strerror}): give --trace another file"]
    return []


def _facts(
    results: Sequence[ScaleResult], training: Any, out: Path | None, trace: Path | None
) -> dict[str, Any]:
    first = results[0]
    return {
        "workload": first.workload,
        "system": first.target.system.to_json(),
        "runtime": first.target.runtime.to_json(),
        "network": first.network,
        "scaling": "strong" if training.divided else "weak",
        "accumulate": training.accumulate,
        "straggler": training.straggler,
        "samples_per_epoch": training.samples_per_epoch,
        "ranks": [_row(result, point) for result in results for point in result.points],
        "pays": [
            {
                "strategy": result.strategy,
                "up_to": result.pays_up_to,
                "looked_up_to": result.looked_up_to,
            }
            for result in results
        ],
        "page": None if out is None else str(out),
        "trace": None if trace is None else str(trace),
    }


# Each with the ends of its interval.
_FIGURES = ("samples_per_s", "speedup", "efficiency", "exposed_communication_s", "cost_per_epoch")


def _row(result: ScaleResult, point: ScalePoint | ScaleFailure) -> dict[str, Any]:
    """The facts of a number of ranks."""
    from dataclasses import asdict

    from bricks.studies.scaling.result import ScaleFailure

    row: dict[str, Any] = {
        "ranks": point.ranks,
        "strategy": result.strategy,
        **dict.fromkeys(("batch", "step_s", "low_s", "high_s")),
        **{key: None for name in _FIGURES for key in (name, f"{name}_low", f"{name}_high")},
        **dict.fromkeys(("communication_s", "bytes_sent", "origin")),
        **dict.fromkeys(("measured_step_s", "measured_solo_s", "ratio", "error")),
    }
    if isinstance(point, ScaleFailure):
        return {**row, "error": point.error}
    row |= {
        "batch": point.batch,
        "step_s": point.step_s.value,
        "low_s": point.step_s.low,
        "high_s": point.step_s.high,
        "communication_s": point.communication_s,
        "bytes_sent": round(point.bytes_sent),
        "origin": asdict(point.origins),
        "ratio": point.ratio,
    }
    for name in _FIGURES:
        figure: Figure | None = getattr(point, name)
        if figure is not None:
            row |= {name: figure.value, f"{name}_low": figure.low, f"{name}_high": figure.high}
    if point.checked is not None:
        row["measured_step_s"] = point.checked.step_s
        row["measured_solo_s"] = point.checked.solo_s
    return row
