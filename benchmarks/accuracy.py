"""How accurate are estimates? Compare the zoo with whole-model runs, in pieces of any length.

Writes docs/accuracy.md, the table in the README, and the results of this host.

    .venv/bin/python benchmarks/accuracy.py --minutes 20

For every number of threads and every batch size, a cache of its own is filled: bricks and whole
models are sampled in turn, some models at a time. Then a part of the zoo is cut at several
granularities. Each piece is written at once to SYSTEM.unfinished.json in the folder of results;
the next call goes on with the missing models. After a kill it goes on within the piece, because
caches stay in cache/accuracy. When nothing is missing, or with ``--finish``, the file becomes
SYSTEM.json, and the pages are written from it and from the files of all other hosts; the call
after that begins anew. ``--by-model`` prints each model's row. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import accuracy_page
from accuracy_figures import summed_up
from accuracy_results import CALLS, Case, Conduct, Cost, Cut, Host, Row, file_of, hosts, load, save

from bricks import Bench, BricksError, Comparison, Measurement, ModelComparison, Target
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.compose.recomposition_error import composition_s
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import round_spread
from bricks.studies.inference.result import repeat_error
from bricks.zoo import entries, entry

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "accuracy"
CACHE = ROOT / "cache" / "accuracy"
PAGE = ROOT / "docs" / "accuracy.md"
README = ROOT / "README.md"

# Models that are cut at several granularities: one of each kind, none of them large.
CUT = (
    "squeezenet", "resnet18", "mobilenet_v2", "shufflenet", "inception_v1", "gluon_mobilenet025",
    "bert_mini", "gpt2", "vit_tiny", "convnext", "poolformer", "wav2vec2",
)  # fmt: skip
GRANULARITIES = ("executed", "1", "2", "3", "5", "10")

# Models that are compared at a time.
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class Settings:
    """What is measured, with which runtime, and where the caches are."""

    runtime: str
    rule: StopRule
    models: Sequence[str]
    cases: Sequence[tuple[int, int]]  # threads, batch
    at_once: int
    retry: bool
    caches: Path

    @contextmanager
    def bench(self, host: Host, cache: str, **changes: Any) -> Iterator[Bench]:
        """A bench with a cache of its own, which stays between the pieces of a session."""
        folder = self.caches / file_of(Path(), host.system).stem / host.begun.replace(":", "")
        conditions = Conditions(rule=self.rule)
        options = {"runtime": self.runtime, "retry": self.retry, "conditions": conditions}
        (folder / cache).mkdir(parents=True, exist_ok=True)
        with Bench(folder / cache, **{**options, **changes}) as bench:
            yield bench

    @contextmanager
    def case_bench(self, host: Host, case: Case) -> Iterator[Bench]:
        """The bench of a case."""
        cache = f"{case.threads}-threads-batch-{case.batch}"
        with self.bench(host, cache, threads=case.threads) as bench:
            yield bench


class Session:
    """A host's results while they are measured: each piece is kept in ``path``.

    Pieces end when ``minutes`` have passed since the beginning of this call; there is always one.
    """

    def __init__(self, host: Host, path: Path, minutes: float | None) -> None:
        self.host = host
        self._path = path
        self._deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self._pieces = 0

    def over(self) -> bool:
        """Whether no other piece shall begin."""
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return late and self._pieces > 0

    def keep(self, host: Host) -> None:
        """Keep a piece more."""
        self.host = host
        self._pieces += 1
        save(host, self._path)


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the pages when nothing does."""
    arguments = _parser().parse_args(words)
    if arguments.by_model:
        for host in hosts(arguments.results):
            print(accuracy_page.by_model(host))
        return
    if arguments.pages:
        _write_pages(arguments)
        return
    settings = Settings(
        runtime=arguments.runtime,
        rule=StopRule(precision=arguments.precision, max_rounds=arguments.max_rounds),
        models=[entry(name).name for name in arguments.models],
        cases=[(threads, batch) for batch in arguments.batches for threads in arguments.threads],
        at_once=arguments.at_once,
        retry=arguments.retry,
        caches=arguments.cache,
    )
    with tempfile.TemporaryDirectory() as none, Bench(none, runtime=settings.runtime) as bench:
        target = bench.target
    host = _begun(target, settings, arguments.results)
    path = file_of(arguments.results, host.system, unfinished=True)
    if path.exists():
        found = load(path)
        if (differing := _differing(found, host)) is not None:
            raise SystemExit(f"{path} was begun {differing}: do the same, or remove it")
        host = found
    else:
        save(host, path)  # it names the session's caches, which a first piece may leave behind
    session = Session(host, path, arguments.minutes)
    if not arguments.finish and not measure(session, settings):
        wanted = len(settings.cases) * len(settings.models)
        left = f"{_models(session.host)} of {wanted} are there"
        print(f"{path}: {left}; run the same command again to go on")
        return
    if not session.host.rows:
        raise SystemExit(f"{path}: no model is compared yet, so nothing can be summed up")
    host = summed_up(with_costs(session.host, settings), datetime.now(UTC).date().isoformat())
    save(host, file_of(arguments.results, host.system))
    path.unlink(missing_ok=True)
    _write_pages(arguments)
    print(f"{file_of(arguments.results, host.system)}: {_models(host)} are there; pages written")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--max-rounds", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=[entry.name for entry in entries()])
    parser.add_argument("--runtime", default="onnxruntime")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, help="Models to a piece.")
    parser.add_argument("--minutes", type=float, help="Begin no piece after this time.")
    parser.add_argument("--finish", action="store_true", help="Measure no more: sum up, and write.")
    parser.add_argument("--retry", action="store_true", help="Try again what failed.")
    parser.add_argument("--cache", type=Path, default=CACHE, help="The folder for caches.")
    parser.add_argument("--results", type=Path, default=RESULTS, help="The folder for results.")
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--pages", action="store_true", help="Only write pages from the results.")
    parser.add_argument(
        "--by-model", action="store_true", help="Only print a row for each model of the results."
    )
    return parser


def _begun(target: Target, settings: Settings, results: Path) -> Host:
    """A host of which nothing is measured; its name is that of no other one."""
    system, key = target.system.name, target.system.key
    there = file_of(results, system)
    if there.exists() and load(there).key not in (None, key):
        system = f"{system}-{key.removeprefix('s1-')[:6]}"
    return Host(
        system=system,
        key=key,
        backend=target.runtime.backend,
        version=target.runtime.version,
        begun=datetime.now(UTC).isoformat(timespec="milliseconds"),  # names its caches
        finished=None,
        zoo=len(entries()),
        precision=settings.rule.precision,
        max_rounds=settings.rule.max_rounds,
    )


def _differing(begun: Host, now: Host) -> str | None:
    """How a session was begun that cannot go on like this; None if it can."""
    for name in ("key", "backend", "version", "precision", "max_rounds"):
        if getattr(begun, name) != getattr(now, name):
            return f"with {name} {getattr(begun, name)}, not {getattr(now, name)}"
    return None


def _models(host: Host) -> str:
    """How much is measured."""
    return f"{sum(len(case.tried) for case in host.cases)} comparisons"


def measure(session: Session, settings: Settings) -> bool:
    """Measure what lacks, piece by piece; whether nothing lacks any more."""
    if settings.retry:
        cases = (replace(case, failures={}) for case in session.host.cases)
        session.host = replace(session.host, cases=tuple(cases))
    for threads, batch in settings.cases:
        case = session.host.case(threads, batch)
        left = [name for name in settings.models if name not in case.tried]
        if not left:
            continue
        with settings.case_bench(session.host, case) as bench:
            while left:
                if session.over():
                    return False
                names, left = left[: settings.at_once], left[settings.at_once :]
                case = case.plus(compared(bench, names, case))
                session.keep(session.host.with_case(case))
    return _cut(session, settings)


def compared(bench: Bench, names: Sequence[str], case: Case) -> Case:
    """A piece of ``case``: its models called ``names``, beside runs of them."""
    models, failures = [], {}
    for name in names:
        try:
            models.append(bench.read(name, batch=case.batch))
        except BricksError as error:
            failures[name] = str(error)
    comparison = bench.compare(models)
    read_s = {model.name: model.read_s for model in models}
    rows = []
    for row in comparison.rows:
        if isinstance(row, ModelComparison):
            rows.append(row_of(bench, comparison, row, read_s[row.model]))
        else:
            failures[row.model] = row.error
    conduct = Conduct(comparison.rounds, comparison.disturbed_rounds, comparison.remeasured_bricks)
    return replace(case, rows=tuple(rows), failures=failures, conduct=conduct)


def row_of(bench: Bench, comparison: Comparison, row: ModelComparison, read_s: float) -> Row:
    """A compared model as it is kept: in microseconds to four digits."""
    plan, estimate, measured = row.plan, row.estimate, row.measured_s
    results = bench.store.measurements.results(
        comparison.target.key, [*plan.keys, plan.digest, *PROBES.values()]
    )
    whole = results[plan.digest]
    assert isinstance(whole, Measurement)
    state_s, noise = state_of(plan, results, whole), repeat_error(whole)
    ratios = []
    for factor in CALLS:
        found = recompose(Basis(plan, results, state_s, in_walk_call_factor=factor))
        assert isinstance(found, Estimate)
        ratios.append(round(found.estimate_s / measured.value, 4))
    total_s = estimate.estimate_s - estimate.call_overhead_s
    weight_bound_s = sum(s.latency_s for s in estimate.shares if s.brick in plan.weight_bound)
    composing_s = composition_s(
        total_s, len(plan.occurrences), estimate.call_overhead_s, weight_bound_s
    )
    half_s = (estimate.high_s - estimate.low_s) / 2
    return Row(
        model=row.model,
        occurrences=len(plan.occurrences),
        bricks=len(plan.keys),
        measured_us=_micro(measured.value),
        measured_low_us=_micro(measured.low),
        measured_high_us=_micro(measured.high),
        estimate_us=_micro(estimate.estimate_s),
        low_us=_micro(estimate.low_s),
        high_us=_micro(estimate.high_s),
        ratio=round(row.ratio, 4),
        state_us=None if state_s is None else _micro(state_s),
        other_state_share=round(estimate.other_state_share, 4),
        noise=None if noise is None else round(noise, 4),
        composing_us=_micro(composing_s),
        sampled_us=_micro(math.sqrt(max(0.0, half_s**2 - composing_s**2))),
        read_s=round(read_s, 4),
        by_factor=tuple(ratios),
    )


def _micro(latency_s: float, digits: int = 4) -> float:
    return float(f"{latency_s * 1e6:.{digits}g}")


def _cut(session: Session, settings: Settings) -> bool:
    """Cut some models at each granularity, a piece each; whether none lacks any more."""
    names = [name for name in CUT if name in settings.models]
    if not names:
        return True
    for granularity in GRANULARITIES:
        if granularity in {cut.granularity for cut in session.host.cuts}:
            continue
        if session.over():
            return False
        changes = {"threads": 1, "granularity": granularity}
        with settings.bench(session.host, f"granularity-{granularity}", **changes) as bench:
            s = bench.compare([bench.read(name) for name in names]).summary
        if s.median_abs_error is None or s.max_abs_error is None or s.geomean_ratio is None:
            continue  # nothing could be compared
        cut = Cut(
            granularity=granularity,
            bricks=s.bricks,
            occurrences=s.occurrences,
            median_error=round(s.median_abs_error, 5),
            worst_error=round(s.max_abs_error, 5),
            geomean_ratio=round(s.geomean_ratio, 5),
            speedup_latency=round(s.speedup_latency or 0.0, 4),
            bricks_wall_s=round(s.bricks_wall_s, 3),
        )
        host = session.host
        session.keep(replace(host, cut_models=names, cuts=(*host.cuts, cut)))
    return True


def with_costs(host: Host, settings: Settings) -> Host:
    """With the cost of each case, from its cache; without it where the cache is gone."""
    for case in host.cases:
        with settings.case_bench(host, case) as bench:
            host = host.with_case(replace(case, cost=cost_of(bench, case)))
    return host


def cost_of(bench: Bench, case: Case) -> Cost | None:
    """What measuring the models of a case cost, and what their bricks did."""
    names = {row.model for row in case.rows}
    target = bench.target.key
    plans = {
        p.model: (p, s) for p, s in bench.store.plans.all(target, "executed") if p.model in names
    }
    keys = {key for plan, _ in plans.values() for key in plan.keys}
    digests = [plan.digest for plan, _ in plans.values()]
    found = bench.store.measurements.results(target, sorted({*keys, *digests}))
    wholes = [m for digest in digests if isinstance(m := found.get(digest), Measurement)]
    parts = [m for key in keys if isinstance(m := found.get(key), Measurement)]
    if not parts or len(wholes) < len(names):
        return None
    read_s = sum(row.read_s or 0.0 for row in case.rows)
    parts_s = sum(part.wall_s for part in parts) + sum(wall_s for _, wall_s in plans.values())
    whole_s = sum(round_spread(whole).value for whole in wholes)
    return Cost(
        speedup_latency=round(whole_s / sum(round_spread(part).value for part in parts), 4),
        models_wall_s=round(read_s + sum(whole.wall_s for whole in wholes), 3),
        bricks_wall_s=round(read_s + parts_s, 3),
    )


def _write_pages(arguments: argparse.Namespace) -> None:
    """Write the page and the README's table from the results of all hosts."""
    known = hosts(arguments.results)
    before = arguments.page.read_text(encoding="utf-8") if arguments.page.exists() else ""
    arguments.page.write_text(accuracy_page.page(known, before), encoding="utf-8")
    readme = arguments.readme.read_text(encoding="utf-8")
    arguments.readme.write_text(accuracy_page.readme(known, readme), encoding="utf-8")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit("interrupted: run the same command again to go on") from None
