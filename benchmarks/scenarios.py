"""How do models answer under load? Predictions by scenario, and throughput by batch size.

    .venv/bin/python -m benchmarks scenarios

``scenarios``: models of the zoo on this host, with batches up to 64. ``curves``: for some of them,
whole models of several batch sizes next to predictions. ``published``: the same models on systems
of published measurements. Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, BricksError, ComparisonFailure, StopRule, Target
from bricks.errors import printable
from bricks.measure.conditions import Conditions
from bricks.report.tables import percent, seconds
from bricks.store.published import Published
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
# Throughput by the size of a batch is measured for these too.
CURVED = ("shufflenet", "bert_mini", "resnet18", "vit_tiny", "regnet_y", "wav2vec2")
CURVED_SIZES = (1, 4, 16, 64)

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
    Benchmark("scenarios", "scenarios.md", PredictedRow, partial(_cases, MODELS, 1, 2), run_here,
              partial(predicted_parts, "here"), rule=StopRule()),
    Benchmark("curves", "scenarios.md", CurveRow, partial(_cases, CURVED, 1, 2), run_curve,
              curve_parts, module="scenarios"),
    Benchmark("published", "scenarios.md", PredictedRow, published_cases, run_published,
              partial(predicted_parts, "published"), module="scenarios"),
)  # fmt: skip
