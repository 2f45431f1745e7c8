"""How well are data-parallel steps predicted? Real steps of DDP on two ranks beside predictions.

Writes docs/scaling.md (its tables of steps, of harder cases and of curves) and
benchmarks/results/scaling.json.

    .venv/bin/python benchmarks/scaling.py --minutes 30

Each workload's bricks are measured, and collectives on each network (loopback, and network
namespaces of which each sends at a shaped rate, which needs root). Then real steps run on two
ranks, a core each, in turn with steps that do not communicate. Each row is kept at once; the next
call goes on with what lacks. Run nothing else meanwhile.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks import Bench, BricksError, ScalingOptions, scale_training
from bricks.measure.conditions import Conditions
from bricks.measure.rounds import StopRule
from bricks.network.collective import ALL_REDUCE, BROADCAST
from bricks.network.times import MeasuredNetwork, Network, StatedNetwork
from bricks.report.tables import number, percent, seconds
from bricks.samples.statistics import median
from bricks.session.known_networks import network_called
from bricks.session.local_networks import measure_locally
from bricks.session.networks import NetworkRequest
from bricks.store import Store
from bricks.studies.scaling.options import NetworkOptions, StepOptions
from bricks.studies.scaling.result import ScaleFailure, ScalePoint
from bricks.studies.scaling.study import ScalingStudy
from bricks.studies.study import ask
from bricks.units.interval import Interval
from bricks.units.quantities import bytes_per_s_of

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "scaling.json"
PAGE = ROOT / "docs" / "scaling.md"
CACHE = ROOT / "cache" / "scaling"

LOOPBACK = "loopback"
NETWORKS = (LOOPBACK, "1Gbit", "100Mbit")
RANKS = 2
SIZES = tuple(1024 * 4**power for power in range(8))
# Few gradients and many, small ones and large ones, buffers to broadcast and none.
WORKLOADS = {
    "resnet44": "torch_resnet44_training",
    "mobilenet_v3": "torch_mobilenet_v3_training",
    "lstm": "torch_lstm_training",
    "two_tower": "torch_two_tower_training",
    "digits_resnet": "models/training/digits.py:digits_resnet",
    "transformer": "models/training/synthetic.py:sequences_transformer",
}
# Workload, network, ranks, and how much slower one of them is. Four ranks share two cores.
CASES = (
    ("resnet44", LOOPBACK, 2, 1.5),
    ("lstm", "1Gbit", 2, 1.5),
    ("digits_resnet", "1Gbit", 2, 2.0),
    ("transformer", "100Mbit", 2, 2.0),
    ("resnet44", LOOPBACK, 4, 1.0),
    ("lstm", LOOPBACK, 4, 1.0),
    ("digits_resnet", LOOPBACK, 4, 1.0),
    ("resnet44", "100Mbit", 4, 1.0),
)
RULE = StopRule(precision=0.02, max_rounds=12)
REAL_RULE = StopRule(precision=0.02, min_rounds=8, max_rounds=16, passes=1)

# The study whose workload this is: ResNet-44, a batch of 128 on each worker, CIFAR-10's shapes.
STUDY = "torch_resnet44_training"
STUDY_BATCH, STUDY_RANKS = 128, (1, 2, 4, 8, 12, 16, 32, 64)
STATED: Mapping[str, Network] = {
    "1 Gbit/s, 50 µs": StatedNetwork(1e9 / 8, 50e-6),
    "10 Gbit/s, 20 µs": StatedNetwork(1e10 / 8, 20e-6),
}

Facts = dict[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--minutes", type=float, help="Begin nothing after this time.")
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    found: Facts = {"rows": [], "curves": {}}
    if arguments.raw.exists():
        found = json.loads(arguments.raw.read_text(encoding="utf-8"))
    if not arguments.pages:
        measure(found, arguments)
    usual = [row for row in found["rows"] if _usual(row)]
    harder = [row for row in found["rows"] if not _usual(row)]
    parts = {
        "steps": steps_table(usual),
        "harder": harder_table(harder),
        "curves": curves_table(found),
    }
    put(arguments.page, __file__, parts)


def measure(found: Facts, arguments: argparse.Namespace) -> None:
    """Measure what lacks in ``found``."""
    minutes = arguments.minutes
    deadline = float("inf") if minutes is None else time.monotonic() + 60 * minutes
    arguments.cache.mkdir(parents=True, exist_ok=True)
    known = {_case(row) for row in found["rows"]}
    wanted = [(w, n, RANKS, 1.0) for w in arguments.workloads for n in arguments.networks]
    wanted += [c for c in CASES if c[0] in arguments.workloads and c[1] in arguments.networks]
    conditions = Conditions(rule=RULE)
    for case in [each for each in wanted if each not in known]:
        if time.monotonic() >= deadline:
            return
        network = _network(case[1], case[2], arguments.cache)
        with Bench(
            arguments.cache, runtime="torch", threads=1, conditions=conditions, published=False
        ) as bench:
            found |= {
                "system": bench.target.system.name,
                "runtime": f"torch {bench.target.runtime.version}",
                "date": datetime.now(UTC).date().isoformat(),
            }
            facts = {key: found[key] for key in ("system", "runtime", "date")}
            found["rows"].append(row(bench, case, network) | facts)
            print(found["rows"][-1], flush=True)
        _keep(found, arguments.raw)
    if not found["curves"] and time.monotonic() < deadline:
        measured = _network("1Gbit", RANKS, arguments.cache)
        with Bench(
            arguments.cache, runtime="torch", threads=1, conditions=conditions, published=False
        ) as bench:
            found["curves"] = curves(bench, {"1 Gbit/s, measured with two ranks": measured})
        _keep(found, arguments.raw)


def _keep(found: Facts, raw: Path) -> None:
    raw.write_text(json.dumps(found, separators=(",", ":")) + "\n", encoding="utf-8")


def _case(row: Facts) -> tuple[str, str, int, float]:
    return row["workload"], row["network"], row.get("ranks", RANKS), row.get("straggler", 1.0)


def _usual(row: Facts) -> bool:
    """Whether every rank has a core of its own and is as fast as the others."""
    return _case(row)[2:] == (RANKS, 1.0)


def _network(link: str, ranks: int, cache: Path) -> MeasuredNetwork:
    """The network of so many ranks by this link, of which the cache gets what it lacks."""
    rate_bps = None if link == LOOPBACK else 8 * bytes_per_s_of("--networks", link)
    name = link if ranks == RANKS else f"{link}-{ranks}"
    with Store.open(cache) as store:
        operations = [ALL_REDUCE, BROADCAST]
        wanted = NetworkRequest(name, ranks, operations=operations, sizes=SIZES, computing=True)
        measure_locally(store, wanted, shaped=link != LOOPBACK, bandwidth_bps=rate_bps)
        return network_called(store, name)


class ShortlyChecked(ScalingStudy):
    """Real steps are run until they are known as well as this page needs them."""

    real_rule = REAL_RULE


def row(bench: Bench, case: tuple[str, str, int, float], network: MeasuredNetwork) -> Facts:
    """A workload on a network: seconds predicted and measured, or why there are none."""
    workload, link, ranks, straggler = case
    entry = WORKLOADS[workload]
    facts: Facts = {"workload": workload, "network": link, "ranks": ranks, "straggler": straggler}
    options = ScalingOptions(
        workload=entry, ranks=[1, ranks], network=NetworkOptions(given=network),
        step=StepOptions(straggler=straggler), check=ranks,
    )  # fmt: skip
    try:
        (result,) = ask(ShortlyChecked(options, bench.workspace)).strategies
    except BricksError as error:
        return {**facts, "error": str(error)}
    failed = [point.error for point in result.points if isinstance(point, ScaleFailure)]
    if failed:
        return {**facts, "error": failed[0]}
    one, several = result.predicted
    assert several.checked is not None, "real steps were asked for"
    return {
        **facts,
        "batch": several.batch,
        "bytes_sent": several.bytes_sent,
        "solo_s": one.step_s.value,
        "measured_solo_s": several.checked.solo_s,
        "step_s": several.step_s.value,
        "low_s": several.step_s.low,
        "high_s": several.step_s.high,
        "exposed_s": several.exposed_communication_s.value,
        "measured_step_s": several.checked.step_s,
        "origin": several.origins.network,
    }


def curves(bench: Bench, measured: Mapping[str, Network]) -> Facts:
    """The study's workload on measured and stated networks: speed-up and its interval by ranks."""
    found: Facts = {}
    for name, network in {**measured, **STATED}.items():
        options = ScalingOptions(
            workload=STUDY, ranks=STUDY_RANKS, network=NetworkOptions(given=network),
            batch=STUDY_BATCH,
        )  # fmt: skip
        (result,) = scale_training(bench.workspace, options).strategies
        found[name] = {
            "pays_up_to": result.pays_up_to,
            "points": [_point(p) for p in result.points if isinstance(p, ScalePoint)],
        }
    return found


def _point(point: ScalePoint) -> Facts:
    def told(figure: Interval) -> list[float]:
        return [float(f"{each:.4g}") for each in (figure.value, figure.low, figure.high)]

    return {
        "ranks": point.ranks,
        "step_s": told(point.step_s),
        "speedup": told(point.speedup),
        "network": point.origins.network,
    }


def steps_table(every: Sequence[Facts]) -> str:
    """The table of real steps, and a line that sums it up."""
    order = [(workload, network) for workload in WORKLOADS for network in NETWORKS]
    rows = [row for row in every if "error" not in row]
    rows.sort(key=lambda row: order.index((row["workload"], row["network"])))
    lines = [
        "| workload | network | alone, predicted | measured on both ranks | step, predicted |"
        " interval | measured | ratio | communication exposed, predicted | measured |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in rows:
        cells = [
            each["workload"], each["network"], seconds(each["solo_s"]),
            seconds(each["measured_solo_s"]), seconds(each["step_s"]),
            f"{seconds(each['low_s'])} … {seconds(each['high_s'])}",
            seconds(each["measured_step_s"]), f"{each['step_s'] / each['measured_step_s']:.3f}",
            seconds(each["exposed_s"]),
            seconds(max(0.0, each["measured_step_s"] - each["measured_solo_s"])),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    if not rows:
        return "\n".join(lines)
    errors = [f"- {each['workload']}, {each['network']}: {each['error']}" for each in every
              if "error" in each]  # fmt: skip
    return "\n".join([*lines, "", f"{_where(rows)}: {_summed_up(rows)}.", *errors])


def _summed_up(rows: Sequence[Facts]) -> str:
    """How far predicted steps are from measured ones, over all rows, and in which direction."""
    ratios = [each["step_s"] / each["measured_step_s"] for each in rows]
    off = [abs(ratio - 1) for ratio in ratios]
    inside = [each["low_s"] <= each["measured_step_s"] <= each["high_s"] for each in rows]
    return (
        f"{len(rows)} pairs, median error {percent(median(off))}, worst {percent(max(off))},"
        f" geometric mean of the ratios {geometric_mean(ratios):.3f}, {sum(inside)} of"
        f" {len(inside)} inside the interval"
    )


def harder_table(rows: Sequence[Facts]) -> str:
    """Steps with a straggler, and on ranks that share cores."""
    lines = [
        "| workload | network | ranks | straggler | alone, predicted | measured on all ranks |"
        " step, predicted | interval | measured | ratio |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for each in rows:
        workload, link, ranks, straggler = _case(each)
        told = [workload, link, str(ranks), f"{straggler:g}" if straggler > 1 else "none"]
        if "error" in each:
            lines.append(f"| {' | '.join(told)} | {each['error']} | | | | | |")
            continue
        told += [
            seconds(each["solo_s"]), seconds(each["measured_solo_s"]), seconds(each["step_s"]),
            f"{seconds(each['low_s'])} … {seconds(each['high_s'])}",
            seconds(each["measured_step_s"]), f"{each['step_s'] / each['measured_step_s']:.3f}",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(told)} |")
    known = [each for each in rows if "error" not in each]
    return "\n".join([*lines, "", f"{_where(rows)}: {_summed_up(known)}."] if known else lines)


def _where(rows: Sequence[Facts]) -> str:
    """When and where steps were measured; all rows of a table are from one system."""
    told = {(row["system"], row["runtime"]) for row in rows}
    if len(told) != 1:
        raise SystemExit(f"rows are from several systems, {told}: measure all of them again")
    ((system, runtime),) = told
    return f"{max(row['date'] for row in rows)}, {system}, {runtime}"


def curves_table(found: Facts) -> str:
    """The speed-up of the study's workload by ranks, on each network."""
    every = found["curves"]
    if not every:
        return ""
    lines = [f"| ranks | {' | '.join(every)} |", f"|--:|{'--:|' * len(every)}"]
    by_ranks = {name: {p["ranks"]: p for p in each["points"]} for name, each in every.items()}
    for ranks in STUDY_RANKS:
        cells = []
        for points in by_ranks.values():
            speedup, low, high = points[ranks]["speedup"]
            cells.append(f"{number(speedup)} ({number(low)} to {number(high)})")
        lines.append(f"| {ranks} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
