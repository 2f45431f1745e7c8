"""The latencies of models as one self-contained HTML file: no network, no server, no other file.

A page of one model shows where its time goes; a page of several shows which are slow and which are
uncertain. Must not compute results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.compose.estimate import IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import printable
from bricks.report.agreement import agreement_remarks
from bricks.report.latency_answers import UNCERTAIN, report_answer, uncertain_models
from bricks.report.page import Scale, render_page, script, share_style, target_label
from bricks.report.prediction import phase_lines
from bricks.report.tables import peak_size, percent, seconds, size
from bricks.report.wide_intervals import (
    ShownEstimate,
    advice_for,
    common_advice,
    main_cause,
    uncertainty_parts,
)
from bricks.report.words import count_text, listed, source_text, uncertainty_text
from bricks.session.targets import short_names

if TYPE_CHECKING:
    from bricks.analysis.latency_survey import LatencySurvey, SurveyedModel, SurveyedTarget
    from bricks.units.interval import Interval

# By the keys of targets and the digests of models.
ShownEstimates = Mapping[str, Mapping[str, ShownEstimate]]

Values = dict[str, Any]

# Operators of a model: on its own page, and in a list of models.
_OPERATORS, _FEW_OPERATORS = 8, 4

# Rows of tables of bricks, of uncertain models, and columns of targets.
_BRICKS, _UNCERTAIN, _TARGETS = 30, 12, 8

_NAMED = 4


def latency_page(
    survey: LatencySurvey, *, version: str, made: str, shown: ShownEstimates | None = None
) -> str:
    """The page; ``version`` is that of this package, ``made`` the time of its creation.

    ``shown`` has commands that narrow intervals; without it, the page has none.
    """
    single = survey.models == 1
    values = _single_values(survey, shown or {}) if single else _many_values(survey, shown or {})
    return render_page(
        "model" if single else "models",
        answer=report_answer(survey),
        extent=extent_text(survey),
        granularity=survey.granularity,
        version=version,
        made=made,
        script=script("tables"),
        **values,
    )


def extent_text(survey: LatencySurvey) -> str:
    """``9 models on 3 systems``."""
    return f"{count_text(survey.models, 'model')} on {count_text(survey.systems, 'system')}"


def _single_values(survey: LatencySurvey, shown: ShownEstimates) -> Values:
    view = survey.main
    model = view.models[0]
    estimate = shown.get(view.target.key, {}).get(model.plan.digest)
    recomposed = model.recomposed
    gaps = recomposed.gaps if isinstance(recomposed, IncompleteEstimate) else ()
    return {
        "title": printable(model.title),
        "places": _places(survey),
        "measured": _measured_text(model),
        "operators": _operators(model, _OPERATORS),
        "phases": [] if model.estimate is None else phase_lines(model.title, model.estimate.phases),
        "memory": _memory(model),
        "parts": [] if estimate is None else uncertainty_parts(estimate),
        "unmeasured": _unmeasured_bricks(view, model),
        "advice": None if estimate is None else advice_for(estimate),
        "gaps": [f"{gap.brick[:11]}, {gap.occurrences} ×: {printable(gap.reason)}" for gap in gaps],
        "bricks": view.costly[:_BRICKS],
        "all_bricks": len(view.costly),
        "facts": _target_facts(view),
    }


def _places(survey: LatencySurvey) -> list[Values]:
    rows = [(view, view.models[0]) for view in survey.targets if view.models[0].estimate]
    scale = Scale.of(model.estimate.latency_s for _, model in rows if model.estimate)
    return [
        {
            "label": target_label(view.target),
            "here": view.target.key == survey.here.key,
            "log": scale.logarithmic,
            **_latency(model, scale),
        }
        for view, model in rows
    ]


def _latency(model: SurveyedModel, scale: Scale) -> Values:
    estimate = model.estimate
    assert estimate is not None, "only models with an estimate have a latency"
    return {
        "latency": seconds(estimate.estimate_s),
        "latency_s": _digits(estimate.estimate_s),
        "low": seconds(max(0.0, estimate.low_s)),
        "high": seconds(estimate.high_s),
        "uncertainty": uncertainty_text(estimate.latency_s),
        "width": _digits(min(estimate.relative_uncertainty, 1e9)),
        "source": source_text(estimate.provenance),
        "style": scale.style(estimate.latency_s),
    }


def _digits(value: float) -> str:
    """A number to sort by."""
    return f"{value:.4g}"


def _measured_text(model: SurveyedModel) -> str | None:
    if model.measured_s is None or model.ratio is None:
        return None
    off = f"{100 * abs(model.ratio - 1):.1f} %"
    side = "above" if model.ratio >= 1 else "below"
    inside = model.estimate is not None and (
        model.estimate.low_s <= model.measured_s.value <= model.estimate.high_s
    )
    return (
        f"The whole model was run too: {seconds(model.measured_s.value)}. The estimate is {off}"
        f" {side}; the run is {'inside' if inside else 'outside'} its interval."
    )


def _operators(model: SurveyedModel, most: int) -> list[Values]:
    longest = max((part.share for part in model.operators), default=1.0) or 1.0
    shown = [
        (printable(part.operator), part.occurrences, part.total_s, part.share)
        for part in model.operators[:most]
        if part.total_s > 0
    ]
    rest = model.operators[most:]
    if rest:
        others = f"{count_text(len(rest), 'other operator')}"
        counts = sum(part.occurrences for part in rest)
        shown.append((others, counts, sum(p.total_s for p in rest), sum(p.share for p in rest)))
    return [
        {
            "operator": operator,
            "occurrences": count,
            "time": seconds(total_s),
            "share": percent(share, 0) if share >= 0.005 else "<1 %",
            "style": share_style(share / longest),
        }
        for operator, count, total_s, share in shown
    ]


def _memory(model: SurveyedModel) -> Values | None:
    memory = model.memory
    if not isinstance(memory, PeakMemory):
        return None
    parts = memory_parts(memory)
    longest = max((size_bytes for _, size_bytes in parts), default=0) or 1
    return {
        "peak": peak_size(memory.peak_bytes, memory.unknown),
        "parts": [
            {"name": name, "size": size(part_bytes), "style": share_style(part_bytes / longest)}
            for name, part_bytes in parts
        ],
        "text": ", ".join(f"{name} {size(part_bytes)}" for name, part_bytes in parts),
        "lacks": printable("; ".join(memory.unknown)),
    }


def memory_parts(memory: PeakMemory) -> list[tuple[str, int]]:
    """The parts of a peak memory by name, the largest first; empty ones are left out."""
    every = [(name, getattr(memory, f"{field}_bytes")) for field, name in _MEMORY_PARTS.items()]
    return sorted((part for part in every if part[1]), key=lambda part: -part[1])


_MEMORY_PARTS = {
    "weight": "weights", "activation": "activations", "gradient": "gradients",
    "optimizer": "optimiser's state", "temporary": "temporaries", "workspace": "workspace",
    "runtime": "runtime", "loading": "loading",
}  # fmt: skip


def _unmeasured_bricks(view: SurveyedTarget, model: SurveyedModel) -> list[Values]:
    known = {brick.brick: brick for brick in view.costly}
    shares = sorted(model.recomposed.shares, key=lambda share: -share.latency_s)
    return [
        {
            "operator": printable(known[share.brick].operator),
            "shapes": printable(known[share.brick].shapes),
            "share": percent(share.share),
            "origin": "predicted" if share.predicted else "published",
        }
        for share in shares
        if (share.predicted or share.published) and share.latency_s > 0
    ][:_UNCERTAIN]


def _target_facts(view: SurveyedTarget) -> Values:
    system, runtime = view.target.system, view.target.runtime
    facts = {
        "system": f"{system.name} ({system.key})",
        "processor": system.identity.get("cpu"),
        "runtime": f"{runtime.backend} {runtime.version}",
        "threads": runtime.threads,
        "optimisation": runtime.optimization,
        "bricks": f"{view.measured} of {view.bricks} measured",
        "target": view.target.key,
    }
    return {name: printable(str(fact)) for name, fact in facts.items() if fact is not None}


def _many_values(survey: LatencySurvey, shown: ShownEstimates) -> Values:
    main = survey.main
    of_main = shown.get(main.target.key, {})
    wide = [m for m in uncertain_models(main) if m.plan.digest in of_main]
    return {
        "targets": [_target(view, number) for number, view in enumerate(survey.targets)],
        "uncertain": [_uncertain(m, of_main[m.plan.digest]) for m in wide[:_UNCERTAIN]],
        "more_uncertain": len(wide) - len(wide[:_UNCERTAIN]),
        "bound": percent(UNCERTAIN, 0),
        "advice": common_advice([of_main[model.plan.digest] for model in wide]),
        "lacking": _lacking(main),
        "matrix": _matrix(survey),
        "differing": agreement_remarks(survey.agreements),
        "costly": main.costly[:_BRICKS],
        "all_bricks": len(main.costly),
        "models": [_model(model) for model in main.estimated],
    }


def _target(view: SurveyedTarget, number: int) -> Values:
    """The table of a target's models; columns without any value are left out."""
    known = view.estimated
    scale = Scale.of(model.estimate.latency_s for model in known if model.estimate)
    sources = {source_text(model.estimate.provenance) for model in known if model.estimate}
    return {
        "number": number,
        "label": target_label(view.target),
        "facts": _target_facts(view),
        "count": len(known),
        "uncertain": len(uncertain_models(view)),
        "rows": [
            {
                "title": printable(model.title),
                "task": model.task or "",
                **_latency(model, scale),
                "ratio": None if model.ratio is None else f"{100 * (model.ratio - 1):+.1f} %",
                "error": None if model.ratio is None else _digits(model.ratio - 1),
                "memory": None if model.peak_bytes is None else _memory_text(model),
                "peak_bytes": model.peak_bytes,
            }
            for model in known
        ],
        "scale": f"{seconds(scale.low)} to {seconds(scale.high)}, log scale"
        if scale.logarithmic
        else f"0 to {seconds(scale.high)}",
        "one_source": next(iter(sources)) if len(sources) == 1 else None,
        "checked": _checked_text(view),
        "has_ratio": any(model.ratio is not None for model in known),
        "has_memory": any(model.peak_bytes is not None for model in known),
    }


def _memory_text(model: SurveyedModel) -> str:
    unknown = model.memory.unknown if isinstance(model.memory, PeakMemory) else ()
    return peak_size(model.peak_bytes, unknown)


def _checked_text(view: SurveyedTarget) -> str | None:
    summary = view.summary
    if summary.median_abs_error is None or summary.geomean_ratio is None:
        return None
    return (
        f"{count_text(summary.models, 'model')} were also run as a whole. The median error of"
        f" their estimates is {percent(summary.median_abs_error)}; the geometric mean of estimate"
        f" over run is {summary.geomean_ratio:.3f}."
    )


def _uncertain(model: SurveyedModel, shown: ShownEstimate) -> Values:
    estimate = shown.estimate
    return {
        "title": printable(model.title),
        "latency": seconds(estimate.estimate_s),
        "uncertainty": uncertainty_text(estimate.latency_s),
        "cause": main_cause(shown),
    }


def _lacking(view: SurveyedTarget) -> str | None:
    names = [printable(model.title) for model in view.incomplete]
    if not names:
        return None
    more = len(names) - _NAMED
    few = listed([*names[:_NAMED], f"{more} more"]) if more > 0 else listed(names)
    lacks = "lacks" if len(names) == 1 else "lack"
    return f"{few} {lacks} measurements, so there is no estimate: 'bricks measure' takes them."


def _matrix(survey: LatencySurvey) -> Values | None:
    """The latencies of models that several targets know; the fastest of a row is marked."""
    views = survey.targets[:_TARGETS]
    if len(views) < 2:
        return None
    cells: dict[str, dict[str, Interval]] = {}
    names: dict[str, str] = {}
    for view in views:
        for model in view.estimated:
            assert model.estimate is not None, "it is estimated"
            cells.setdefault(model.plan.digest, {})[view.target.key] = model.estimate.latency_s
            names.setdefault(model.plan.digest, printable(model.title))
    rows = [
        {"title": names[digest], "cells": _matrix_cells(cells[digest], views)}
        for digest in cells
        if len(cells[digest]) > 1
    ]
    systems = short_names({view.target.system.name for view in views})
    runtimes = [view.target.runtime for view in views]
    short = [
        f"{systems[view.target.system.name]} {of.backend}, {count_text(of.threads, 'thread')}"
        for view, of in zip(views, runtimes, strict=True)
    ]
    whole = [target_label(view.target) for view in views]
    labels = [
        printable(label) if short.count(label) == 1 else name
        for label, name in zip(short, whole, strict=True)
    ]
    left = len(survey.targets) - len(views)
    return {"labels": labels, "rows": rows, "left": left} if rows else None


def _matrix_cells(of: Mapping[str, Interval], views: Sequence[SurveyedTarget]) -> list[Values]:
    best = min(latency.value for latency in of.values())
    return [
        {
            "text": "" if latency is None else seconds(latency.value),
            "sort": "" if latency is None else _digits(latency.value),
            "best": latency is not None and latency.value == best,
        }
        for latency in (of.get(view.target.key) for view in views)
    ]


def _model(model: SurveyedModel) -> Values:
    estimate = model.estimate
    assert estimate is not None, "only models with an estimate are listed"
    memory = _memory(model)
    return {
        "title": printable(model.title),
        "latency": seconds(estimate.estimate_s),
        "uncertainty": uncertainty_text(estimate.latency_s),
        "operators": _operators(model, _FEW_OPERATORS),
        "memory": memory,
        "measured": _measured_text(model),
        "phases": phase_lines(model.title, estimate.phases),
    }
