"""How accurate are estimates? The zoo next to whole-model runs, in pieces of any length.

    .venv/bin/python -m benchmarks accuracy --minutes 20

For every number of threads and every batch size, bricks and whole models are sampled in turn, model
by model, in a cache that stays until ``--again``. Then a part of the zoo is cut at several
granularities. Results of other hosts are kept. Run nothing else meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from benchmarks import accuracy_page, summary
from benchmarks.accuracy_page import CALLS, Case, Cut, Granularity, Row
from benchmarks.ratios import microseconds
from benchmarks.study import Benchmark, Run
from bricks import Bench, BricksError, Comparison, Measurement, ModelComparison
from bricks.compose.basis import Basis, Results
from bricks.compose.estimate import Estimate
from bricks.compose.recompose import recompose
from bricks.compose.recomposition_error import composition_s
from bricks.decompose.plan import Plan
from bricks.samples.call_overhead import PROBES
from bricks.samples.correction import conditions_of
from bricks.samples.measurement import round_spread
from bricks.session.measured_target import HostHistory
from bricks.studies.inference.result import repeat_error
from bricks.zoo import entries

THREADS, BATCHES = (1, 2), (1, 4)

# Models that are cut at several granularities: one of each kind, none of them large.
CUT = (
    "squeezenet", "resnet18", "mobilenet_v2", "shufflenet", "inception_v1", "gluon_mobilenet025",
    "bert_mini", "gpt2", "vit_tiny", "convnext", "poolformer", "wav2vec2",
)  # fmt: skip
GRANULARITIES = ("executed", "1", "2", "3", "5", "10")


def cases() -> list[Case]:
    """All models of the zoo, at each batch size with each number of threads."""
    return [
        Case(threads, batch, entry.name)
        for batch in BATCHES
        for threads in THREADS
        for entry in entries()
    ]


def run(case: Case, run: Run) -> Row:
    """Compare a model with its runs."""
    with run.bench(case.cache, threads=case.threads) as bench:
        model = bench.read(case.model, batch=case.batch)
        comparison = bench.compare([model])
        (row,) = comparison.rows
        if not isinstance(row, ModelComparison):
            raise BricksError(row.error)
        return _row(bench, case, comparison, row, model.read_s)


def _row(
    bench: Bench, case: Case, comparison: Comparison, row: ModelComparison, read_s: float
) -> Row:
    plan, estimate, measured = row.plan, row.estimate, row.measured_s
    results = bench.store.measurements.results(
        bench.target.key, [*plan.keys, plan.digest, *PROBES.values()]
    )
    whole = results[plan.digest]
    assert isinstance(whole, Measurement)
    noise = repeat_error(whole)
    half_s, composing_s = (estimate.high_s - estimate.low_s) / 2, _composing_s(plan, estimate)
    new = [part for key in _new_bricks(bench, plan)
           if isinstance(part := results[key], Measurement)]  # fmt: skip
    basis = _basis(bench, plan, results, whole)
    wall_s = dict((known.digest, wall_s) for known, wall_s in _plans(bench))[plan.digest]
    return Row(
        case=case,
        occurrences=len(plan.occurrences),
        bricks=len(plan.keys),
        measured_us=microseconds(measured.value),
        measured_low_us=microseconds(measured.low),
        measured_high_us=microseconds(measured.high),
        estimate_us=microseconds(estimate.estimate_s),
        low_us=microseconds(estimate.low_s),
        high_us=microseconds(estimate.high_s),
        ratio=round(row.ratio, 4),
        noise=None if noise is None else round(noise, 4),
        composing_us=microseconds(composing_s),
        sampled_us=microseconds(math.sqrt(max(0.0, half_s**2 - composing_s**2))),
        by_factor=tuple(_ratio(replace(basis, in_walk_call_factor=factor), row)
                        for factor in CALLS),
        rounds=comparison.rounds,
        disturbed_rounds=comparison.disturbed_rounds,
        remeasured_bricks=comparison.remeasured_bricks,
        whole_wall_s=round(read_s + whole.wall_s, 4),
        new_bricks_us=microseconds(sum(round_spread(part).value for part in new)),
        new_bricks_wall_s=round(read_s + wall_s + sum(part.wall_s for part in new), 4),
    )  # fmt: skip


def _basis(bench: Bench, plan: Plan, results: Results, whole: Measurement) -> Basis:
    """The inputs of the estimate in the conditions of the model's run."""
    history = HostHistory.of(bench.store, bench.target.key)
    conditions = conditions_of(whole)
    return Basis(
        plan, results, conditions=conditions, sensitivities=history.sensitivities(plan.keys)
    )


def _composing_s(plan: Plan, estimate: Estimate) -> float:
    """The part of half the interval that covers errors of recomposition."""
    total_s = estimate.estimate_s - estimate.call_overhead_s
    weight_bound_s = sum(s.latency_s for s in estimate.shares if s.brick in plan.weight_bound)
    return composition_s(total_s, len(plan.occurrences), estimate.call_overhead_s, weight_bound_s)


def _plans(bench: Bench) -> Iterable[tuple[Plan, float]]:
    """The plans of the case's models so far, with the seconds that decomposing took."""
    return bench.store.plans.all(bench.target.key, "executed")


def _new_bricks(bench: Bench, plan: Plan) -> set[str]:
    """Keys of bricks that no other model of the case so far has."""
    others = (known.keys for known, _ in _plans(bench) if known.digest != plan.digest)
    return set(plan.keys).difference(*others)


def _ratio(basis: Basis, row: ModelComparison) -> float:
    found = recompose(basis)
    assert isinstance(found, Estimate)
    return round(found.estimate_s / row.measured_s.value, 4)


def granularities() -> list[Granularity]:
    """All granularities, if the zoo has a model to cut."""
    return [Granularity(name) for name in GRANULARITIES] if _models_to_cut() else []


def _models_to_cut() -> list[str]:
    known = {entry.name for entry in entries()}
    return [name for name in CUT if name in known]


def run_granularity(case: Granularity, run: Run) -> Cut:
    """Compare some models, cut at a granularity."""
    cache = f"granularity-{case.granularity}"
    with run.bench(cache, threads=1, granularity=case.granularity) as bench:
        models = [bench.read(name) for name in _models_to_cut()]
        summary = bench.compare(models).summary
    median, worst, mean = summary.median_abs_error, summary.max_abs_error, summary.geomean_ratio
    if median is None or worst is None or mean is None:
        raise BricksError("nothing could be compared")
    return Cut(
        case=case,
        models=tuple(model.name for model in models),
        bricks=summary.bricks,
        occurrences=summary.occurrences,
        median_error=round(median, 5),
        worst_error=round(worst, 5),
        geomean_ratio=round(mean, 5),
        speedup_latency=round(summary.speedup_latency or 0.0, 4),
        bricks_wall_s=round(summary.bricks_wall_s, 3),
    )


BENCHMARKS = (
    Benchmark("accuracy", "accuracy.md", Row, cases, run, accuracy_page.parts, per_host=True,
              others={"../README.md": accuracy_page.readme, summary.PAGE: accuracy_page.summed_up}),
    Benchmark("granularities", "accuracy.md", Cut, granularities, run_granularity,
              accuracy_page.granularities, per_host=True, module="accuracy"),
)  # fmt: skip
