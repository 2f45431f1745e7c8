"""How do models answer real queries? Percentiles, throughput and highest rates next to predictions.

    .venv/bin/python -m benchmarks served

``loaded``: models at 60 % of their throughput, asked by MLPerf LoadGen, and the time in the worker
next to latencies. ``served``: the same at more rates, and with batches; in series before and after
their bricks are measured. Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks import summary
from benchmarks.markdown import table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, StopRule
from bricks.report.tables import percent
from bricks.studies.serving.check import ServedScenario
from bricks.studies.serving.options import ScenarioOptions
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.study import predict_scenario
from bricks.units.interval import Interval

# Of several kinds, and fast enough that a thousand queries take no minutes. The first half is
# served one sample at a time, the others in batches.
ASKED = (
    "squeezenet", "bert_mini", "shufflenet", "levit", "gluon_resnet18_v1",
    "mobilenet_v2", "efficientnet_b0", "mobilevit", "t5_encoder", "resnet26",
)  # fmt: skip

# Served at this share of their throughput, one sample at a time.
LOADED_MODELS = (
    "mobilenet_v1", "shufflenet", "efficientnet_b0", "regnet_y", "levit", "mobilenet_v2",
    "wav2vec2", "t5_encoder", "electra_small", "gluon_mobilenet10",
)  # fmt: skip
LOADED_SHARE = 0.6
# Samples from which the throughput follows: offline, all are there at once.
THROUGHPUT_SAMPLES = 100

# Queries of a series; there are two, before and after bricks are measured.
QUERIES, QUICK_QUERIES = 1000, 50
OFFLINE_SAMPLES = 200
UTILISATIONS = (0.5, 0.8)
# The bound under which the highest rate is looked for, in 90th percentiles of a single stream.
BOUND = 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model with a number of threads."""

    model: str
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of a scenario: real, predicted for the same arrivals, and for any arrivals.

    The last has a value and an interval; None: there is none, or its end is infinite.
    """

    real: float
    expected: float
    predicted: tuple[float | None, ...] = ()

    @property
    def ratio(self) -> float:
        """The prediction for the arrivals that came, over the real figure."""
        return self.expected / self.real


@dataclass(frozen=True, slots=True)
class Served:
    """Real queries in one scenario next to predictions; costs of a batch and of a query in s."""

    qps: float | None
    samples: int
    batch_cost_s: float
    transport_s: float
    figures: Mapping[str, Figure]

    def ratio(self, name: str) -> float | None:
        """Predicted over real; None where there was no such figure."""
        return self.figures[name].ratio if name in self.figures else None


@dataclass(frozen=True, slots=True)
class LoadedRow:
    """A model at a share of its throughput."""

    case: Case
    served: Served


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A model offline, at each of ``UTILISATIONS``, and at the highest rate that keeps a bound."""

    case: Case
    max_batch: int
    offline: Served
    rates: tuple[Served, ...]
    highest: Served

    @property
    def ratios(self) -> list[float | None]:
        """Predicted over real: throughput, p50 and p99 at each rate, and the highest rate."""
        rates = [rate.ratio(name) for rate in self.rates for name in ("p50_s", "p99_s")]
        return [self.offline.ratio("throughput"), *rates, self.highest.ratio("max_qps")]


def loaded_cases() -> list[Case]:
    """Models that are asked at one rate."""
    return [Case(model) for model in LOADED_MODELS]


def served_cases() -> list[Case]:
    """Models that are asked at several rates."""
    return [Case(model) for model in ASKED]


def run_loaded(case: Case, run: Run) -> LoadedRow:
    """Ask a model at a share of its throughput, without batches."""
    with run.bench(threads=case.threads) as bench, ExitStack() as opened:
        begin = partial(_begin, bench, case.model, opened)
        offline = begin(ScenarioLoad(ScenarioKind.OFFLINE), 2 * THROUGHPUT_SAMPLES)
        offline.serve()
        qps = digits(LOADED_SHARE * offline.real["throughput"], 4)
        load = ScenarioLoad(ScenarioKind.SERVER, qps)
        served = begin(load, 2 * _queries(run))
        served.serve(load.qps)
        asked = ScenarioOptions(model=case.model, load=load, queries=2 * _queries(run))
        return LoadedRow(case, _compared(served.checked(predict_scenario(bench.workspace, asked))))


def _queries(run: Run) -> int:
    """The queries of a series; there are two, before and after bricks are measured."""
    return QUICK_QUERIES if run.options.quick else QUERIES


def _begin(
    bench: Bench,
    model: str,
    opened: ExitStack,
    load: ScenarioLoad,
    queries: int,
    serving: Serving = Serving(),  # noqa: B008  # it is frozen
) -> ServedScenario:
    """A scenario whose server lasts until ``opened`` is closed."""
    asked = ScenarioOptions(model=model, load=load, serving=serving, queries=queries)
    return opened.enter_context(ServedScenario(bench.workspace, asked))


def run_served(case: Case, run: Run) -> ServedRow:
    """Ask a model offline, at several rates, and at the highest that keeps a bound."""
    serving = Serving(max_batch=1 if ASKED.index(case.model) < len(ASKED) // 2 else 4)
    with run.bench(threads=case.threads) as bench, ExitStack() as opened:
        begin = partial(_begin, bench, case.model, opened, serving=serving)

        def compared(served: ServedScenario, load: ScenarioLoad) -> Served:
            asked = ScenarioOptions(model=case.model, load=load, serving=served.serving)
            return _compared(served.checked(predict_scenario(bench.workspace, asked)))

        whole = ScenarioLoad(ScenarioKind.OFFLINE)
        offline = begin(whole, 2 * OFFLINE_SAMPLES)
        offline.serve()
        rates_qps = [digits(share * offline.real["throughput"], 4) for share in UTILISATIONS]
        loads = [ScenarioLoad(ScenarioKind.SERVER, qps) for qps in rates_qps]
        online = [begin(load, 2 * _queries(run)) for load in loads]
        for served, load in zip(online, loads, strict=True):
            served.serve(load.qps)
        rates = tuple(compared(*pair) for pair in zip(online, loads, strict=True))
        throughput = compared(offline, whole)
        stream = ScenarioOptions(
            model=case.model, load=ScenarioLoad(ScenarioKind.SINGLE_STREAM),
            serving=offline.serving,
        )  # fmt: skip
        p90_s = predict_scenario(bench.workspace, stream).latencies["p90_s"].value
        bounded = ScenarioLoad(ScenarioKind.SERVER, slo_s=BOUND * p90_s)
        highest = compared(begin(bounded, 2 * _queries(run)), bounded)
    return ServedRow(case, serving.max_batch, throughput, rates, highest)


def _compared(result: ScenarioResult) -> Served:
    """The figures of a scenario, predicted and real."""
    checked = result.checked
    assert checked is not None, "queries were served"
    predicted: dict[str, Interval | None] = {
        **result.latencies, "throughput": result.throughput, "max_qps": result.max_qps,
    }  # fmt: skip
    return Served(
        result.load.qps,
        checked.samples,
        digits(checked.serving.batch_s, 5),
        digits(checked.serving.transport_s, 5),
        {
            name: Figure(
                digits(real, 5), digits(checked.expected[name], 5), _ends(predicted.get(name))
            )
            for name, real in checked.figures.items()
        },
    )


def _ends(figure: Interval | None) -> tuple[float | None, ...]:
    if figure is None:
        return ()
    ends = (figure.value, figure.low, figure.high)
    return tuple(digits(end, 5) if np.isfinite(end) else None for end in ends)


def loaded_parts(results: Results[LoadedRow]) -> dict[str, str]:
    """Each model's predictions at a share of its throughput, over what was served."""
    names = ("worker_p50_s", "worker_counted_s", "p50_s", "p90_s", "p99_s")
    head = [results.about.system, "queries/s", "in the worker: p50", "p99", "latency: p50", "p90",
            "p99"]  # fmt: skip
    ratios = [[row.served.figures[name].ratio for name in names] for row in results.rows]
    lines = [
        [row.case.model, f"{row.served.qps:g}", *(f"{ratio:.3f}" for ratio in of)]
        for row, of in zip(results.rows, ratios, strict=True)
    ]
    return {"loaded": table(head, [*lines, *_summaries(list(zip(*ratios, strict=True)))])}


def summed_up(results: Results[LoadedRow]) -> dict[str, str]:
    """Medians and 99th percentiles under load."""
    served = [row.served.figures for row in results.rows]
    figures: dict[str, str] = {}
    for name in ("p50", "p99"):
        ratios = Ratios(tuple(of[f"{name}_s"].ratio for of in served))
        figures |= summary.row(name, ratios)
    return figures


def served_parts(results: Results[ServedRow]) -> dict[str, str]:
    """Each model's predictions over what was served."""
    head = [results.about.system, "batch", "offline", "at half of it: p50", "p99", "at 80 %: p50",
            "p99", "highest rate"]  # fmt: skip
    lines = [
        [row.case.model, str(row.max_batch),
         *("–" if ratio is None else f"{ratio:.3f}" for ratio in row.ratios)]
        for row in results.rows
    ]  # fmt: skip
    columns = [[ratio for ratio in column if ratio is not None]
               for column in zip(*(row.ratios for row in results.rows), strict=True)]  # fmt: skip
    return {"served": table(head, [*lines, *_summaries(columns)])}


def _summaries(columns: Sequence[Sequence[float]]) -> Iterator[list[str]]:
    """Errors of columns of ratios, and the factor by which each is off altogether."""
    known = [Ratios(tuple(column)) if column else None for column in columns]
    yield ["**median error**", "", *("–" if r is None else percent(r.median_error) for r in known)]
    yield ["**largest error**", "", *("–" if r is None else percent(r.worst_error) for r in known)]
    yield ["**geometric mean**", "", *("–" if r is None else f"{r.geomean:.3f}" for r in known)]


BENCHMARKS = (
    Benchmark("loaded", "scenarios.md", LoadedRow, loaded_cases, run_loaded, loaded_parts,
              rule=StopRule(), module="served", others={summary.PAGE: summed_up}),
    Benchmark("served", "scenarios.md", ServedRow, served_cases, run_served, served_parts,
              rule=StopRule()),
)  # fmt: skip
