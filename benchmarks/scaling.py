"""How well are data-parallel steps predicted? Real steps of DDP next to predictions.

    .venv/bin/python -m benchmarks scaling --minutes 30

Each workload's bricks are measured, and collectives on each network (loopback, and network
namespaces that send at a shaped rate, which needs root). Then real steps run on two ranks, a core
each, in turn with steps that do not communicate; ``harder`` cases have a straggler, or more ranks
than cores. ``curves`` are predicted speed-ups by ranks. Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, shortened
from benchmarks.study import Benchmark, Results, Run
from bricks import BricksError, ScalingOptions, scale_training
from bricks.measure.conditions import StopRule
from bricks.network.collective import ALL_REDUCE, BROADCAST
from bricks.network.times import MeasuredNetwork, Network, StatedNetwork
from bricks.report.tables import number, percent, seconds
from bricks.session.networks import NetworkRequest, measure_locally, network_called
from bricks.store import Store
from bricks.studies.scaling.options import NetworkOptions, StepOptions
from bricks.studies.scaling.result import ScaleFailure, ScalePoint
from bricks.studies.scaling.study import ScalingStudy
from bricks.studies.study import ask
from bricks.units.interval import Interval
from bricks.units.quantities import bytes_per_s_of

LOOPBACK, RANKS = "loopback", 2
NETWORKS = (LOOPBACK, "1Gbit", "100Mbit")
SIZES = tuple(1024 * 4**power for power in range(8))
# Few gradients and many, small ones and large ones, buffers to broadcast and none.
WORKLOADS = {
    "resnet44": "torch_resnet44_training",
    "mobilenet_v3": "torch_mobilenet_v3_training",
    "lstm": "torch_lstm_training",
    "two_tower": "torch_two_tower_training",
    "digits_resnet": "models/training/digits.py:digits_resnet",
    "transformer": "models/training/synthetic.py:sequences_transformer",
}

# The study whose workload this is: ResNet-44, a batch of 128 on each worker, CIFAR-10's shapes.
STUDY = "torch_resnet44_training"
STUDY_BATCH, STUDY_RANKS = 128, (1, 2, 4, 8, 12, 16, 32, 64)
MEASURED = "1 Gbit/s, measured with two ranks"
STATED: Mapping[str, Network] = {
    "1 Gbit/s, 50 µs": StatedNetwork(1e9 / 8, 50e-6),
    "10 Gbit/s, 20 µs": StatedNetwork(1e10 / 8, 20e-6),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A workload on a network of ``ranks``, one of which is slower by the factor ``straggler``."""

    workload: str
    network: str
    ranks: int = RANKS
    straggler: float = 1.0


@dataclass(frozen=True, slots=True)
class Row:
    """A step predicted and measured, in seconds; ``solo`` steps do not communicate."""

    case: Case
    batch: int
    bytes_sent: float
    solo_s: float
    measured_solo_s: float
    step_s: Interval
    exposed_s: float
    measured_step_s: float
    origin: str | None


@dataclass(frozen=True, slots=True)
class CurveCase:
    """The network that the study's workload is scaled on."""

    network: str


@dataclass(frozen=True, slots=True)
class Point:
    """A predicted step and its speed-up over one rank; ``network`` is the origin of its times."""

    ranks: int
    step_s: Interval
    speedup: Interval
    network: str | None


@dataclass(frozen=True, slots=True)
class CurveRow:
    """Speed-ups by ranks, and the number of ranks up to which more of them pay."""

    case: CurveCase
    pays_up_to: int | None
    points: tuple[Point, ...]


class BrieflyChecked(ScalingStudy):
    """A scaling study with fewer real steps, which this page needs."""

    real_rule = StopRule(precision=0.02, min_rounds=8, max_rounds=16, passes=1)


def cases() -> list[Case]:
    """Every workload on every network."""
    return [Case(workload, network) for workload in WORKLOADS for network in NETWORKS]


def harder_cases() -> list[Case]:
    """Cases with a straggler, and on four ranks that share two cores."""
    return [
        Case("resnet44", LOOPBACK, 2, 1.5),
        Case("lstm", "1Gbit", 2, 1.5),
        Case("digits_resnet", "1Gbit", 2, 2.0),
        Case("transformer", "100Mbit", 2, 2.0),
        Case("resnet44", LOOPBACK, 4),
        Case("lstm", LOOPBACK, 4),
        Case("digits_resnet", LOOPBACK, 4),
        Case("resnet44", "100Mbit", 4),
    ]


def curve_cases() -> list[CurveCase]:
    """A measured network, and two of which only bandwidth and latency are stated."""
    return [CurveCase(name) for name in (MEASURED, *STATED)]


def run(case: Case, run: Run) -> Row:
    """Predict and measure steps of a workload on a network."""
    network = _network(case.network, case.ranks, run)
    options = ScalingOptions(
        workload=WORKLOADS[case.workload], ranks=[1, case.ranks],
        network=NetworkOptions(given=network), step=StepOptions(straggler=case.straggler),
        check=case.ranks,
    )  # fmt: skip
    with run.bench("cache", runtime="torch", threads=1) as bench:
        (result,) = ask(BrieflyChecked(options, bench.workspace)).strategies
    for point in result.points:
        if isinstance(point, ScaleFailure):
            raise BricksError(point.error)
    one, several = result.predicted
    checked = several.checked
    assert checked is not None, "real steps were asked for"
    return Row(
        case, several.batch, several.bytes_sent, one.step_s.value, checked.solo_s, several.step_s,
        several.exposed_communication_s.value, checked.step_s, several.origins.network,
    )  # fmt: skip


def _network(link: str, ranks: int, run: Run) -> MeasuredNetwork:
    """The network of so many ranks by this link, of which the cache gets what it lacks."""
    rate_bps = None if link == LOOPBACK else 8 * bytes_per_s_of("--only", link)
    name = link if ranks == RANKS else f"{link}-{ranks}"
    (run.folder / "cache").mkdir(parents=True, exist_ok=True)
    with Store.open(run.folder / "cache") as store:
        operations = [ALL_REDUCE, BROADCAST]
        request = NetworkRequest(name, ranks, operations=operations, sizes=SIZES, computing=True)
        measure_locally(store, request, shaped=link != LOOPBACK, bandwidth_bps=rate_bps)
        return network_called(store, name)


def run_curve(case: CurveCase, run: Run) -> CurveRow:
    """Predict steps of the study's workload on a network, by ranks."""
    network = STATED[case.network] if case.network in STATED else _network("1Gbit", RANKS, run)
    options = ScalingOptions(
        workload=STUDY, ranks=STUDY_RANKS, network=NetworkOptions(given=network), batch=STUDY_BATCH
    )
    with run.bench("cache", runtime="torch", threads=1) as bench:
        (result,) = scale_training(bench.workspace, options).strategies
    points = (point for point in result.points if isinstance(point, ScalePoint))
    return CurveRow(
        case,
        result.pays_up_to,
        tuple(Point(p.ranks, shortened(p.step_s), shortened(p.speedup), p.origins.network)
              for p in points),
    )  # fmt: skip


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of steps on ranks with a core each."""
    order = cases()
    rows = sorted(results.rows, key=lambda row: order.index(row.case))
    head = ["workload", "network", "alone, predicted", "measured on both ranks",
            "step, predicted", "interval", "measured", "ratio",
            "communication exposed, predicted", "measured"]  # fmt: skip
    lines = ([
        row.case.workload, row.case.network, *_times(row), seconds(row.exposed_s),
        seconds(max(0.0, row.measured_step_s - row.measured_solo_s)),
    ] for row in rows)  # fmt: skip
    failed = "\n".join(
        f"- {each.case.workload}, {each.case.network}: {each.error}" for each in results.failed
    )
    summary = "\n".join(filter(None, [_summary(results), failed]))
    return {"steps": paragraphs(table(head, lines, "ll"), summary)}


def harder_parts(results: Results[Row]) -> dict[str, str]:
    """The table of steps with a straggler, and on ranks that share cores."""
    head = ["workload", "network", "ranks", "straggler", "alone, predicted",
            "measured on all ranks", "step, predicted", "interval", "measured",
            "ratio"]  # fmt: skip
    lines = [[*_conditions(row.case), *_times(row)] for row in results.rows]
    lines += [[*_conditions(each.case), each.error, *[""] * 5] for each in results.failed]
    return {"harder": paragraphs(table(head, lines, "ll"), _summary(results))}


def _conditions(case: Case) -> list[str]:
    slower = f"{case.straggler:g}" if case.straggler > 1 else "none"
    return [case.workload, case.network, str(case.ranks), slower]


def _times(row: Row) -> Iterable[str]:
    return (
        *map(seconds, (row.solo_s, row.measured_solo_s, row.step_s.value)),
        f"{seconds(row.step_s.low)} … {seconds(row.step_s.high)}",
        seconds(row.measured_step_s), f"{row.step_s.value / row.measured_step_s:.3f}",
    )  # fmt: skip


def _summary(results: Results[Row]) -> str:
    """How far predicted steps are from measured ones, over all rows, and in which direction."""
    rows, about = results.rows, results.about
    ratios = Ratios.of((row.step_s.value, row.measured_step_s) for row in rows)
    inside = sum(row.step_s.low <= row.measured_step_s <= row.step_s.high for row in rows)
    return (
        f"{about.date}, {about.system}, {about.runtime}: {len(rows)} pairs, median error"
        f" {percent(ratios.median_error)}, worst {percent(ratios.worst_error)}, geometric mean of"
        f" the ratios {ratios.geomean:.3f}, {inside} of {len(rows)} inside the interval."
    )


def summed_up(results: Results[Row]) -> dict[str, str]:
    """Steps on two ranks."""
    rows = results.rows
    ratios = Ratios.of((row.step_s.value, row.measured_step_s) for row in rows)
    inside = (row.step_s.low <= row.measured_step_s <= row.step_s.high for row in rows)
    return summary.row("ranks", ratios, inside)


def curve_parts(results: Results[CurveRow]) -> dict[str, str]:
    """The speed-up of the study's workload by ranks, on each network."""
    rows = results.rows
    speedups = [{point.ranks: point.speedup for point in row.points} for row in rows]
    lines = ([str(ranks), *(_span(of[ranks]) for of in speedups)] for ranks in STUDY_RANKS)
    return {"curves": table(["ranks", *(row.case.network for row in rows)], lines, "r")}


def _span(figure: Interval) -> str:
    return f"{number(figure.value)} ({number(figure.low)} to {number(figure.high)})"


BENCHMARKS = (
    Benchmark("scaling", "scaling.md", Row, cases, run, parts, others={summary.PAGE: summed_up}),
    Benchmark("harder", "scaling.md", Row, harder_cases, run, harder_parts, module="scaling"),
    Benchmark("curves", "scaling.md", CurveRow, curve_cases, run_curve, curve_parts,
              module="scaling"),
)  # fmt: skip
