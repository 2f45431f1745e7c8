"""How well are latencies corrected between machine states? Holds out half of the zoo's families.

    .venv/bin/python benchmarks/states.py --cache cache --write docs/states.md

Needs a cache whose rounds were taken in two states on one target (`bricks compare` on a machine
that has two, see docs/measuring.md). Bricks that were measured in both are corrected from each to
the other, and compared with what was measured there. Constants were chosen on the first half of the
families, every second one in alphabetical order; tables are of the other half, which was seen while
the model was built, so that its figures are somewhat optimistic. Where the cache lacks the panel
(`measure/probe_set.py`), a few dozens of the first half's bricks, over kernels and sizes, stand
for it.

Models of which at least half was measured in a state that they were not run in are recomposed from
that, and compared with their runs.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from bricks import Bench, Measurement
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.decompose.plan import Plan
from bricks.measure.probe_set import probe_set_keys
from bricks.predict.features import extract_features
from bricks.report.tables import number, percent
from bricks.samples.call_overhead import PROBES
from bricks.samples.machine_state import same_state, states
from bricks.samples.state_correction import Factor, StateCorrection
from bricks.samples.state_model import SizeFacts, StateModel
from bricks.samples.statistics import NORMAL_95
from bricks.zoo import entries

# Bricks that stand for the panel: as many as it has.
_PANEL = 42
# Bricks of one kernel that make a row of the table.
_MIN_ROW = 8
# Models of whose latency so much is known in the other state count as models of that.
_MIN_OTHER = 0.5
# Latencies at which bricks are divided, in microseconds.
_SIZES = (0, 5, 20, 100, 500, 2000, math.inf)


@dataclass(frozen=True, slots=True)
class Data:
    """A cache in two states, ``fast_s`` and ``slow_s`` of the reference.

    ``half`` is 0 or 1 for each brick and model, by its (first) family; the panel's have none.
    """

    plans: Mapping[str, Plan]
    results: Mapping[str, Measurement]
    facts: Mapping[str, SizeFacts]
    half: Mapping[str, int]
    fast_s: float
    slow_s: float

    def only(self, key: str, state_s: float) -> Measurement | None:
        """The rounds of one state; None if there are fewer than two."""
        return rounds_in(self.results[key], state_s) if key in self.results else None

    def in_both(self, half: int) -> list[str]:
        """The bricks of a half of the families that were measured in both states."""
        return [
            key
            for key in sorted(self.facts)
            if self.half.get(key) == half
            and self.only(key, self.fast_s) is not None
            and self.only(key, self.slow_s) is not None
        ]


def rounds_in(measurement: Measurement, state_s: float) -> Measurement | None:
    """The quiet rounds of one state; None if there are fewer than two."""
    found = tuple(r for r in measurement.quiet_rounds if same_state(r.state_s, state_s))
    return replace(measurement, rounds=found) if len(found) > 1 else None


@dataclass(frozen=True, slots=True)
class Corrected:
    """A brick's correction: its error, and half its interval, both as logarithms.

    ``slower``: from the fast state to the slow one.
    """

    key: str
    slower: bool
    latency_s: float
    error: float
    half_width: float


# Corrects a measurement to a state.
Method = Callable[[Measurement, float], Factor]


def read(bench: Bench) -> Data:
    """The cache's measurements of the zoo."""
    plans = {entry.name: bench.decompose(bench.read(entry.name)).plan for entry in entries()}
    families = {entry.name: entry.family for entry in entries()}
    half_of = {family: i % 2 for i, family in enumerate(sorted(set(families.values())))}
    half: dict[str, int] = {}
    for name in sorted(plans, key=lambda name: (families[name], name)):
        for key in plans[name].keys:
            half.setdefault(key, half_of[families[name]])
        half[name] = half_of[families[name]]
    keys = sorted({key for plan in plans.values() for key in plan.keys})
    digests = [plan.digest for plan in plans.values()]
    wanted = [*keys, *probe_set_keys(), *PROBES.values(), *digests]
    found = bench.store.measurements.results(bench.target.key, wanted)
    results = {key: m for key, m in found.items() if isinstance(m, Measurement)}
    met = states(r.state_s for m in results.values() for r in m.quiet_rounds)
    if len(met) < 2 or met[0] is None or met[1] is None:
        raise SystemExit("all rounds of this cache were taken in one state of the machine")
    bricks = bench.store.plans.load_bricks([*keys, *probe_set_keys()])
    facts = {key: extract_features(brick).size_facts for key, brick in bricks.items()}
    fast_s, slow_s = sorted(met[:2])  # type: ignore[type-var]
    return Data(plans, results, facts, half, fast_s, slow_s)  # type: ignore[arg-type]


def panel_of(data: Data) -> list[str]:
    """The panel, if the cache has all of it in both states; else bricks that stand for it."""
    known = [key for key in probe_set_keys() if data.only(key, data.fast_s) is not None]
    if all(data.only(key, data.slow_s) is not None for key in known) and len(known) == _PANEL:
        return known
    return stand_in(data, data.in_both(0))


def stand_in(data: Data, keys: Sequence[str]) -> list[str]:
    """Bricks for a panel: of each kernel in turn, at even distances over its sizes."""
    by_kernel: dict[str, list[str]] = defaultdict(list)
    for key in sorted(keys, key=lambda key: (data.results[key].latency_s(), key)):
        by_kernel[data.facts[key].kernel].append(key)
    chosen: list[str] = []
    for of_kernel in sorted(by_kernel.values(), key=lambda keys: (-len(keys), keys[0])):
        count = max(1, round(_PANEL * math.sqrt(len(of_kernel)) / _roots(by_kernel)))
        places = np.linspace(0, len(of_kernel) - 1, min(count, len(of_kernel)))
        chosen += [of_kernel[int(place)] for place in places]
    return chosen[:_PANEL]


def _roots(by_kernel: Mapping[str, Sequence[str]]) -> float:
    return sum(math.sqrt(len(keys)) for keys in by_kernel.values())


def by_model(data: Data, known: Sequence[str], *, sized: bool = True) -> Method:
    """The package's correction, learned from the ``known`` bricks; ``sized``: with their facts."""
    facts = data.facts if sized else {}
    model = StateModel([data.results[key] for key in known], facts).with_facts(facts)
    return lambda measurement, state_s: StateCorrection((), state_s, model).factor(measurement)


def none(measurement: Measurement, state_s: float) -> Factor:
    """No correction."""
    return Factor()


class ByLatency:
    """The correction before this model: one power for each latency, with a wide prior.

    The power of the bricks of similar latency (within a natural logarithm) among the ``known``,
    each of weight one, and of a prior of that weight: 0.25, with a standard deviation of 0.4.
    """

    def __init__(self, data: Data, known: Sequence[str]) -> None:
        self._known: list[tuple[float, float]] = []
        change = math.log(data.slow_s / data.fast_s)
        for key in known:
            fast, slow = (data.only(key, s) for s in (data.fast_s, data.slow_s))
            assert fast is not None and slow is not None, "known in both states"
            logs = math.log(fast.latency_s()), math.log(slow.latency_s())
            power = min(2.0, max(-1.0, (logs[1] - logs[0]) / change))
            self._known.append((sum(logs) / 2, power))

    def __call__(self, measurement: Measurement, state_s: float) -> Factor:
        """The correction of a measurement to a state."""
        log_s, own_s = math.log(measurement.latency_s()), measurement.state_s
        assert own_s is not None, "rounds have a state"
        near = [(math.exp(-0.5 * (log_s - at) ** 2), power) for at, power in self._known]
        weight = 1.0 + sum(w for w, _ in near)
        mean = (0.25 + sum(w * power for w, power in near)) / weight
        squares = 0.4**2 + (0.25 - mean) ** 2 + sum(w * (p - mean) ** 2 for w, p in near)
        change = math.log(state_s / own_s)
        return Factor(math.exp(change * mean), abs(change) * math.sqrt(squares / weight), 0.0)


def corrected(data: Data, keys: Sequence[str], method: Method) -> list[Corrected]:
    """Each brick corrected from each state to the other."""
    found = []
    for key in keys:
        fast, slow = data.only(key, data.fast_s), data.only(key, data.slow_s)
        assert fast is not None and slow is not None, "known in both states"
        for one, other in ((fast, slow), (slow, fast)):
            state_s = other.state_s
            assert state_s is not None, "rounds have a state"
            factor = method(one, state_s)
            error = math.log(one.latency_s() * factor.middle / other.latency_s())
            width = NORMAL_95 * factor.log_sd
            found.append(Corrected(key, other is slow, fast.latency_s(), error, width))
    return found


# The mean is of corrections to the slow state alone: what is too high one way is too low the other.
_FIGURES = "median error | 95th percentile | geometric mean, to slow | inside | median half-width"


def _figures(found: Sequence[Corrected]) -> list[str]:
    errors = [math.expm1(abs(each.error)) for each in found]
    return [
        percent(float(np.median(errors))),
        percent(float(np.quantile(errors, 0.95))),
        number(geometric_mean(math.exp(each.error) for each in found if each.slower), 3),
        percent(sum(abs(each.error) <= each.half_width for each in found) / len(found), 0),
        percent(float(np.median([math.expm1(each.half_width) for each in found])), 0),
    ]


def methods_table(data: Data) -> Iterator[str]:
    """A row for each method and data to learn from."""
    first, second = data.in_both(0), data.in_both(1)
    panel = panel_of(data)
    methods: dict[str, Method] = {
        "not corrected": none,
        "by latency, from the panel": ByLatency(data, panel),
        "by latency, from the first half": ByLatency(data, first),
        "by kernel and size, nothing known": by_model(data, []),
        "by kernel and size, from the panel": by_model(data, panel),
        "by kernel and size, from the first half": by_model(data, first),
        "the same without sizes": by_model(data, first, sized=False),
    }
    yield f"| correction | {_FIGURES} |"
    yield f"|---|{5 * '--:|'}"
    for name, method in methods.items():
        yield f"| {' | '.join([name, *_figures(corrected(data, second, method))])} |"


def kernels_table(data: Data) -> Iterator[str]:
    """Errors by kernel and by latency, before and after, both learned from the panel."""
    second, panel = data.in_both(1), panel_of(data)
    before = corrected(data, second, ByLatency(data, panel))
    after = corrected(data, second, by_model(data, panel))
    groups: dict[str, list[int]] = defaultdict(list)
    for i, each in enumerate(after):
        groups[data.facts[each.key].kernel].append(i)
    rows = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    chosen = [(name, of) for name, of in rows if len(of) >= 2 * _MIN_ROW]
    rest = [i for _, of in rows if len(of) < 2 * _MIN_ROW for i in of]
    chosen += [("others", rest)] if rest else []
    for low, high in pairwise(_SIZES):
        ends = f"{low} to {high} µs" if high < math.inf else f"above {low} µs"
        of = [i for i, each in enumerate(after) if low <= each.latency_s * 1e6 < high]
        chosen += [(ends, of)] if of else []
    yield f"| bricks | number | before: {_FIGURES} | after: {_FIGURES} |"
    yield f"|---|{11 * '--:|'}"
    for name, of in chosen:
        cells = [name, str(len(of) // 2)]
        cells += _figures([before[i] for i in of]) + _figures([after[i] for i in of])
        yield f"| {' | '.join(cells)} |"


@dataclass(frozen=True, slots=True)
class ModelError:
    """A model's estimate in the state of its run, against the run.

    ``half_width`` is relative to the estimate; ``states_width`` is the part of it that corrections
    add to that of the same rounds without a correction.
    """

    ratio: float
    inside: bool
    half_width: float
    states_width: float


def models(data: Data, learned: StateModel, to_s: float, from_s: float) -> list[ModelError]:
    """Models of the second half that were run in a state, from their bricks in the other.

    Bricks that were not measured in the other state count as they are, if it has at least half of
    the latency.
    """
    found = []
    for name, plan in data.plans.items():
        run = data.only(plan.digest, to_s)
        if data.half[name] == 0 or run is None:
            continue
        parts = {key: data.only(key, from_s) or data.only(key, to_s) for key in plan.keys}
        results = {key: m for key, m in parts.items() if m is not None}
        least = 0.0 if from_s == to_s else _MIN_OTHER
        found += _model_error(data, plan, results, run, learned, least)
    return found


def as_measured(data: Data, learned: StateModel) -> list[ModelError]:
    """Models of the second half from all of their rounds, as `bricks compare` left them."""
    found = []
    for name, plan in data.plans.items():
        run = data.results.get(plan.digest)
        if data.half[name] == 1 and run is not None:
            results = {key: data.results[key] for key in plan.keys if key in data.results}
            state_s = state_of(plan, results, run)
            known = run if state_s is None else rounds_in(run, state_s) or run
            found += _model_error(data, plan, results, known, learned, 0.0)
    return found


def _model_error(
    data: Data,
    plan: Plan,
    results: Mapping[str, Measurement],
    run: Measurement,
    learned: StateModel,
    least: float,
) -> list[ModelError]:
    """The error of a model in the state of its run; empty if it has less of another state."""
    # Probes cost little, and are measured in whatever state.
    known = {**results, **{key: data.results[key] for key in PROBES.values()}}
    run_s, state_s = run.latency_s(), run.state_s
    estimate = recompose(Basis(plan, known, state_s, states=learned))
    same = recompose(Basis(plan, {k: replace_state(m, state_s) for k, m in known.items()}, state_s))
    if not isinstance(estimate, Estimate) or not isinstance(same, Estimate):
        return []  # some brick was not measured
    if estimate.other_state_share < least:
        return []
    widths = [(e.high_s - e.low_s) / 2 / e.estimate_s for e in (estimate, same)]
    ratio, inside = estimate.estimate_s / run_s, estimate.low_s <= run_s <= estimate.high_s
    return [ModelError(ratio, inside, widths[0], max(0.0, widths[0] - widths[1]))]


def replace_state(measurement: Measurement, state_s: float | None) -> Measurement:
    """The same rounds, as if they had been taken in this state."""
    rounds = tuple(
        replace(r, reference_s=state_s, reference_end_s=None) for r in measurement.rounds
    )
    return replace(measurement, rounds=rounds)


def models_table(data: Data) -> Iterator[str]:
    """A row for each direction, and for models of the state itself."""
    known = stand_in(data, data.in_both(0))
    learned = StateModel([data.results[key] for key in known], data.facts).with_facts(data.facts)
    yield (
        "| bricks of | runs of | models | median error | 95th percentile | geometric mean"
        " | inside | median half-width | because of states: median | widest |"
    )
    yield f"|---|---|{8 * '--:|'}"
    names = {data.fast_s: "fast", data.slow_s: "slow"}
    rows = [
        (from_name, to_name, models(data, learned, to_s, from_s))
        for from_s, from_name in names.items()
        for to_s, to_name in names.items()
    ]
    for from_name, to_name, found in [*rows, ("both", "either", as_measured(data, learned))]:
        if not found:
            continue
        errors = [abs(each.ratio - 1) for each in found]
        cells = [
            from_name,
            to_name,
            str(len(found)),
            percent(float(np.median(errors))),
            percent(float(np.quantile(errors, 0.95))),
            number(geometric_mean(each.ratio for each in found), 3),
            percent(sum(each.inside for each in found) / len(found), 0),
            percent(float(np.median([each.half_width for each in found]))),
            percent(float(np.median([each.states_width for each in found]))),
            percent(max(each.states_width for each in found)),
        ]
        yield f"| {' | '.join(cells)} |"


def tables(data: Data) -> dict[str, list[str]]:
    """The tables, by the name of the place in the page that each is written to."""
    return {
        "methods": list(methods_table(data)),
        "kernels": list(kernels_table(data)),
        "models": list(models_table(data)),
    }


def written(page: str, found: Mapping[str, Sequence[str]]) -> str:
    """``page`` with its tables replaced: each is between two comments with its name."""
    for name, lines in found.items():
        begin, end = f"<!-- table: {name} -->\n", f"<!-- end: {name} -->\n"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after
    return page


def main() -> None:
    """Write the tables to standard output, or into a page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--threads", type=int, help="as measured (default: one per core)")
    parser.add_argument("--write", type=Path, help="replace the tables in this page")
    arguments = parser.parse_args()
    with Bench(arguments.cache, threads=arguments.threads) as bench:
        data = read(bench)
    print(
        f"References of {number(data.fast_s * 1e6)} and {number(data.slow_s * 1e6)} µs;"
        f" {len(data.in_both(0))} bricks of the first half of the families and"
        f" {len(data.in_both(1))} of the second are known in both states.\n"
    )
    found = tables(data)
    if arguments.write is not None:
        page = arguments.write.read_text(encoding="utf-8")
        arguments.write.write_text(written(page, found), encoding="utf-8")
    for lines in found.values():
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()
