"""How do models answer under load? Predicted for many, and for some held against real queries.

Writes docs/scenarios.md (its figures) and benchmarks/results/scenarios.json.

    .venv/bin/python benchmarks/scenarios.py            # all that lacks
    .venv/bin/python benchmarks/scenarios.py served     # real queries only

``loaded``: models at 60 % of what they can answer, asked by MLPerf LoadGen, and the time in the
worker beside latencies. ``served``: the same at more rates, and with batches; in series before and
after their bricks are measured, in a cache of their own. ``here``: models of the zoo on this host,
with batches up to 64. ``curves``: for some of them, whole models of several sizes of a batch beside
predictions.
``published``: the same models on systems that were measured elsewhere. Each model is kept at
once; the next call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from page_parts import put

from bricks import Bench, BricksError, ComparisonFailure, Target
from bricks.errors import printable
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import percent, seconds
from bricks.studies.serving.check import ServedScenario
from bricks.studies.serving.options import ScenarioOptions
from bricks.studies.serving.outcome import scenario_of
from bricks.studies.serving.result import ScenarioResult
from bricks.studies.serving.scenario import ScenarioKind, ScenarioLoad, Serving
from bricks.studies.serving.study import predict_scenario
from bricks.units.interval import Interval

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "scenarios.json"
PAGE = ROOT / "docs" / "scenarios.md"
CACHE = ROOT / "cache" / "scenarios"

LOADED, SERVED, HERE, CURVES, PUBLISHED = "loaded", "served", "here", "curves", "published"
PARTS = (LOADED, SERVED, HERE, CURVES, PUBLISHED)

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

# Queries of a series; there are two, before and after bricks are measured.
QUERIES = 1000
OFFLINE_SAMPLES = 200
UTILISATIONS = (0.5, 0.8)
# The bound under which the highest rate is looked for, in 90th percentiles of a single stream.
BOUND = 5.0
LARGEST, PUBLISHED_LARGEST = 64, 16
# Measuring a model's batches may take this long; what then lacks is predicted.
BUDGET_S = 15.0

Row = dict[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="|".join(PARTS), help="Only these.")
    parser.add_argument("--models", nargs="+", help="Only these.")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--minutes", type=float, help="Begin no model after this time.")
    parser.add_argument("--queries", type=int, default=QUERIES, help="Of a series.")
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    found = json.loads(arguments.raw.read_text("utf-8")) if arguments.raw.exists() else {}
    begun = time.monotonic()
    measures = {
        LOADED: _loaded,
        SERVED: _served,
        HERE: _here,
        CURVES: _curves,
        PUBLISHED: _published,
    }
    if strange := set(arguments.parts) - measures.keys():
        parser.error(f"there is no part {strange.pop()}: give {', '.join(measures)}")
    for part in () if arguments.pages else arguments.parts or measures:
        rows: list[Row] = found.setdefault(part, [])
        for number, row in enumerate(measures[part](arguments, rows)):
            rows.append(row)
            print(part, number, {key: row[key] for key in ("model", "threads")}, flush=True)
            found["date"] = datetime.now(UTC).date().isoformat()
            arguments.raw.write_text(_written(found), "utf-8")
            if arguments.minutes and time.monotonic() - begun > 60 * arguments.minutes:
                break
    _write(found, arguments.page)


def _written(found: dict[str, Any]) -> str:
    """JSON with a row a line."""
    parts = [
        f'"{part}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for part, rows in found.items()
        if isinstance(rows, list)
    ]
    return "{\n" + ",\n".join([f'"date": "{found.get("date")}"', *parts]) + "\n}\n"


def _lacking(
    arguments: argparse.Namespace, rows: Sequence[Row], models: Sequence[str], threads: int
) -> list[str]:
    there = {row["model"] for row in rows if row["threads"] == threads}
    return [name for name in arguments.models or models if name not in there]


def _short(value: float | None, digits: int = 5) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _loaded(arguments: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Row]:
    """Real queries at a share of the throughput beside predictions, one thread, an instance."""
    for name in _lacking(arguments, rows, LOADED_MODELS, 1):
        with (
            tempfile.TemporaryDirectory() as folder,
            Bench(folder, runtime=arguments.runtime, threads=1, published=False) as bench,
            ExitStack() as opened,
        ):
            samples = 2 * THROUGHPUT_SAMPLES
            whole = ScenarioOptions(
                model=name, load=ScenarioLoad(ScenarioKind.OFFLINE), queries=samples
            )
            offline = opened.enter_context(ServedScenario(bench.workspace, whole))
            offline.serve()
            qps = _short(LOADED_SHARE * offline.real["throughput"], 4)
            load = ScenarioLoad(ScenarioKind.SERVER, qps)
            asked = ScenarioOptions(model=name, load=load, queries=2 * arguments.queries)
            served = opened.enter_context(ServedScenario(bench.workspace, asked))
            served.serve(load.qps)
            found = _compared(served.checked(predict_scenario(bench.workspace, asked)))
            yield {"model": name, "threads": 1, "system": bench.target.system.name, **found}


def _served(arguments: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Row]:
    """Real queries beside predictions, one thread, an instance."""
    for name in _lacking(arguments, rows, ASKED, 1):
        serving = Serving(max_batch=1 if ASKED.index(name) < len(ASKED) // 2 else 4)
        with (
            tempfile.TemporaryDirectory() as folder,
            Bench(folder, runtime=arguments.runtime, threads=1, published=False) as bench,
            ExitStack() as opened,
        ):
            yield _asked(bench, name, serving, arguments.queries, opened)


def _asked(bench: Bench, name: str, serving: Serving, queries: int, opened: ExitStack) -> Row:
    """A model offline, at several rates, and at the highest that keeps a bound."""

    def begin(load: ScenarioLoad, count: int) -> ServedScenario:
        asked = ScenarioOptions(model=name, load=load, serving=serving, queries=2 * count)
        return opened.enter_context(ServedScenario(bench.workspace, asked))

    offline = begin(ScenarioLoad(ScenarioKind.OFFLINE), OFFLINE_SAMPLES)
    offline.serve()
    capacity = offline.real["throughput"]
    loads = [
        ScenarioLoad(ScenarioKind.SERVER, _short(share * capacity, 4)) for share in UTILISATIONS
    ]
    online = [begin(load, queries) for load in loads]
    for each, load in zip(online, loads, strict=True):
        each.serve(load.qps)

    def told(served: ServedScenario, load: ScenarioLoad) -> Row:
        asked = ScenarioOptions(model=name, load=load, serving=served.serving)
        result = predict_scenario(bench.workspace, asked)
        return _compared(served.checked(result))

    found = [told(each, load) for each, load in zip(online, loads, strict=True)]
    whole = told(offline, ScenarioLoad(ScenarioKind.OFFLINE))
    stream = ScenarioLoad(ScenarioKind.SINGLE_STREAM)
    alone = predict_scenario(
        bench.workspace, ScenarioOptions(model=name, load=stream, serving=offline.serving)
    )
    bounded = ScenarioLoad(ScenarioKind.SERVER, slo_s=BOUND * alone.latencies["p90_s"].value)
    highest = told(begin(bounded, queries), bounded)
    return {
        "model": name,
        "threads": 1,
        "system": bench.target.system.name,
        "max_batch": serving.max_batch,
        "offline": whole,
        "rates": [
            {"utilisation": share, **row} for share, row in zip(UTILISATIONS, found, strict=True)
        ],
        "highest": highest,
    }


def _compared(result: ScenarioResult) -> Row:
    """The figures of a scenario: predicted with its interval, for the same arrivals, and real."""
    checked = result.checked
    assert checked is not None
    figures: dict[str, Interval | None] = {
        **result.latencies, "throughput": result.throughput, "max_qps": result.max_qps,
    }  # fmt: skip
    return {
        "qps": result.load.qps,
        "samples": checked.samples,
        "batch_cost_s": _short(checked.serving.batch_s),
        "transport_s": _short(checked.serving.transport_s),
        "figures": {
            name: {
                "real": _short(real),
                "expected": _short(checked.expected[name]),
                **_interval(figures.get(name)),
            }
            for name, real in checked.figures.items()
        },
    }


def _interval(figure: Interval | None) -> Row:
    """What was predicted for any arrivals; nothing of a figure that has no interval."""
    if figure is None:
        return {}
    ends = (figure.value, figure.low, figure.high)
    return {"predicted": [_short(end) if np.isfinite(end) else None for end in ends]}


def _here(arguments: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Row]:
    """Models on this host."""
    for threads in arguments.threads:
        conditions = Conditions(budget_s=BUDGET_S)
        for name in _lacking(arguments, rows, MODELS, threads):
            folder = arguments.cache / f"{threads}"
            how = {"runtime": arguments.runtime, "threads": threads, "published": False}
            with Bench(folder, **how) as bench:  # single streams are measured, all of them
                bench.measure([bench.read(name, batch=1)])
            with Bench(folder, effort="quick", conditions=conditions, **how) as bench:
                yield _row(bench, name, bench.target, LARGEST)


def _curves(arguments: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Row]:
    """Throughput by the size of a batch: whole models in turn with their bricks."""
    for threads in arguments.threads:
        for name in _lacking(arguments, rows, CURVED, threads):
            with (
                tempfile.TemporaryDirectory() as folder,
                Bench(
                    folder, runtime=arguments.runtime, threads=threads, published=False,
                    conditions=Conditions(rule=StopRule(precision=0.02, max_rounds=12)),
                ) as bench,
            ):  # fmt: skip
                compared = bench.compare([bench.read(name, batch=size) for size in CURVED_SIZES])
                row: Row = {"model": name, "threads": threads, "system": bench.target.system.name}
                yield row | {
                    "curve": [
                        {"size": size, "error": found.error}
                        if isinstance(found, ComparisonFailure)
                        else {
                            "size": size,
                            "predicted": _short(size / found.estimate.estimate_s),
                            "measured": _short(size / found.measured_s.value),
                            "inside": found.estimate.low_s
                            <= found.measured_s.value
                            <= found.estimate.high_s,
                        }
                        for size, found in zip(CURVED_SIZES, compared.rows, strict=True)
                    ]
                }


def _published(arguments: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Row]:
    """The same models on published systems, where nothing can be measured."""
    with tempfile.TemporaryDirectory() as folder, Bench(folder, keep_plans=False) as bench:
        targets = [
            t
            for t in bench.workspace.published.systems.targets()
            if t.runtime.backend == "onnxruntime"
        ]
        for target in sorted(targets, key=lambda t: (t.system.name, t.runtime.threads)):
            mine = [row for row in rows if row["system"] == target.system.name]
            for name in _lacking(arguments, mine, MODELS, target.runtime.threads):
                yield _row(bench, name, target, PUBLISHED_LARGEST)


def _row(bench: Bench, name: str, target: Target, largest: int) -> Row:
    """A model's figures by scenario."""
    row: Row = {"model": name, "threads": target.runtime.threads, "system": target.system.name}
    whole = ScenarioLoad(ScenarioKind.OFFLINE)
    problem = ""
    while largest:
        try:
            asked = ScenarioOptions(model=name, load=whole, serving=Serving(largest), target=target)
            offline = predict_scenario(bench.workspace, asked)
            break
        except BricksError as error:
            problem = str(error)
            largest //= 4
    else:
        return {**row, "error": problem}
    times = offline.times

    def outcome(load: ScenarioLoad) -> ScenarioResult:
        return scenario_of(name, target, times, load, Serving())

    alone = outcome(ScenarioLoad(ScenarioKind.SINGLE_STREAM))
    bound_s = 2 * alone.latencies["p90_s"].value
    online = outcome(ScenarioLoad(ScenarioKind.SERVER, slo_s=bound_s))
    best = next(b for b in times.batches if b.size == offline.best_batch)
    assert online.max_qps is not None
    return {
        **row,
        "trimmed_mean_s": _figure(alone, "trimmed_mean_s"),
        "p90_s": _figure(alone, "p90_s"),
        "best_batch": offline.best_batch,
        "largest_batch": largest,
        "throughput": [_short(e) for e in (best.throughput.value, best.throughput.low,
                                           best.throughput.high)],
        "max_qps": [_short(e) for e in (online.max_qps.value, online.max_qps.low,
                                        online.max_qps.high)],
        "curve": [[b.size, _short(b.throughput.value),
                   round(1 - b.run.provenance.predicted_share, 2)] for b in times.batches],
        "error": problem or None,
    }  # fmt: skip


def _figure(result: ScenarioResult, name: str) -> list[float | None]:
    figure = result.latencies[name]
    return [_short(end) for end in (figure.value, figure.low, figure.high)]


def _write(found: dict[str, Any], page: Path) -> None:
    tables: dict[str, Callable[[Sequence[Row]], list[str]]] = {
        LOADED: _loaded_lines, SERVED: _served_lines, HERE: _lines, CURVES: _curve_lines,
        PUBLISHED: _lines,
    }  # fmt: skip
    there = [part for part in PARTS if part in found]
    put(page, __file__, {part: "\n".join(tables[part](found[part])) for part in there})


# How figures are called, in the order of columns.
_COLUMNS = {"p50_s": "p50", "p90_s": "p90", "p99_s": "p99", "trimmed_mean_s": "trimmed mean"}


def _served_lines(rows: Sequence[Row]) -> list[str]:
    """Each model's predictions relative to what was served."""
    lines = [
        f"| {rows[0]['system']} | batch | offline | at half of it: p50 | p99 | at 80 %: p50 | p99 |"
        " highest rate |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    columns: list[list[float]] = [[] for _ in range(6)]
    for row in rows:
        ratios = [_ratio(row["offline"], "throughput")]
        for rate in row["rates"]:
            ratios += [_ratio(rate, "p50_s"), _ratio(rate, "p99_s")]
        ratios.append(_ratio(row["highest"], "max_qps"))
        for column, ratio in zip(columns, ratios, strict=True):
            column += [] if ratio is None else [ratio]
        cells = " | ".join("–" if ratio is None else f"{ratio:.3f}" for ratio in ratios)
        lines.append(f"| {row['model']} | {row['max_batch']} | {cells} |")
    return [*lines, *(f"| **{title}** |  | {cells} |" for title, cells in _summaries(columns))]


def _summaries(columns: Sequence[Sequence[float]]) -> Iterator[tuple[str, str]]:
    """What columns of ratios come to: errors, and the factor by which they are off together."""
    for title, of in (("median error", np.median), ("largest error", np.max)):
        errors = (of(np.abs(np.asarray(column) - 1)) if column else None for column in columns)
        yield title, " | ".join("–" if e is None else percent(float(e)) for e in errors)
    means = (float(np.exp(np.mean(np.log(column)))) if column else None for column in columns)
    yield "geometric mean", " | ".join("–" if mean is None else f"{mean:.3f}" for mean in means)


def _loaded_lines(rows: Sequence[Row]) -> list[str]:
    """Each model's predictions at a share of its throughput, relative to what was served."""
    names = ("worker_p50_s", "worker_counted_s", "p50_s", "p90_s", "p99_s")
    lines = [
        f"| {rows[0]['system']} | queries/s | in the worker: p50 | p99 | latency: p50 | p90 |"
        " p99 |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    found = [[_ratio(row, name) or 0.0 for name in names] for row in rows]
    for row, ratios in zip(rows, found, strict=True):
        cells = " | ".join(f"{ratio:.3f}" for ratio in ratios)
        lines.append(f"| {row['model']} | {row['qps']:g} | {cells} |")
    columns = list(zip(*found, strict=True))
    return [*lines, *(f"| **{title}** |  | {cells} |" for title, cells in _summaries(columns))]


def _ratio(row: Row, name: str) -> float | None:
    """The prediction for the arrivals that came, relative to what was served."""
    figure = row["figures"].get(name)
    return None if figure is None else figure["expected"] / figure["real"]


def _curve_lines(rows: Sequence[Row]) -> list[str]:
    """Samples a second by the size of a batch: measured, and the ratio of what is predicted."""
    titles = " | ".join(f"batch {size}" for size in CURVED_SIZES)
    lines = [
        f"| {rows[0]['system']} | threads | {titles} |",
        f"|---|--:|{'--:|' * len(CURVED_SIZES)}",
    ]
    errors, inside = list[float](), list[bool]()
    for row in rows:
        cells = []
        for point in row["curve"]:
            if "error" in point:
                cells.append("–")
                continue
            ratio = point["predicted"] / point["measured"]
            errors.append(abs(ratio - 1))
            inside.append(point["inside"])
            cells.append(f"{point['measured']:.4g}/s ({ratio:.3f})")
        lines.append(f"| {row['model']} | {row['threads']} | {' | '.join(cells)} |")
    return [
        *lines,
        "",
        f"Median error {percent(float(np.median(errors)))}, largest {percent(max(errors))},"
        f" {sum(inside)} of {len(inside)} inside the interval.",
    ]


def _lines(rows: Sequence[Row]) -> list[str]:
    """A table for each system and number of threads."""
    lines: list[str] = []
    for system, threads in dict.fromkeys((row["system"], row["threads"]) for row in rows):
        title = f"{printable(system)}, {threads} thread{'' if threads == 1 else 's'}"
        lines += [
            *([""] if lines else []),
            f"| {title} | trimmed mean | p90 | best batch | most samples/s | highest rate |",
            "|---|--:|--:|--:|--:|--:|",
        ]
        for row in rows:
            if (row["system"], row["threads"]) != (system, threads):
                continue
            if "p90_s" not in row:
                lines.append(f"| {row['model']} | – | – | – | – | – |")
                continue
            limit = f" of {row['largest_batch']}" if row["error"] else ""
            lines.append(
                f"| {row['model']} | {seconds(row['trimmed_mean_s'][0])} |"
                f" {seconds(row['p90_s'][0])} | {row['best_batch']}{limit} |"
                f" {row['throughput'][0]:.4g} | {row['max_qps'][0]:.4g}/s |"
            )
    return lines


if __name__ == "__main__":
    main()
