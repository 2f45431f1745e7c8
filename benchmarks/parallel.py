"""Do schedules predict latencies with several workers? Models with branches, both ways.

Rewrites the table in docs/construction.md, and raw results.

    .venv/bin/python benchmarks/parallel.py

For every model, runs of the whole in sequence, runs of it along streams, and its bricks are sampled
in turn, round by round. Raw results go to benchmarks/results/parallel.json, in microseconds. Takes
some minutes; run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks import Bench, Estimate, Measurement, StopRule
from bricks.compose.basis import Basis
from bricks.compose.parts import state_of
from bricks.compose.recompose import recompose
from bricks.compose.schedule import Construction
from bricks.decompose.streams import streams_of, whole_key
from bricks.measure.importance import Importance, ModelNeeds
from bricks.measure.overhead_walk import probe_walk
from bricks.measure.rounds import SamplingGoal
from bricks.measure.sampler import Sampler
from bricks.measure.supervisor import Supervisor, WorkerSettings
from bricks.measure.turns import ChargedRound, in_turn
from bricks.measure.walk import single_step, with_streams
from bricks.measure.walk_builder import WalkOptions, walk_of
from bricks.measure.walk_sampling import WalkSampling
from bricks.report.tables import number, percent, seconds
from bricks.samples.call_overhead import PROBES
from bricks.samples.measurement import Round, round_spread
from bricks.samples.statistics import median
from bricks.units.interval import Interval
from bricks.zoo import entries

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "parallel.json"
PAGE = ROOT / "docs" / "construction.md"

# Models with branches that are worth running in parallel, and a chain; those that the zoo has.
MODELS = (
    "inception_v1", "inception_v2", "squeezenet", "densenet121", "resnet50", "mobilevit", "gpt2",
    "swin", "gluon_inceptionv3", "gluon_googlenet", "gluon_icnet_resnet50_citys",
    "gluon_deeplab_resnet50_citys", "gluon_psp_resnet50_citys", "vgg19",
)  # fmt: skip
SEQUENCE, STREAMS, BRICKS, CALLS = "in sequence", "along streams", "bricks", "calls"


@dataclass(frozen=True, slots=True)
class Row:
    """A model in sequence and along streams; latencies in seconds, bricks as medians by key."""

    model: str
    occurrences: int
    streams: int
    sequence_s: Interval
    parallel_s: Interval
    added: Estimate
    scheduled: Estimate
    bricks: dict[str, float]


def main() -> None:
    """Measure, and write the table and the raw results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--precision", type=float, default=0.02)
    parser.add_argument("--max-rounds", type=int, default=12)
    known = {entry.name for entry in entries()}
    parser.add_argument("--models", nargs="+", default=[m for m in MODELS if m in known])
    arguments = parser.parse_args()
    rule = StopRule(precision=arguments.precision, max_rounds=arguments.max_rounds)
    with (
        tempfile.TemporaryDirectory() as cache,
        Bench(cache, threads=arguments.threads) as bench,
        Supervisor(
            WorkerSettings("onnxruntime", arguments.threads, 0, workers=arguments.workers)
        ) as supervisor,
    ):
        rows = [
            compared(bench, supervisor, name, arguments.workers, rule) for name in arguments.models
        ]
        target = bench.target
    about = (
        f"{arguments.threads} {'thread' if arguments.threads == 1 else 'threads'} a node,"
        f" {arguments.workers} workers, {target.system.processors:.3g} processors"
        f" ({target.system.name}),"
        f" {target.runtime.backend} {target.runtime.version}, {datetime.now(UTC).date()}"
    )
    RAW.parent.mkdir(exist_ok=True)
    raw = {"about": about, "models": {row.model: facts(row) for row in rows}}
    RAW.write_text(json.dumps(raw, separators=(",", ":")) + "\n", encoding="utf-8")
    put(PAGE, __file__, {"parallel": table(rows, about)})


def compared(bench: Bench, supervisor: Supervisor, name: str, workers: int, rule: StopRule) -> Row:
    """One model, everything sampled in turn."""
    model = bench.read(name)
    found = bench.decompose(model)
    plan = found.plan
    streams = streams_of(plan, found.bricks, workers)
    construction = Construction(
        workers,
        streams,
        found.bricks,
        threads=bench.workspace.runtime.threads,
        processors=bench.target.system.processors,
    )
    key = whole_key(plan, streams, workers)
    ends: dict[str, Any] = {"inputs": len(plan.inputs), "outputs": len(plan.outputs)}
    walks = {
        SEQUENCE: single_step(plan.digest, model.skeleton, **ends),
        STREAMS: with_streams(single_step(key, model.skeleton, **ends), streams),
        BRICKS: walk_of(found, set(plan.keys), WalkOptions(max_eviction_bytes=64 << 20)),
        CALLS: probe_walk(list(PROBES.values())),
    }
    taken: dict[str, list[Round]] = {}

    def keep(rounds: Mapping[str, ChargedRound]) -> None:
        for of_key, (one, _) in rounds.items():
            taken.setdefault(of_key, []).append(one)

    sampler = Sampler(supervisor, walks)
    sampler.prepare()
    shares = Importance({plan.digest: ModelNeeds(plan.counts, dict.fromkeys(plan.counts, 1.0))}, {})
    goals = {BRICKS: SamplingGoal(shares=shares)}
    in_turn(WalkSampling(sampler, rule, goals), keep)
    if sampler.blame.failures:
        raise SystemExit(f"{name}: {next(iter(sampler.blame.failures.values()))}")
    measured = {k: Measurement(k, tuple(rounds), 0.0) for k, rounds in taken.items()}
    state_s = state_of(plan, measured, measured[plan.digest])
    added = recompose(Basis(plan, measured, state_s))
    scheduled = recompose(Basis(plan, measured, state_s, construction=construction))
    assert isinstance(added, Estimate)
    assert isinstance(scheduled, Estimate)
    return Row(
        model=name,
        occurrences=len(plan.occurrences),
        streams=len(set(streams)),
        sequence_s=round_spread(measured[plan.digest], state_s),
        parallel_s=round_spread(measured[key], state_s),
        added=added,
        scheduled=scheduled,
        bricks={k: measured[k].latency_s(state_s) for k in plan.keys},
    )


def facts(row: Row) -> dict[str, Any]:
    """A row in microseconds, to four digits."""

    def micro(value_s: float) -> float:
        return float(f"{value_s * 1e6:.4g}")

    sequence, parallel, found = row.sequence_s, row.parallel_s, row.scheduled
    return {
        "occurrences": row.occurrences,
        "streams": row.streams,
        "sequence": [micro(s) for s in (sequence.value, sequence.low, sequence.high)],
        "parallel": [micro(s) for s in (parallel.value, parallel.low, parallel.high)],
        "sum": micro(row.added.estimate_s),
        "schedule": [micro(s) for s in (found.estimate_s, found.low_s, found.high_s)],
        "critical_path": micro(found.critical_path_s),
        "bricks": {key: micro(latency_s) for key, latency_s in row.bricks.items()},
    }


def table(rows: Sequence[Row], about: str) -> str:
    """The results as Markdown."""
    lines = [
        f"{about}. Ratios are estimate over measured.",
        "",
        "| model | streams | in sequence | sum / measured | side by side | schedule | interval"
        " | schedule / measured | critical path |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rows:
        low, high = seconds(row.scheduled.low_s), seconds(row.scheduled.high_s)
        cells = (
            row.model,
            str(row.streams),
            seconds(row.sequence_s.value),
            number(row.added.estimate_s / row.sequence_s.value, 3),
            seconds(row.parallel_s.value),
            seconds(row.scheduled.estimate_s),
            f"{low} … {high}",
            number(row.scheduled.estimate_s / row.parallel_s.value, 3),
            seconds(row.scheduled.critical_path_s),
        )
        lines.append(f"| {' | '.join(cells)} |")
    ratios = [row.scheduled.estimate_s / row.parallel_s.value for row in rows]
    inside = [row.scheduled.low_s <= row.parallel_s.value <= row.scheduled.high_s for row in rows]
    gains = [row.sequence_s.value / row.parallel_s.value for row in rows]
    lines += [
        "",
        f"Side by side, models ran {number(min(gains))} to {number(max(gains))} times as fast as in"
        f" sequence. Schedule against runs: median error"
        f" {percent(median([abs(r - 1) for r in ratios]))}, worst"
        f" {percent(max(abs(r - 1) for r in ratios))}, geometric mean"
        f" {number(geometric_mean(ratios), 3)};"
        f" {sum(inside)} of {len(rows)} inside the interval.",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
