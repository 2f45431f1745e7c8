"""The data of a report's charts, in compact form: lists of numbers and indices.

All facts of a brick are stored once for each target, and models refer to them by index. The page's
script expands them. Must not know how it is drawn.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from bricks.analysis.cache_summary import CacheSummary, ModelView, TargetView
from bricks.analysis.explanation import Part
from bricks.compose.estimate import Estimate
from bricks.errors import printable
from bricks.report.figures import interval_text
from bricks.report.tables import percent, seconds
from bricks.report.tracks import tracks

Facts = dict[str, Any]


def page_data(summary: CacheSummary, labels: Sequence[str]) -> Facts:
    """All data of the page; ``labels`` are the names of the targets, in their order."""
    return {
        "targets": [_target(view) for view in summary.targets],
        "systems": _systems(summary, labels) if len(summary.targets) > 1 else [],
    }


def _target(view: TargetView) -> Facts:
    index: dict[str, int] = {}
    bricks: list[list[Any]] = []
    models = []
    for model in view.models:
        for part in model.explanation.parts:
            if part.brick not in index:
                index[part.brick] = len(bricks)
                operator, shapes = printable(part.operator), printable(part.shapes)
                bricks.append(
                    [part.brick, operator, shapes, part.flops, _round(part.bytes), part.roof_s]
                )
        models.append(_model(model, index))
    levels = [level.bytes_per_s for level in view.peaks.levels]
    peaks = view.peaks.flops_per_s, view.peaks.bytes_per_s, max(levels, default=None)
    return {
        "bricks": bricks,
        "models": models,
        "peaks": [None if peak is None else _round(peak) for peak in peaks],
        "latencies": _latencies(view.models),
        "similarity": _similar(view),
        "costly": _cumulative(view),
        "colors": _colored(view),
    }


def _model(model: ModelView, index: dict[str, int]) -> Facts:
    """Parts are (brick, places, seconds of all, predicted, best known seconds of one)."""
    plan = model.plan
    return {
        "parts": [[index[part.brick], *_part(part)] for part in model.explanation.parts],
        "places": [
            [index.get(occurrence.brick, -1), track, needed]
            for occurrence, needed, track in zip(
                plan.occurrences, plan.producers(), tracks(plan.producers()), strict=True
            )
        ],
    }


def _part(part: Part) -> list[Any]:
    best_s = None if part.fastest is None else _round(part.fastest.latency_s)
    return [part.occurrences, _round(part.total_s), int(part.predicted), best_s]


def _latencies(models: Sequence[ModelView]) -> list[Facts]:
    """A row for each model with an estimate, the slowest first."""
    rows = []
    for model in models:
        estimate = model.estimate
        if estimate is None:
            continue
        row: Facts = {
            **_estimate(model, estimate),
            "measured": seconds(None),
            "low_ms": _round(estimate.low_s * 1e3),
            "high_ms": _round(estimate.high_s * 1e3),
        }
        if model.measured_s is not None and model.ratio is not None:
            measured_s = model.measured_s.value
            inside = estimate.low_s <= measured_s <= estimate.high_s
            row |= {
                "measured": seconds(measured_s),
                "measured_ms": _round(measured_s * 1e3),
                "ratio": _round(model.ratio),
                "low_ratio": _round(estimate.low_s / measured_s),
                "high_ratio": _round(estimate.high_s / measured_s),
                "error_percent": _round((model.ratio - 1) * 100),
                "inside": "inside the interval" if inside else "outside",
                "off": f"{(model.ratio - 1) * 100:+.1f} % off",
            }
        rows.append(row)
    return sorted(rows, key=lambda row: -row["estimate_ms"])


def _estimate(model: ModelView, estimate: Estimate) -> Facts:
    """The title and the estimate of a model, as text and in milliseconds."""
    return {
        "title": printable(model.title),
        "estimate": seconds(estimate.estimate_s),
        "interval": interval_text(estimate.latency_s),
        "estimate_ms": _round(estimate.estimate_s * 1e3),
    }


def _similar(view: TargetView) -> Facts:
    """Titles in an order that puts similar models next to each other, and the nonzero values."""
    order = view.similarity.ordered()
    grid = view.similarity.grid
    return {
        "titles": [printable(view.models[position].title) for position in order],
        "shared": [
            [i, j, _round(grid[a][b], 3)]
            for i, a in enumerate(order)
            for j, b in enumerate(order)
            if grid[a][b] > 0
        ],
    }


def _cumulative(view: TargetView) -> list[Facts]:
    """The share of all time in the n costliest bricks, for some fifty values of n."""
    sums = list(accumulate(brick.share for brick in view.costly))
    if not sums:
        return []
    step = max(1, len(sums) // 50)
    numbers = sorted({*range(1, min(len(sums), 20) + 1), *range(step, len(sums), step), len(sums)})
    return [{"bricks": n, "share": _round(sums[n - 1]), "text": percent(sums[n - 1])}
            for n in numbers]  # fmt: skip


def _colored(view: TargetView, most: int = 6) -> list[str]:
    """The ``most`` operators with the most time over all models, which have their own colours."""
    total_s: dict[str, float] = defaultdict(float)
    for brick in view.costly:
        total_s[printable(brick.operator)] += brick.total_s
    return sorted(total_s, key=lambda operator: -total_s[operator])[:most]


def _systems(summary: CacheSummary, labels: Sequence[str]) -> list[Facts]:
    """Latencies of the models that more than one target has, the slowest first."""
    target_counts = Counter(model.plan.digest for view in summary.targets for model in view.models
                   if model.estimate is not None)  # fmt: skip
    rows: list[tuple[str, float, Facts]] = []
    for view, label in zip(summary.targets, labels, strict=True):
        for model in view.models:
            estimate = model.estimate
            if estimate is None or target_counts[model.plan.digest] < 2:
                continue
            row = {**_estimate(model, estimate), "target": label}
            rows.append((model.plan.digest, estimate.estimate_s, row))
    slowest_s: dict[str, float] = defaultdict(float)
    for digest, estimate_s, _ in rows:
        slowest_s[digest] = max(slowest_s[digest], estimate_s)
    rows.sort(key=lambda item: (-slowest_s[item[0]], item[0]))
    return [row for _, _, row in rows]


def _round(value: float, digits: int = 4) -> float:
    """``value`` rounded to so many significant digits: more would only enlarge the page."""
    return float(f"{value:.{digits}g}")
