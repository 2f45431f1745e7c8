"""Sums up the rows of accuracy.py: errors by case and machine state, calls, intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from statistics import geometric_mean

from accuracy_results import CALLS, Calls, Case, Errors, Figures, Host, Intervals, Row

from bricks.compose.basis import IN_WALK_CALL_FACTOR
from bricks.compose.recomposition_error import CALL_SHARE, STATE_SHARE
from bricks.samples.machine_state import same_state, states
from bricks.samples.statistics import median
from bricks.zoo import entries

FAMILIES = {entry.name: entry.family for entry in entries()}


def summed_up(host: Host, finished: str) -> Host:
    """A host with all figures that follow from its rows; ``finished`` is the date."""
    rows = host.rows
    return replace(
        host,
        finished=finished,
        cases=tuple(replace(case, figures=case_figures(case)) for case in host.cases),
        figures=figures_of(f"all {len(rows)}", rows) if rows else None,
        calls=calls_of(rows),
        intervals=intervals_of(rows),
    )


def figures_of(title: str, rows: Sequence[Row]) -> Figures:
    """The errors of ``rows``, of which there must be one at least."""
    noises = [row.noise for row in rows if row.noise is not None]
    return Figures(
        title=title,
        models=len(rows),
        errors=errors_of([row.ratio for row in rows]),
        inside=_digits(sum(row.inside for row in rows) / len(rows)),
        noise_floor=_digits(median(noises)) if noises else None,
    )


def case_figures(case: Case) -> tuple[Figures, ...]:
    """Those of all rows; of each machine state, where there are several; and of changes."""
    if not case.rows:
        return ()
    found = [figures_of(case.title, case.rows)]
    changed = [row for row in case.rows if row.changed]
    steady = [row for row in case.rows if not row.changed]
    met = [s for s in states(row.state_us for row in steady) if s is not None]
    if len(met) + bool(changed) > 1:
        left = steady
        for state_us in met:
            mine = [row for row in left if same_state(row.state_us, state_us)]
            left = [row for row in left if not same_state(row.state_us, state_us)]
            found.append(figures_of(f"in the state of {state_us:.0f} µs", mine))
    if changed:
        found.append(figures_of("between two states", changed))
    return tuple(found)


def calls_of(rows: Iterable[Row]) -> Calls | None:
    """The effect of the factor; None where families cannot be left out."""
    every = [(FAMILIES[row.model], row.by_factor) for row in rows if row.by_factor is not None]
    families = sorted({family for family, _ in every})
    if len(families) < 2:
        return None

    def best(kept: Collection[Sequence[float]]) -> int:
        errors = [sum(abs(of[i] - 1) for of in kept) for i in range(len(CALLS))]
        return errors.index(min(errors))

    left_out = {family: best([of for other, of in every if other != family]) for family in families}

    def errors(way: Callable[[str], int]) -> Errors:
        return errors_of([of[way(family)] for family, of in every])

    return Calls(
        shipped_factor=IN_WALK_CALL_FACTOR,
        left_out_factors=sorted({CALLS[i] for i in left_out.values()}),
        best_factor=CALLS[best([of for _, of in every])],
        one=errors(lambda family: CALLS.index(1.0)),
        shipped=errors(lambda family: CALLS.index(IN_WALK_CALL_FACTOR)),
        left_out=errors(lambda family: left_out[family]),
    )


def intervals_of(rows: Iterable[Row]) -> Intervals | None:
    """How often intervals hold the latency; None where families cannot be left out."""
    known = [row for row in rows if row.composing_us]
    families = sorted({FAMILIES[row.model] for row in known})
    if len(families) < 2:
        return None
    hits, widths = [], []
    for family in families:
        scale = quantile([_needed(r) for r in known if FAMILIES[r.model] != family], 0.95)
        for row in known:
            if FAMILIES[row.model] == family:
                half_us = _half_us(row, scale)
                hits.append(row.miss_us <= half_us)
                widths.append(half_us / row.estimate_us)
    return Intervals(
        state_share=STATE_SHARE,
        call_share=CALL_SHARE,
        samples_inside=_digits(sum(r.miss_us <= _half_us(r, 0.0) for r in known) / len(known)),
        shipped_inside=_digits(sum(row.miss_us <= row.half_us for row in known) / len(known)),
        shipped_width=_digits(median([row.half_us / row.estimate_us for row in known])),
        left_out_inside=_digits(sum(hits) / len(hits)),
        left_out_width=_digits(median(widths)),
        scale=_digits(quantile([_needed(row) for row in known], 0.95)),
    )


def _half_us(row: Row, scale: float) -> float:
    """Half the width of an interval whose composition part is ``scale`` times as wide.

    In rows from before both were independent, the parts add up; else their squares do.
    """
    part_us = scale * (row.composing_us or 0.0)
    if row.sampled_us is None:
        return row.half_us - (row.composing_us or 0.0) + part_us
    return math.hypot(row.sampled_us, part_us)


def _needed(row: Row) -> float:
    """The factor by which the composition part of an interval would have to be wider."""
    part_us = row.composing_us or math.nan
    if row.sampled_us is None:
        return max(0.0, row.miss_us - (row.half_us - part_us)) / part_us
    return math.sqrt(max(0.0, row.miss_us**2 - row.sampled_us**2)) / part_us


def errors_of(ratios: Sequence[float]) -> Errors:
    """The errors of ``ratios``, of which there must be one at least."""
    errors = [abs(ratio - 1) for ratio in ratios]
    found = (median(errors), quantile(errors, 0.95), max(errors), geometric_mean(ratios))
    return Errors(*map(_digits, found))


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _digits(value: float) -> float:
    return round(value, 5)
