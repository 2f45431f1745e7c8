"""How accurate are predictions of bricks that were never measured? Leaves out a family at a time.

    .venv/bin/python benchmarks/prediction.py --cache cache --threads 1
    .venv/bin/python benchmarks/prediction.py --cache cache --threads 2

Needs a cache in which the zoo is measured, bricks and whole models (`bricks compare`). Writes its
part of docs/performance.md, and benchmarks/results/prediction.json. Nothing is timed.

Bricks that only the models of one family have are predicted from all other bricks, or with
`balanced` from those that `--effort balanced` would have measured. The latency of a model is
recomposed from both, for the machine state in which the whole model was run, and compared with that
run. Families are split into two halves, every second one in alphabetical order: the features and
constants of the predictor were chosen on the first half.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any, Protocol

import cost_page
import numpy as np
import rivals
from choosing import chosen_by

from bricks import Bench, Estimate, Measurement
from bricks.compose.basis import Basis
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Brick, Plan
from bricks.predict.context import in_context
from bricks.predict.features import BrickFeatures, extract_features
from bricks.predict.observations import Observations
from bricks.predict.prediction import Prediction, Predictions
from bricks.predict.predictor import learn
from bricks.samples.call_overhead import PROBES
from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import PROTOCOL
from bricks.samples.state_model import StateModel
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "prediction.json"


class Learned(Protocol):
    """A predictor; ``bias`` is the log error that all of its predictions may have in common."""

    @property
    def bias(self) -> float:
        """The standard deviation of that error."""

    def predict(self, features: Mapping[str, BrickFeatures]) -> Mapping[str, Prediction]:
        """The latency of each brick."""


Method = Callable[
    [Mapping[str, BrickFeatures], Mapping[str, float], Mapping[str, Collection[str]]], Learned
]


def learned(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
) -> Learned:
    """The predictor of the package."""
    predictor = learn(features, latency_s, groups)
    assert predictor is not None, "too few bricks are measured"
    return predictor


METHODS: Mapping[str, Method] = {
    "learned": learned, "roofline": rivals.roofline, "nearest brick": rivals.nearest,
}  # fmt: skip


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

    @property
    def families(self) -> list[str]:
        """All families, in alphabetical order."""
        return sorted(set(self.family.values()))

    def keys_of(self, family: str) -> set[str]:
        """The bricks of a family's models."""
        mine = (plan for model, plan in self.plans.items() if self.family[model] == family)
        return {key for plan in mine for key in plan.counts}

    def observations(self, keys: Collection[str]) -> Observations:
        """The measurements of those bricks, as a predictor learns from them."""
        measured = {key: self.results[key] for key in sorted(keys)}
        return Observations.of(measured, dominant_state(m.state_s for m in measured.values()))

    def states(self, keys: Collection[str]) -> StateModel:
        """How latencies change between machine states, learned from those bricks."""
        facts = {key: features.size_facts for key, features in self.features.items()}
        return StateModel([self.results[key] for key in sorted(keys)], facts)


@dataclass(frozen=True, slots=True)
class Row:
    """A model's estimate beside its run; latencies in seconds."""

    model: str
    family: str
    measured_s: float
    estimate_s: float
    low_s: float
    high_s: float
    predicted_share: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """The models' estimates, and the log error of each predicted brick with its family."""

    rows: Sequence[Row]
    bricks: Sequence[tuple[str, float]]


def left_out(
    zoo: Zoo, method: Method, measured: Collection[str], families: Sequence[str] | None = None
) -> Outcome:
    """One family after another, or of ``families``, is left out of the bricks ``measured``."""
    rows: list[Row] = []
    bricks: list[tuple[str, float]] = []
    keys = {family: zoo.keys_of(family) for family in zoo.families}
    every = zoo.observations(zoo.features.keys() & zoo.results.keys())
    for family in zoo.families if families is None else families:
        groups = {other: theirs for other, theirs in keys.items() if other != family}
        known = set().union(*groups.values()).intersection(measured)
        seen = zoo.observations(known)
        predictor = method(_part(seen.features(_part(zoo.features, known)), known),
                           seen.latency_s, groups)  # fmt: skip
        own = sorted(keys[family].intersection(every.latency_s) - set().union(*groups.values()))
        in_own_states = replace(seen, states={**every.states, **seen.states})
        predicted = predictor.predict(in_own_states.features(_part(zoo.features, own)))
        bricks += [
            (family, math.log(every.latency_s[key] / p.latency_s)) for key, p in predicted.items()
        ]
        states = zoo.states(known)
        mine = [model for model in sorted(zoo.runs) if zoo.family[model] == family]
        rows += [_row(zoo, model, known, seen, states, predictor) for model in mine]
    return Outcome(rows, bricks)


def _part(of: Mapping[str, BrickFeatures], keys: Collection[str]) -> dict[str, BrickFeatures]:
    return {key: of[key] for key in sorted(keys)}


def _row(
    zoo: Zoo,
    model: str,
    known: Collection[str],
    seen: Observations,
    states: StateModel,
    predictor: Learned,
) -> Row:
    plan, runs = zoo.plans[model], zoo.runs[model]
    results = {key: zoo.results[key] for key in (*plan.counts.keys() & known, *PROBES.values())}
    whole = replace(runs[0], rounds=tuple(r for run in runs for r in run.rounds))
    state_s = state_of(plan, results, whole)
    unmeasured = _part(zoo.features, plan.counts.keys() - results.keys())
    wanted = seen.states_seen.in_state(unmeasured, state_s)
    predictions = Predictions(predictor.predict(wanted), predictor.bias, state_s)
    estimate = recompose(Basis(plan, results, state_s, predictions=predictions, states=states))
    assert isinstance(estimate, Estimate), f"{model}: {estimate}"
    return Row(
        model,
        zoo.family[model],
        took_s(runs, state_s),
        estimate.estimate_s,
        estimate.low_s,
        estimate.high_s,
        estimate.predicted_share,
    )


def all_measured(zoo: Zoo) -> list[Row]:
    """The models' estimates from measurements of all bricks."""
    seen = zoo.observations(zoo.features.keys() & zoo.results.keys())
    states = zoo.states(seen.latency_s)
    nothing = learned(seen.features(zoo.features), seen.latency_s, {})
    return [_row(zoo, model, zoo.results, seen, states, nothing) for model in sorted(zoo.runs)]


def took_s(runs: Sequence[Measurement], state_s: float | None) -> float:
    """The latency of a model in a machine state, in seconds: the geometric mean of its ``runs``.

    Runs count alike, however many rounds they have: the drift between runs is larger than the
    differences between rounds of one. Runs in other states count only if none met this state.
    """
    known = [run for run in runs if run.known_in(state_s)]
    return geometric_mean(run.latency_s(state_s) for run in known or runs)


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
        raise SystemExit("the cache does not hold the zoo's measurements: run bricks compare on it")
    return Zoo(
        plans=plans,
        family={entry.name: entry.family for entry in entries()},
        features=in_context(
            {key: extract_features(brick) for key, brick in bricks.items()},
            [plan.usage for plan in plans.values()],
        ),
        results=results,
        runs={n: [results[p.digest]] for n, p in plans.items() if p.digest in results},
    )


def facts_of(bench: Bench) -> dict[str, Any]:
    """The facts of a target for the page: estimates at each effort, and with each method."""
    zoo = read(bench)
    every = zoo.features.keys()
    known = {"full": every, "balanced": chosen_by(bench, "balanced", zoo.results)}
    found: dict[str, Any] = {
        "about": {
            "date": str(datetime.now(UTC).date()),
            "system": bench.target.system.name,
            "backend": bench.target.runtime.backend,
            "version": bench.target.runtime.version,
            "protocol": PROTOCOL,
        },
        "halves": {family: i % 2 for i, family in enumerate(zoo.families)},
        "all measured": [asdict(row) for row in all_measured(zoo)],
        "measured": {effort: len(keys) for effort, keys in known.items()},
        "efforts": {},
        "methods": {},
    }
    for effort, keys in known.items():
        outcome = left_out(zoo, learned, keys)
        found["efforts"][effort] = [asdict(row) for row in outcome.rows]
        if effort == "full":
            found["methods"]["learned"] = dict(_summary(outcome))
    for name, method in METHODS.items():
        if name not in found["methods"]:
            found["methods"][name] = dict(_summary(left_out(zoo, method, every)))
    return found


def _summary(outcome: Outcome) -> Iterator[tuple[str, Any]]:
    ratios = [row.estimate_s / row.measured_s for row in outcome.rows]
    errors = [abs(ratio - 1) for ratio in ratios]
    inside = [row.low_s <= row.measured_s <= row.high_s for row in outcome.rows]
    yield "bricks", len(outcome.bricks)
    yield "brick_error", float(np.median(np.expm1([abs(error) for _, error in outcome.bricks])))
    yield "median", float(np.median(errors))
    yield "p95", float(np.quantile(errors, 0.95))
    yield "geomean_ratio", geometric_mean(ratios)
    yield "inside", float(np.mean(inside))


def main() -> None:
    """Write the page and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--threads", type=int, default=1, help="as measured")
    arguments = parser.parse_args()
    with Bench(arguments.cache, threads=arguments.threads) as bench:
        found = facts_of(bench)
    before = json.loads(RAW.read_text(encoding="utf-8")) if RAW.exists() else {}
    facts = before | {str(arguments.threads): found}
    cost_page.keep(dict(sorted(facts.items())), "prediction")
    cost_page.write()


if __name__ == "__main__":
    main()
