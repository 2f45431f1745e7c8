"""How do models answer under load? Predicted for many, and for some next to real queries.

    .venv/bin/python -m benchmarks scenarios                  # all that lacks
    .venv/bin/python -m benchmarks scenarios --only served    # real queries only

``loaded``: models at 60 % of their throughput, asked by MLPerf LoadGen, and the time in the worker
next to latencies. ``served``: the same at more rates, and with batches; in series before and after
their bricks are measured. ``here``: models of the zoo on this host, with batches up to 64.
``curves``: for some of them, whole models of several batch sizes next to predictions.
``published``: the same models on systems of published measurements. Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, BricksError, ComparisonFailure, Target
from bricks.errors import printable
from bricks.measure.conditions import Conditions
from bricks.report.tables import percent, seconds
from bricks.store.published import Published
from bricks.studies.serving.check import ServedScenario
from bricks.studies.serving.options import ScenarioOptions
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.study import predict_scenario
from bricks.units.interval import Interval

MODELS = (
    "albert", "alexnet", "beit", "bert_mini", "convnext", "deit_small", "densenet121", "distilbert",
    "efficientnet_b0", "electra_small", "gluon_mobilenet10", "gluon_resnet18_v1", "gpt2",
    "inception_v1", "inception_v2", "levit", "llama_tiny", "mobilebert", "mobilenet_v1",
    "mobilenet_v2", "mobilevit", "mx_unet", "opt_wide", "poolformer", "pvt_v2", "regnet_y",
    "resnet18", "resnet26", "resnet50", "segformer", "shufflenet", "squeezenet", "swin",
    "t5_encoder", "vgg19", "vit_tiny", "wav2vec2", "whisper_encoder", "zfnet512",
)  # fmt: skip
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
# Samples that tell the throughput: offline, all are there at once.
THROUGHPUT_SAMPLES = 100

# Throughput by the size of a batch is measured for these too.
CURVED = ("shufflenet", "bert_mini", "resnet18", "vit_tiny", "regnet_y", "wav2vec2")
CURVED_SIZES = (1, 4, 16, 64)

QUERIES, QUICK_QUERIES = 1000, 50
OFFLINE_SAMPLES = 200
UTILISATIONS = (0.5, 0.8)
# The bound under which the highest rate is looked for, in 90th percentiles of a single stream.
BOUND = 5.0
LARGEST, PUBLISHED_LARGEST = 64, 16
# Measuring a model's batches may take this long; what then lacks is predicted.
BUDGET_S = 15.0


@dataclass(frozen=True, slots=True)
class Case:
    """A model with a number of threads, on this host or on a published ``system``."""

    model: str
    threads: int
    system: str = ""


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


@dataclass(frozen=True, slots=True)
class Batch:
    """Predicted samples a second at a batch size, and the share of it that was measured."""

    size: int
    throughput: float
    measured_share: float


@dataclass(frozen=True, slots=True)
class PredictedRow:
    """Predictions of scenarios: a single stream, offline in batches, and the highest rate.

    ``problem`` says why batches end at ``largest_batch``; None: they need not be larger.
    """

    case: Case
    trimmed_mean_s: Interval
    p90_s: Interval
    best_batch: int
    largest_batch: int
    throughput: Interval
    max_qps: Interval
    batches: tuple[Batch, ...]
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Samples a second at a batch size; ``inside``: the measured one is in the interval."""

    size: int
    predicted: float
    measured: float
    inside: bool


@dataclass(frozen=True, slots=True)
class CurveRow:
    """Throughput by batch size; sizes that failed have no point."""

    case: Case
    points: tuple[CurvePoint, ...]


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


def run_here(case: Case, run: Run) -> PredictedRow:
    """Predict a model on this host: batch 1 is measured, larger ones for some seconds."""
    cache = str(case.threads)
    with run.bench(cache, threads=case.threads) as bench:
        bench.measure([bench.read(case.model, batch=1)])
    briefly = Conditions(budget_s=BUDGET_S)
    with run.bench(cache, threads=case.threads, effort="quick", conditions=briefly) as bench:
        return _predicted(bench, case, bench.target, LARGEST)


def run_published(case: Case, run: Run) -> PredictedRow:
    """Predict a model on a published system, where nothing can be measured."""
    (target,) = (each for each in _published() if _on(each, case))
    with run.bench("published", published=True, keep_plans=False) as bench:
        return _predicted(bench, case, target, PUBLISHED_LARGEST)


def _published() -> list[Target]:
    targets = (t for t in Published().systems.targets() if t.runtime.backend == "onnxruntime")
    return sorted(targets, key=lambda target: (target.system.name, target.runtime.threads))


def _on(target: Target, case: Case) -> bool:
    return (target.system.name, target.runtime.threads) == (case.system, case.threads)


def _predicted(bench: Bench, case: Case, target: Target, largest: int) -> PredictedRow:
    """A model's figures by scenario, with batches up to ``largest`` or fewer that fit."""
    offline, largest, problem = _offline(bench, case.model, target, largest)

    def scenario(load: ScenarioLoad) -> ScenarioResult:
        return scenario_of(case.model, target, offline.times, load, Serving())

    stream = scenario(ScenarioLoad(ScenarioKind.SINGLE_STREAM)).latencies
    bounded = ScenarioLoad(ScenarioKind.SERVER, slo_s=2 * stream["p90_s"].value)
    max_qps = scenario(bounded).max_qps
    best = next(b for b in offline.times.batches if b.size == offline.best_batch)
    assert max_qps is not None and offline.best_batch is not None
    return PredictedRow(
        case,
        _short(stream["trimmed_mean_s"]),
        _short(stream["p90_s"]),
        offline.best_batch,
        largest,
        _short(best.throughput),
        _short(max_qps),
        tuple(
            Batch(
                b.size,
                digits(b.throughput.value, 5),
                round(1 - b.run.provenance.predicted_share, 2),
            )
            for b in offline.times.batches
        ),
        problem,
    )


def _offline(
    bench: Bench, model: str, target: Target, largest: int
) -> tuple[ScenarioResult, int, str | None]:
    """Offline with the largest batches that have times, and why there are no larger ones."""
    problem = None
    while True:
        try:
            asked = ScenarioOptions(
                model=model, load=ScenarioLoad(ScenarioKind.OFFLINE), serving=Serving(largest),
                target=target,
            )  # fmt: skip
            return predict_scenario(bench.workspace, asked), largest, problem
        except BricksError as error:
            if largest < 4:
                raise
            problem, largest = str(error), largest // 4


def _short(figure: Interval) -> Interval:
    return Interval(*(digits(end, 5) for end in (figure.value, figure.low, figure.high)))


def run_curve(case: Case, run: Run) -> CurveRow:
    """Compare whole models of several batch sizes with their bricks."""
    with run.bench(threads=case.threads) as bench:
        rows = bench.compare([bench.read(case.model, batch=size) for size in CURVED_SIZES]).rows
    points = [
        CurvePoint(
            size,
            digits(size / row.estimate.estimate_s, 5),
            digits(size / row.measured_s.value, 5),
            row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s,
        )
        for size, row in zip(CURVED_SIZES, rows, strict=True)
        if not isinstance(row, ComparisonFailure)
    ]
    return CurveRow(case, tuple(points))


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


def curve_parts(results: Results[CurveRow]) -> dict[str, str]:
    """Samples a second by batch size: measured, and in brackets the ratio of the predicted."""
    head = [results.about.system, "threads", *(f"batch {size}" for size in CURVED_SIZES)]
    points = [point for row in results.rows for point in row.points]
    ratios = Ratios.of((point.predicted, point.measured) for point in points)
    summary = (
        f"Median error {percent(ratios.median_error)}, largest {percent(ratios.worst_error)},"
        f" {sum(point.inside for point in points)} of {len(points)} inside the interval."
    )
    lines = ([row.case.model, str(row.case.threads), *_curve(row)] for row in results.rows)
    return {"curves": paragraphs(table(head, lines), summary)}


def _curve(row: CurveRow) -> Iterator[str]:
    by_size = {point.size: point for point in row.points}
    for size in CURVED_SIZES:
        point = by_size.get(size)
        yield (
            "–"
            if point is None
            else (f"{point.measured:.4g}/s ({point.predicted / point.measured:.3f})")
        )


def predicted_parts(name: str, results: Results[PredictedRow]) -> dict[str, str]:
    """A table for each system and number of threads."""
    there = [(row.case.system or results.about.system, row.case.threads) for row in results.rows]
    tables = []
    for system, threads in dict.fromkeys(there):
        title = f"{printable(system)}, {threads} thread{'' if threads == 1 else 's'}"
        head = [title, "trimmed mean", "p90", "best batch", "most samples/s", "highest rate"]
        lines = [
            _predicted_cells(row)
            for row, at in zip(results.rows, there, strict=True)
            if at == (system, threads)
        ]
        lines += [
            [each.case.model, *["–"] * 5]
            for each in results.failed
            if (each.case.system or results.about.system, each.case.threads) == (system, threads)
        ]
        tables.append(table(head, lines))
    return {name: paragraphs(*tables)}


def _predicted_cells(row: PredictedRow) -> list[str]:
    limit = "" if row.problem is None else f" of {row.largest_batch}"
    return [
        row.case.model, seconds(row.trimmed_mean_s.value), seconds(row.p90_s.value),
        f"{row.best_batch}{limit}", f"{row.throughput.value:.4g}", f"{row.max_qps.value:.4g}/s",
    ]  # fmt: skip


def _cases(models: Iterable[str], *threads: int) -> list[Case]:
    return [Case(model, count) for count in threads for model in models]


def published_cases() -> list[Case]:
    """All models on all published systems."""
    return [
        Case(model, target.runtime.threads, target.system.name)
        for target in _published()
        for model in MODELS
    ]


BENCHMARKS = (
    Benchmark("loaded", "scenarios.md", LoadedRow, partial(_cases, LOADED_MODELS, 1), run_loaded,
              loaded_parts, module="scenarios"),
    Benchmark("served", "scenarios.md", ServedRow, partial(_cases, ASKED, 1), run_served,
              served_parts, module="scenarios"),
    Benchmark("here", "scenarios.md", PredictedRow, partial(_cases, MODELS, 1, 2), run_here,
              partial(predicted_parts, "here"), module="scenarios"),
    Benchmark("curves", "scenarios.md", CurveRow, partial(_cases, CURVED, 1, 2), run_curve,
              curve_parts, module="scenarios"),
    Benchmark("published", "scenarios.md", PredictedRow, published_cases, run_published,
              partial(predicted_parts, "published"), module="scenarios"),
)  # fmt: skip
