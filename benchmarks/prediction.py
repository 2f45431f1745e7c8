"""How accurate are predictions of bricks that were never measured? Leaves out a family at a time.

    .venv/bin/python benchmarks/prediction.py --cache cache

Needs a cache in which the zoo is measured, bricks and whole models (`bricks compare`), and writes
tables to standard output. Bricks that only the models of one family have are predicted from all
other bricks; the latency of a model is recomposed from both, and compared with the whole model's
run. All measurements are from one machine state, the one in which most were taken.

Families are split into two halves, every second one in alphabetical order: the constants of the
predictor were chosen on the first half, except those about cached and uncached weights, on both.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from bricks import Bench, Measurement
from bricks.decompose.plan import Brick, Plan
from bricks.estimate.recompose import IN_WALK_CALL_FACTOR, round_spread
from bricks.estimate.uncertainty import composition_s
from bricks.predict.features import BrickFeatures, context_weight_bytes, extract_features
from bricks.predict.prediction import Prediction
from bricks.predict.predictor import learn
from bricks.predict.roofline import Roofline
from bricks.report.tables import number, percent
from bricks.samples.call_overhead import LONG, PROBES, SHORT, call_overhead_s
from bricks.samples.machine_state import dominant_state
from bricks.samples.measurement import Failure
from bricks.samples.state_correction import StateCorrection
from bricks.samples.statistics import NORMAL_95, median
from bricks.zoo import entries


@dataclass(frozen=True, slots=True)
class Zoo:
    """The zoo's measurements; latencies in seconds.

    ``counts`` are occurrences of bricks by model, ``family`` and ``whole_s`` each model's family
    and the latency of its runs. ``half_s`` is half the width of a brick's interval.
    """

    counts: Mapping[str, Mapping[str, int]]
    family: Mapping[str, str]
    features: Mapping[str, BrickFeatures]
    latency_s: Mapping[str, float]
    half_s: Mapping[str, float]
    whole_s: Mapping[str, float]
    call_s: float

    @property
    def families(self) -> list[str]:
        """All families, in alphabetical order."""
        return sorted(set(self.family.values()))

    def keys_of(self, family: str) -> set[str]:
        """The bricks of a family's models."""
        mine = (counts for model, counts in self.counts.items() if self.family[model] == family)
        return {key for counts in mine for key in counts}

    def net_s(self, latency_s: float) -> float:
        """A brick's latency without the call overhead, the part that models are recomposed from."""
        return max(0.0, latency_s - IN_WALK_CALL_FACTOR * self.call_s)


# Predicts bricks; the second result is the log error that all predictions may have in common.
Method = Callable[
    [
        Mapping[str, BrickFeatures],
        Mapping[str, float],
        Mapping[str, set[str]],
        Mapping[str, BrickFeatures],
    ],
    tuple[Mapping[str, Prediction], float],
]


def learned(
    known: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, set[str]],
    wanted: Mapping[str, BrickFeatures],
) -> tuple[Mapping[str, Prediction], float]:
    """The predictor of the package."""
    predictor = learn(known, latency_s, groups)
    assert predictor is not None, "too few bricks are measured"
    return predictor.predict(wanted), predictor.bias


def roofline(
    known: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, set[str]],
    wanted: Mapping[str, BrickFeatures],
) -> tuple[Mapping[str, Prediction], float]:
    """A call, operations, and bytes at rates of each operator; one error for all bricks."""
    keys = sorted(known)
    features, seconds = [known[key] for key in keys], np.array([latency_s[key] for key in keys])
    fitted = Roofline.fit(features, seconds)
    log_sd = _sd(np.log(seconds / fitted.seconds(features)))
    names = sorted(wanted)
    found = fitted.seconds([wanted[name] for name in names]) if names else np.zeros(0)
    return {n: Prediction(float(s), log_sd) for n, s in zip(names, found, strict=True)}, 0.0


def nearest(
    known: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, set[str]],
    wanted: Mapping[str, BrickFeatures],
) -> tuple[Mapping[str, Prediction], float]:
    """The most similar measured brick: first by operator, then tags, then sizes."""
    keys = sorted(known)
    logs = np.log([latency_s[key] for key in keys])
    places, names = _places([known[key] for key in keys])
    own = _nearest(places, names, places[::10], names[::10], np.arange(0, len(keys), 10))
    log_sd = _sd(logs[own] - logs[::10])
    if not wanted:
        return {}, 0.0
    theirs = _nearest(places, names, *_places([*wanted.values()]), None)
    return {
        k: Prediction(math.exp(logs[i]), log_sd) for k, i in zip(wanted, theirs, strict=True)
    }, 0


def _places(features: Sequence[BrickFeatures]) -> tuple[np.ndarray, np.ndarray]:
    places = np.zeros((len(features), 10))
    for row, t in zip(places, features, strict=True):
        row[: len(t.sizes)] = t.sizes
        row[-2:] = np.log2([t.flops + 1, t.read_bytes + t.written_bytes + t.weight_bytes + 1])
    names = np.array([[t.kind, t.operator, *t.tags, *[""] * (6 - len(t.tags))] for t in features])
    return places, names


def _nearest(
    places: np.ndarray,
    names: np.ndarray,
    at: np.ndarray,
    called: np.ndarray,
    themselves: np.ndarray | None,
) -> np.ndarray:
    found = np.zeros(len(at), int)
    for i, (place, name) in enumerate(zip(at, called, strict=True)):
        differ = (names != name) @ np.array([1e6, 1e4, *[10] * (names.shape[1] - 2)])
        distance = differ + np.abs(places - place).sum(axis=1)
        if themselves is not None:
            distance[themselves[i]] = math.inf
        found[i] = int(np.argmin(distance))
    return found


def _sd(errors: np.ndarray) -> float:
    """A standard deviation that a few outliers do not decide."""
    return float(np.quantile(np.abs(errors), 0.683))


METHODS: Mapping[str, Method] = {
    "learned": learned, "roofline": roofline, "nearest brick": nearest,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Foretold:
    """A model some of whose bricks were predicted. Latencies are in seconds.

    ``log_sd`` is that of the whole estimate. ``recomposed_s`` is the estimate from measurements of
    all bricks, None where some are missing.
    """

    family: str
    foretold_s: float
    log_sd: float
    share: float
    whole_s: float
    recomposed_s: float | None
    composition: float

    @property
    def error(self) -> float:
        """The error against the whole model's run."""
        return abs(self.foretold_s / self.whole_s - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the whole model's run."""
        sd = math.hypot(self.log_sd, self.composition)
        return abs(math.log(self.foretold_s / self.whole_s)) <= NORMAL_95 * sd


@dataclass(frozen=True, slots=True)
class PredictionError:
    """Results of a method for all families: (family, log error) of bricks, and the models."""

    bricks: Sequence[tuple[str, float]]
    models: Sequence[Foretold]


def left_out(zoo: Zoo, method: Method, *, shared: bool) -> PredictionError:
    """One family after another; with ``shared``, bricks of other families, too, are measured."""
    bricks: list[tuple[str, float]] = []
    models: list[Foretold] = []
    keys = {family: zoo.keys_of(family) for family in zoo.families}
    for family in zoo.families:
        groups = {other: theirs for other, theirs in keys.items() if other != family}
        elsewhere = set().union(*groups.values()) & zoo.latency_s.keys()
        known = elsewhere if shared else elsewhere - keys[family]
        wanted = sorted(keys[family] - known)
        predicted, bias = method(
            {key: zoo.features[key] for key in sorted(known)},
            zoo.latency_s,
            groups,
            {key: zoo.features[key] for key in wanted},
        )
        bricks += [
            (family, math.log(zoo.latency_s[key] / predicted[key].latency_s))
            for key in wanted
            if key in zoo.latency_s
        ]
        mine = [model for model in zoo.whole_s if zoo.family[model] == family]
        models += [_predicted_parts(zoo, model, predicted, bias) for model in mine]
    return PredictionError(bricks, models)


def _predicted_parts(
    zoo: Zoo, model: str, predicted: Mapping[str, Prediction], bias: float
) -> Foretold:
    counts = zoo.counts[model]
    measured = [(n, key) for key, n in counts.items() if key not in predicted]
    measured_s = [n * zoo.net_s(zoo.latency_s[key]) for n, key in measured]
    rest = [(n, predicted[key]) for key, n in counts.items() if key in predicted]
    part_s = sum(n * zoo.net_s(p.latency_s) for n, p in rest)
    total_s = zoo.call_s + sum(measured_s) + part_s
    variance = sum((n * p.latency_s * p.log_sd) ** 2 for n, p in rest) + (bias * part_s) ** 2
    every = [zoo.latency_s.get(key) for key in counts]
    known = [s for s in every if s is not None]
    recomposed_s = zoo.call_s + sum(
        n * zoo.net_s(s) for n, s in zip(counts.values(), known, strict=False)
    )
    composition = composition_s(total_s, sum(counts.values()), zoo.call_s)
    composition += sum(n * zoo.half_s[key] for n, key in measured)
    return Foretold(
        family=zoo.family[model],
        foretold_s=total_s,
        log_sd=math.sqrt(variance) / total_s,
        share=part_s / total_s,
        whole_s=zoo.whole_s[model],
        recomposed_s=recomposed_s if len(known) == len(every) else None,
        composition=composition / NORMAL_95 / total_s,
    )


def took_s(runs: Sequence[Measurement], state_s: float | None) -> float:
    """The latency of a model in a machine state, in seconds: the geometric mean of its ``runs``.

    Runs count alike, however many rounds they have: the drift between runs is larger than the
    differences between rounds of one. Runs in other states count only if none met this state.
    """
    known = [run for run in runs if run.known_in(state_s)]
    return geometric_mean(run.latency_s(state_s) for run in known or runs)


def read(bench: Bench, whole: Mapping[str, Sequence[Measurement]] | None = None) -> Zoo:
    """The cache's measurements of the zoo, in the machine state in which most were taken.

    Bricks measured in other states are corrected, whole models left out. Runs of whole models by
    name are in ``whole``; without it, in the cache.
    """
    bricks: dict[str, Brick] = {}
    plans: dict[str, Plan] = {}
    family: dict[str, str] = {}
    for entry in entries():
        decomposition = bench.decompose(bench.read(entry.name))
        bricks.update(decomposition.bricks)
        plans[entry.name], family[entry.name] = decomposition.plan, entry.family
    weight_bytes = {key: brick.numeric_weight_bytes for key, brick in bricks.items()}
    around = context_weight_bytes([plan.copies for plan in plans.values()], weight_bytes)
    digests = [plan.digest for plan in plans.values()]
    results = bench.store.results(bench.target.key, [*bricks, *PROBES.values(), *digests])
    state_s = dominant_state(m.state_s for m in results.values() if isinstance(m, Measurement))
    measured = {key: m for key, m in results.items() if isinstance(m, Measurement)}
    correction = StateCorrection([m for key, m in measured.items() if key in bricks], state_s)
    seconds = {key: correction.latency_s(m) for key, m in measured.items()}
    short, long = (_probe(seconds, length) for length in (SHORT, LONG))
    if whole is None:
        whole = {n: [measured[p.digest]] for n, p in plans.items() if p.digest in measured}
    met = {name: runs for name, runs in whole.items() if any(r.known_in(state_s) for r in runs)}
    return Zoo(
        counts={name: plan.counts for name, plan in plans.items()},
        family=family,
        features={key: extract_features(brick, around[key]) for key, brick in bricks.items()},
        latency_s={key: seconds[key] for key in bricks if key in seconds},
        half_s=_half_widths(results, state_s),
        whole_s={name: took_s(met[name], state_s) for name in plans if name in met},
        call_s=call_overhead_s(short, long),
    )


def _half_widths(
    results: Mapping[str, Measurement | Failure], state_s: float | None
) -> dict[str, float]:
    spreads = {
        key: round_spread(m, state_s) for key, m in results.items() if isinstance(m, Measurement)
    }
    return {key: (s.high_s - s.low_s) / 2 for key, s in spreads.items()}


def _probe(seconds: Mapping[str, float], length: int) -> float:
    if PROBES[length] not in seconds:
        raise SystemExit("the cache does not hold the zoo's measurements: run bricks compare on it")
    return seconds[PROBES[length]]


def table(zoo: Zoo, methods: Mapping[str, Method]) -> Iterable[str]:
    """A row for each method, way of counting, and half of the families."""
    half = {family: i % 2 for i, family in enumerate(zoo.families)}
    yield (
        "| method | shared bricks | families | bricks | median error | models | median error"
        " | 90th percentile | inside the interval | median half-width"
        " | against all measured: median error | inside |"
    )
    yield "|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for shared in (True, False):
        for name, method in methods.items():
            found = left_out(zoo, method, shared=shared)
            for title, chosen in {"first half": {0}, "second half": {1}, "all": {0, 1}}.items():
                bricks = [e for family, e in found.bricks if half[family] in chosen]
                models = [m for m in found.models if half[m.family] in chosen]
                cells = [name, "measured" if shared else "predicted", title]
                yield f"| {' | '.join([*cells, *_figures(bricks, models)])} |"


def _figures(bricks: Sequence[float], models: Sequence[Foretold]) -> list[str]:
    errors = [m.error for m in models]
    pairs = [
        (math.log(m.foretold_s / m.recomposed_s), m.log_sd)
        for m in models
        if m.recomposed_s is not None and m.share > 0
    ]
    return [
        str(len(bricks)),
        percent(median([abs(math.expm1(-e)) for e in bricks])),
        str(len(models)),
        percent(median(errors)),
        percent(float(np.quantile(errors, 0.9))),
        percent(sum(m.inside for m in models) / len(models), 0),
        percent(median([NORMAL_95 * math.hypot(m.log_sd, m.composition) for m in models])),
        percent(median([abs(math.expm1(e)) for e, _ in pairs])),
        percent(sum(abs(e) <= NORMAL_95 * sd for e, sd in pairs) / len(pairs), 0),
    ]


def main() -> None:
    """Write the table to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--threads", type=int, help="as measured (default: one per core)")
    arguments = parser.parse_args()
    with Bench(arguments.cache, threads=arguments.threads) as bench:
        zoo = read(bench)
    measured = [
        (_predicted_parts(zoo, model, {}, 0.0))
        for model, counts in zoo.counts.items()
        if model in zoo.whole_s and all(key in zoo.latency_s for key in counts)
    ]
    print(
        f"{len(zoo.latency_s)} bricks and {len(zoo.whole_s)} models were measured in one state of"
        f" the machine. With all bricks measured, {len(measured)} models have a median error of"
        f" {percent(median([m.error for m in measured]))}, and a 90th percentile of"
        f" {percent(float(np.quantile([m.error for m in measured], 0.9)))};"
        f" {percent(sum(m.inside for m in measured) / len(measured), 0)} are inside their"
        f" intervals. A call takes {number(zoo.call_s * 1e6)} µs.\n"
    )
    for line in table(zoo, METHODS):
        print(line, flush=True)


if __name__ == "__main__":
    main()
