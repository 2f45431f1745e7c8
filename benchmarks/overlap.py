"""Do bricks that overlap by one layer give better estimates? Compare them with those that don't.

    .venv/bin/python benchmarks/overlap.py

Writes the tables in docs/overlap.md, and raw results, in microseconds, to
benchmarks/results/overlap.json. Each model is cut at each granularity in turn, with a fresh cache
each time, so that every estimate is sampled in turn with runs of the whole model. Takes about
six minutes with ONNX Runtime; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from bricks import Bench, BricksError, Measurement, ModelComparison, Options
from bricks.compose.basis import IN_WALK_CALL_FACTOR
from bricks.decompose.plan import Plan
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.report.tables import number, percent
from bricks.samples.measurement import round_spread
from bricks.samples.statistics import median
from bricks.system import Target

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "overlap.json"
PAGE = ROOT / "docs" / "overlap.md"

# Of ten families, six of them with convolutions in the main.
MODELS = (
    "densenet121", "efficientnet_b0", "gluon_mobilenet10", "gluon_resnet34_v2", "regnet_y",
    "mobilevit", "distilbert", "t5_encoder", "segformer", "whisper_encoder",
)  # fmt: skip
LAYERS = (2, 4, 8)
GRANULARITIES = ("executed", "1", *(f"{n}{overlap}" for n in LAYERS for overlap in ("", "+1")))


@dataclass(frozen=True, slots=True)
class Cell:
    """A model at a granularity; ``net_s`` are latencies of bricks by key, without call overhead."""

    target: Target
    row: ModelComparison
    net_s: Mapping[str, float]
    latency_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Column:
    """Ratios of estimates to measured latencies by model, and the cost of the estimates."""

    ratios: Mapping[str, float]
    inside: float | None = None
    bricks: int | None = None
    occurrences: int | None = None
    speedup: float | None = None


Cells = dict[tuple[str, str], Cell]  # by model and granularity


def main() -> None:
    """Measure, and write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--max-rounds", type=int, default=12)
    arguments = parser.parse_args()
    rule = StopRule(precision=arguments.precision, max_rounds=arguments.max_rounds)
    cells, missing = measured(arguments.models, arguments.runtime, arguments.threads, rule)
    if not cells:
        raise SystemExit("nothing was compared:\n" + "\n".join(missing))
    write_raw(arguments.runtime, cells)
    cuts = {cut for _, cut in cells}
    common = [n for n in arguments.models if all((n, cut) in cells for cut in cuts)]
    target = next(iter(cells.values())).target
    lines = [
        f"{datetime.now(UTC).date()}, {target.system.name}, {target.runtime.backend}"
        f" {target.runtime.version}, {arguments.threads} thread{'s' * (arguments.threads > 1)},"
        " batch 1. Estimate over measured latency:",
        "",
        *ratio_table(arguments.models, all_columns(cells)),
        "",
        f"Over the {len(common)} models that have been compared in all ways:",
        "",
        *summary_table(all_columns({key: c for key, c in cells.items() if key[0] in common})),
        *([""] if missing else []),
        *(f"- Not compared: {line}" for line in missing),
    ]
    write_page(arguments.runtime, lines)


def measured(
    names: Sequence[str], runtime: str, threads: int, rule: StopRule
) -> tuple[Cells, list[str]]:
    """Every model at every granularity; and a line for each that could not be compared."""
    cells: Cells = {}
    missing: list[str] = []
    for name in names:
        for granularity in GRANULARITIES:
            options = Options(runtime, granularity, threads, conditions=Conditions(rule=rule))
            try:
                cell = compared(name, options)
            except BricksError as error:
                cell = str(error)
            if isinstance(cell, Cell):
                cells[name, granularity] = cell
                print(f"{name} {granularity}: {cell.row.ratio:.3f}", flush=True)
            else:
                missing.append(f"`{granularity}`: {cell}")
    return cells, missing


def compared(name: str, options: Options) -> Cell | str:
    """A model with the latencies behind its estimate, or the reason why there is none."""
    with tempfile.TemporaryDirectory() as cache, Bench(cache, options) as bench:
        (row,) = bench.compare([bench.read(name)]).rows
        return cell_of(bench, row) if isinstance(row, ModelComparison) else row.error


def cell_of(bench: Bench, row: ModelComparison) -> Cell:
    """``row`` with the latencies behind its estimate."""
    found = bench.store.measurements.results(bench.target.key, row.plan.keys)
    latency_s = {
        key: round_spread(m).value for key, m in found.items() if isinstance(m, Measurement)
    }
    call_s = IN_WALK_CALL_FACTOR * row.estimate.call_overhead_s
    net_s = {key: max(0.0, s - call_s) for key, s in latency_s.items()}
    return Cell(bench.target, row, net_s, latency_s)


def all_columns(cells: Cells) -> dict[str, Column]:
    """Columns of the tables, by name; a column of smaller readings follows the two it combines."""
    columns = {}
    for granularity in GRANULARITIES:
        columns[granularity] = column_of(cells, granularity)
        if granularity.endswith("+1"):
            plain = granularity.removesuffix("+1")
            columns[f"min({plain}, {granularity})"] = Column(
                {
                    name: smallest_s(cells[name, plain], cell) / cell.row.measured_s.value
                    for (name, cut), cell in cells.items()
                    if cut == granularity and (name, plain) in cells
                }
            )
    return {name: column for name, column in columns.items() if column.ratios}


def column_of(cells: Cells, granularity: str) -> Column:
    """The column of one granularity."""
    found = {name: cell for (name, cut), cell in cells.items() if cut == granularity}
    rows = [cell.row for cell in found.values()]
    unique: dict[str, float] = {}
    for cell in found.values():
        unique = {**cell.latency_s, **unique}
    hits = [row.estimate.low_s <= row.measured_s.value <= row.estimate.high_s for row in rows]
    return Column(
        ratios={name: cell.row.ratio for name, cell in found.items()},
        inside=sum(hits) / max(1, len(hits)),
        bricks=len(unique),
        occurrences=sum(len(row.plan.occurrences) for row in rows),
        speedup=sum(row.measured_s.value for row in rows) / sum(unique.values()) if rows else None,
    )


def smallest_s(plain: Cell, overlapping: Cell) -> float:
    """The estimate from the smaller of two readings of each piece, in seconds.

    One reading runs the piece alone, the other runs it with the layer before it and subtracts that
    layer. Layout conversions of a session make a reading too high; noise makes the smaller of two
    readings too small.
    """
    alone_s = [plain.net_s[o.brick] for o in plain.row.plan.occurrences]
    together_s = added_s(overlapping.row.plan, overlapping.net_s)
    pairs = zip(alone_s, together_s, strict=True)
    return overlapping.row.estimate.call_overhead_s + sum(map(min, pairs))


def added_s(plan: Plan, net_s: Mapping[str, float]) -> Iterator[float]:
    """The latency that each brick of an overlapping plan adds to the model, in order."""
    shared_s = 0.0
    for occurrence in plan.occurrences:
        if occurrence.repeats is not None:
            shared_s = net_s[occurrence.brick]
        else:
            yield net_s[occurrence.brick] - shared_s
            shared_s = 0.0


def ratio_table(names: Sequence[str], columns: Mapping[str, Column]) -> list[str]:
    """A row for each model."""
    lines = [
        "| model | " + " | ".join(columns) + " |",
        "|---|" + "--:|" * len(columns),
    ]
    for name in names:
        ratios = (number(column.ratios.get(name), 3) for column in columns.values())
        lines.append(f"| {name} | {' | '.join(ratios)} |")
    return lines


def summary_table(columns: Mapping[str, Column]) -> list[str]:
    """A row for each way to cut."""
    lines = [
        "| granularity | geometric mean | median error | worst | inside the interval | bricks"
        " | occurrences | latencies, models / bricks |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, column in columns.items():
        ratios = list(column.ratios.values())
        errors = [abs(ratio - 1) for ratio in ratios]
        cells = (
            number(geometric_mean(ratios), 3),
            percent(median(errors)),
            percent(max(errors)),
            percent(column.inside, 0),
            "–" if column.bricks is None else str(column.bricks),
            "–" if column.occurrences is None else str(column.occurrences),
            number(column.speedup),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def write_raw(runtime: str, cells: Cells) -> None:
    """Add what was found with ``runtime`` to the raw results."""
    raw: dict[str, Any] = {}
    if RAW.exists():
        raw = json.loads(RAW.read_text(encoding="utf-8"))
    found: dict[str, Any] = {}
    for (name, granularity), cell in cells.items():
        row, estimate = cell.row, cell.row.estimate
        found.setdefault(name, {})[granularity] = {
            "measured": _micro(row.measured_s.value),
            "estimate": _micro(estimate.estimate_s),
            "low": _micro(estimate.low_s),
            "high": _micro(estimate.high_s),
            "bricks": len(row.plan.keys),
        }
    RAW.parent.mkdir(exist_ok=True)
    raw[runtime] = found
    RAW.write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")


def _micro(latency_s: float) -> float:
    return float(f"{latency_s * 1e6:.4g}")


def write_page(runtime: str, lines: Sequence[str]) -> None:
    """Put ``lines`` between the marks of ``runtime`` in the page, at its end if there are none."""
    begin, end = f"<!-- {runtime}: written by benchmarks/overlap.py -->", f"<!-- /{runtime} -->"
    text = PAGE.read_text(encoding="utf-8")
    if begin not in text:
        text += f"\n{begin}\n{end}\n"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    table = "\n".join(lines)
    PAGE.write_text(f"{before}{begin}\n{table}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
