"""How accurate are predictions of bricks that were never measured? A family is left out at a time.

    .venv/bin/python -m benchmarks prediction --cache cache

Needs a cache in which the zoo is measured, bricks and whole models, with one thread and with two
(``bricks compare``). Nothing is timed.

Bricks that only the models of one family have are predicted from all other bricks, or with
``balanced`` from the bricks that ``--effort balanced`` would have measured. The latency of a model
is recomposed from both, for the conditions in which the whole model was run, and compared with
that run. Families are split into two halves, every second one in alphabetical order: the features
and constants of the predictor were chosen on the first half.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks import summary
from benchmarks.markdown import table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks import Bench, BricksError, Estimate, Measurement, Store
from bricks.compose.basis import Basis
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Brick, Plan
from bricks.measure.campaign_result import CampaignResult, Progress
from bricks.measure.jobs import ModelJob
from bricks.predict.effort import EFFORTS
from bricks.predict.features import BrickFeatures, extract_features, in_context
from bricks.predict.prediction import BrickPredictions
from bricks.predict.predictor import Predictor, learn
from bricks.report.tables import number, percent
from bricks.samples.call_overhead import PROBES
from bricks.samples.correction import conditions_of
from bricks.samples.measurement import PROTOCOL
from bricks.session.adaptive import AdaptiveMeasurement
from bricks.session.latencies import Latencies
from bricks.session.measured_target import HostHistory
from bricks.store import Owner
from bricks.system import Target
from bricks.zoo import entries

MEASURED = "all measured"
HALVES = {"first half": {0}, "second half": {1}, "all": {0, 1}}


@dataclass(frozen=True, slots=True)
class Case:
    """A number of threads, and the bricks that count as measured: those of an effort, or all."""

    threads: int
    known: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model's estimate next to its run; latencies in seconds."""

    model: str
    family: str
    half: int
    measured_s: float
    estimate_s: float
    low_s: float
    high_s: float
    predicted_share: float


@dataclass(frozen=True, slots=True)
class Row:
    """The zoo's estimates from a number of measured ``bricks``, of one protocol.

    ``predicted_bricks`` were predicted, with a median error of ``brick_error``.
    """

    case: Case
    protocol: int
    bricks: int
    models: tuple[ModelRow, ...]
    predicted_bricks: int | None = None
    brick_error: float | None = None


def cases() -> list[Case]:
    """With one thread and with two: two efforts, and measurements of all bricks."""
    return [Case(threads, known) for threads in (1, 2) for known in ("full", "balanced", MEASURED)]


def run(case: Case, run: Run) -> Row:
    """Leave one family after another out of the bricks that count as measured."""
    with Bench(run.folder, threads=case.threads) as bench:
        run.note(bench)
        zoo = read(bench)
        if case.known == MEASURED:
            rows = tuple(all_measured(zoo))
            return Row(case, PROTOCOL, len(zoo.features), rows)
        known = (
            zoo.features.keys()
            if case.known == "full"
            else chosen_by(bench, case.known, zoo.results)
        )
    outcome = left_out(zoo, known)
    error = float(np.median(np.expm1(np.abs(outcome.brick_errors))))
    return Row(
        case, PROTOCOL, len(known), outcome.rows, len(outcome.brick_errors), digits(error, 4)
    )


@dataclass(frozen=True, slots=True)
class Zoo:
    """The zoo's measurements on one target.

    ``results`` are those of bricks and probes by key, ``runs`` those of whole models by name.
    """

    plans: Mapping[str, Plan]
    family: Mapping[str, str]
    features: Mapping[str, BrickFeatures]
    results: Mapping[str, Measurement]
    runs: Mapping[str, Sequence[Measurement]]
    history: HostHistory

    @property
    def families(self) -> list[str]:
        """All families, in alphabetical order."""
        return sorted(set(self.family.values()))

    def keys_of(self, family: str) -> set[str]:
        """The bricks of a family's models."""
        mine = (plan for model, plan in self.plans.items() if self.family[model] == family)
        return {key for plan in mine for key in plan.counts}

    def latency_s(self, keys: Collection[str]) -> dict[str, float]:
        """The latencies of those bricks in usual conditions, as a predictor learns from them."""
        measured = [self.results[key] for key in sorted(keys)]
        correction = self.history.correction(measured)
        return {of.key: correction.mean_s(of) for of in measured}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The models' estimates, and the log error of each predicted brick."""

    rows: tuple[ModelRow, ...]
    brick_errors: Sequence[float]


def left_out(zoo: Zoo, measured: Collection[str], families: Sequence[str] | None = None) -> Outcome:
    """One family after another, or of ``families``, is left out of the bricks ``measured``."""
    rows: list[ModelRow] = []
    errors: list[float] = []
    keys = {family: zoo.keys_of(family) for family in zoo.families}
    every = zoo.latency_s(zoo.features.keys() & zoo.results.keys())
    for family in zoo.families if families is None else families:
        groups = {other: theirs for other, theirs in keys.items() if other != family}
        known = set().union(*groups.values()).intersection(measured)
        predictor = _learned(zoo.latency_s(known), _part(zoo.features, known), groups)
        own = sorted(keys[family].intersection(every) - set().union(*groups.values()))
        predicted = predictor.predict(_part(zoo.features, own))
        errors += [math.log(every[key] / p.latency_s) for key, p in predicted.items()]
        mine = [model for model in sorted(zoo.runs) if zoo.family[model] == family]
        rows += [_model_row(zoo, model, known, predictor) for model in mine]
    return Outcome(tuple(rows), errors)


def _learned(
    latency_s: Mapping[str, float],
    features: Mapping[str, BrickFeatures],
    groups: Mapping[str, Collection[str]],
) -> Predictor:
    predictor = learn(features, latency_s, groups)
    assert predictor is not None, "too few bricks are measured"
    return predictor


def _part(of: Mapping[str, BrickFeatures], keys: Collection[str]) -> dict[str, BrickFeatures]:
    return {key: of[key] for key in sorted(keys)}


def _model_row(
    zoo: Zoo,
    model: str,
    known: Collection[str],
    predictor: Predictor,
) -> ModelRow:
    plan, runs = zoo.plans[model], zoo.runs[model]
    results = {key: zoo.results[key] for key in (*plan.counts.keys() & known, *PROBES.values())}
    whole = replace(runs[0], rounds=tuple(r for run in runs for r in run.rounds))
    unmeasured = _part(zoo.features, plan.counts.keys() - results.keys())
    usual = zoo.history.usual(zoo.results.values())
    predictions = BrickPredictions(
        predictor.predict(unmeasured), predictor.bias, None if usual is None else usual.mean
    )
    conditions = conditions_of(whole)
    sensitivities = zoo.history.sensitivities(plan.keys)
    estimate = recompose(Basis(plan, results, predictions, conditions, sensitivities))
    assert isinstance(estimate, Estimate), f"{model}: {estimate}"
    family = zoo.family[model]
    return ModelRow(
        model,
        family,
        zoo.families.index(family) % 2,
        digits(took_s(runs), 4),
        digits(estimate.estimate_s, 4),
        digits(estimate.low_s, 4),
        digits(estimate.high_s, 4),
        digits(estimate.predicted_share, 4),
    )


def all_measured(zoo: Zoo) -> Iterable[ModelRow]:
    """The models' estimates from measurements of all bricks."""
    latency_s = zoo.latency_s(zoo.features.keys() & zoo.results.keys())
    predictor = _learned(latency_s, zoo.features, {})
    return (_model_row(zoo, model, zoo.results, predictor) for model in sorted(zoo.runs))


def took_s(runs: Sequence[Measurement]) -> float:
    """The latency of a model in seconds: the geometric mean of its ``runs``.

    Runs count equally, however many rounds they have: the drift between runs is larger than the
    differences between rounds of one.
    """
    return geometric_mean(run.latency_s for run in runs)


def read(bench: Bench) -> Zoo:
    """The cache's measurements of the zoo."""
    bricks: dict[str, Brick] = {}
    plans: dict[str, Plan] = {}
    for entry in entries():
        decomposition = bench.decompose(bench.read(entry.name))
        bricks.update(decomposition.bricks)
        plans[entry.name] = decomposition.plan
    digests = [plan.digest for plan in plans.values()]
    found = bench.store.measurements.results(
        bench.target.key, [*bricks, *PROBES.values(), *digests]
    )
    results = {key: m for key, m in found.items() if isinstance(m, Measurement)}
    if not results.keys() >= {*bricks, *PROBES.values()}:
        raise BricksError("the cache lacks measurements of the zoo: run bricks compare on it")
    return Zoo(
        plans=plans,
        family={entry.name: entry.family for entry in entries()},
        features=in_context(
            {key: extract_features(brick) for key, brick in bricks.items()},
            [plan.usage for plan in plans.values()],
        ),
        results=results,
        runs={n: [results[p.digest]] for n, p in plans.items() if p.digest in results},
        history=HostHistory.of(bench.store, bench.target.key),
    )


def chosen_by(bench: Bench, effort: str, results: Mapping[str, Measurement]) -> frozenset[str]:
    """The bricks of the zoo that an effort would measure, if it found ``results``."""
    models = [bench.read(entry.name) for entry in entries()]
    jobs = [ModelJob(model, bench.decompose(model), whole=False) for model in models]
    target, owner = bench.target, Owner.current()
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder)) as store:
        store.systems.save_target(target)
        for job in jobs:
            store.plans.save(job.decomposition, target.key)
        latencies = Latencies(store, target.key, "executed")

        def run(
            jobs: Sequence[ModelJob], _left_s: float | None, _progress: Progress
        ) -> CampaignResult:
            keys = {key for job in jobs for key in job.bricks} & results.keys()
            new = sorted(keys - store.measurements.results(target.key, sorted(keys)).keys())
            _copy({key: results[key] for key in new}, store, target, owner)
            return CampaignResult({}, (), frozenset())

        AdaptiveMeasurement(jobs, latencies, EFFORTS[effort], None, lambda *_: None).run(run)
        keys = {key for job in jobs for key in job.bricks}
        return frozenset(store.measurements.results(target.key, sorted(keys)))


def _copy(results: Mapping[str, Measurement], store: Store, target: Target, owner: Owner) -> None:
    keys = sorted(results)
    store.claims.claim(target.key, keys, owner)
    for at in range(max((len(m.rounds) for m in results.values()), default=0)):
        rounds = {k: (m.rounds[at], 0.0) for k, m in results.items() if at < len(m.rounds)}
        store.claims.append_rounds(target.key, rounds, owner)
    store.claims.finish(target.key, keys, owner)


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of all cases, and the figures of the text."""
    rows = sorted(results.rows, key=lambda row: (row.case.threads, cases().index(row.case)))
    lines = []
    for row in rows:
        for title, halves in HALVES.items():
            mine = [model for model in row.models if model.half in halves]
            if row.case.known != MEASURED:
                known = f"{row.case.known}: {row.bricks}"
                lines.append([str(row.case.threads), known, title, *_figures(mine)])
            elif title == "all":
                lines.append([str(row.case.threads), MEASURED, title, *_figures(mine)])
    head = ["threads", "bricks measured", "families", "models", "median error", "95th percentile",
            "worst", "geometric mean of ratios", "inside the interval",
            "half the interval, median"]  # fmt: skip
    return {
        "unseen_date": results.about.date,
        "unseen_system": f"{results.about.system} with {results.about.runtime}",
        "protocol": str(rows[0].protocol),
        "unseen_errors": ", ".join(_in_words(row) for row in rows if row.case.known == "full"),
        "unseen": table(head, lines, "rll"),
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """Models of families of which nothing was measured."""
    models = [model for row in results.rows if row.case.known == "full" for model in row.models]
    inside = (model.low_s <= model.measured_s <= model.high_s for model in models)
    return summary.row("unseen", _ratios(models), inside)


def _in_words(row: Row) -> str:
    ratios, threads = _ratios(row.models), row.case.threads
    return (
        f"{percent(ratios.median_error)} in the median and"
        f" {percent(float(np.quantile(ratios.errors, 0.95)))} at the 95th percentile (geometric"
        f" mean of ratios {number(ratios.geomean, 3)}) with {threads} thread{'s' * (threads > 1)}"
    )


def _ratios(models: Iterable[ModelRow]) -> Ratios:
    return Ratios.of((model.estimate_s, model.measured_s) for model in models)


def _figures(models: Sequence[ModelRow]) -> list[str]:
    ratios = _ratios(models)
    inside = sum(model.low_s <= model.measured_s <= model.high_s for model in models)
    half_widths = [(model.high_s - model.low_s) / 2 / model.estimate_s for model in models]
    return [
        str(len(models)),
        percent(ratios.median_error),
        percent(float(np.quantile(ratios.errors, 0.95))),
        percent(ratios.worst_error),
        number(ratios.geomean, 3),
        percent(inside / len(models), 0),
        percent(float(np.median(half_widths))),
    ]


BENCHMARKS = (
    Benchmark("prediction", "performance.md", Row, cases, run, parts,
              others={summary.PAGE: summed_up}),
)  # fmt: skip
