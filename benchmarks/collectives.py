"""All-reduces on networks, predicted for sizes that nobody measured, beside measured ones.

Writes docs/scaling.md (its table of networks) and benchmarks/results/collectives.json.

    .venv/bin/python benchmarks/collectives.py --networks loopback 1Gbit 100Mbit

All-reduces between two ranks of this host, a core each, alone and while both compute; sizes are
powers of two. Each second size is fitted, and the others are predicted. Each network is kept at
once; the next call goes on with what lacks. Needs root, for network namespaces. Run nothing else
meanwhile.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from page_parts import put

from bricks.network.collective import ALL_REDUCE, Aspect
from bricks.network.fit import rising_curve
from bricks.network.times import MeasuredNetwork
from bricks.report.tables import number, percent, seconds, size
from bricks.samples.statistics import median
from bricks.session.known_networks import network_called
from bricks.session.local_networks import measure_locally
from bricks.session.networks import NetworkRequest
from bricks.store import Store
from bricks.units.quantities import bytes_per_s_of

ROOT = Path(__file__).resolve().parent.parent
RAW = ROOT / "benchmarks" / "results" / "collectives.json"
PAGE = ROOT / "docs" / "scaling.md"
CACHE = ROOT / "cache" / "collectives"

LOOPBACK, UNLIMITED = "loopback", "unlimited"
NETWORKS = (LOOPBACK, "1Gbit", "100Mbit")
RANKS = 2
SIZES = tuple(1024 << power for power in range(17))

# Half of the sizes should be predicted this well by the other half, in the median.
BOUND = 0.10

Facts = dict[str, Any]


def main(words: Sequence[str] | None = None) -> None:
    """Measure what lacks, and write the page from all that there is."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS))
    parser.add_argument("--max-bytes", type=int, default=SIZES[-1])
    parser.add_argument("--raw", type=Path, default=RAW)
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--pages", action="store_true", help="Only write the page.")
    arguments = parser.parse_args(words)
    rows: dict[str, Facts] = {}
    if arguments.raw.exists():
        rows = json.loads(arguments.raw.read_text(encoding="utf-8"))["networks"]
    for name in () if arguments.pages else arguments.networks:
        rows[name] = measured(name, arguments.cache, arguments.max_bytes)
        text = json.dumps({"ranks": RANKS, "networks": rows}, separators=(",", ":"))
        arguments.raw.write_text(text + "\n", encoding="utf-8")
    put(arguments.page, __file__, {"networks": table(rows)})


def measured(name: str, cache: Path, max_bytes: int) -> Facts:
    """The rounds of each size, and what of the network identifies it."""
    shaped = name != LOOPBACK
    limited = shaped and name != UNLIMITED
    rate_bps = 8 * bytes_per_s_of("--networks", name) if limited else None
    cache.mkdir(parents=True, exist_ok=True)
    with Store.open(cache) as store:
        sizes = [each for each in SIZES if each <= max_bytes]
        measure_locally(
            store,
            NetworkRequest(name, RANKS, operations=[ALL_REDUCE], sizes=sizes, computing=True),
            shaped=shaped,
            bandwidth_bps=rate_bps,
            progress=lambda what, share: print(f"{share:4.0%} {what}", flush=True),
        )
        network = network_called(store, name)
    slow = network.slowdown(RANKS).interval
    return {
        "identity": network.fingerprint["identity"],
        "version": network.fingerprint["version"],
        "slowdown": [slow.value, slow.low, slow.high],
        "alone": _points(network, Aspect.ALONE),
        "computing": _points(network, Aspect.COMPUTING),
    }


def _points(network: MeasuredNetwork, aspect: Aspect) -> dict[str, list[float]]:
    found = network.series(ALL_REDUCE, aspect)[RANKS].rounds_s
    return {str(size): [float(f"{value:.4g}") for value in found[size]] for size in sorted(found)}


def ratios_of(points: Mapping[int, float]) -> list[float]:
    """Predicted over measured, of each size that is left out.

    ``points`` are seconds by size; each second one is left out, and not the first or the last.
    """
    ordered = sorted(points)
    left_out = ordered[1:-1:2]
    kept = rising_curve([(size, points[size]) for size in ordered if size not in left_out])
    return [kept.at(size).value / points[size] for size in left_out]


def _errors(ratios: Sequence[float]) -> list[float]:
    return [abs(ratio - 1) for ratio in ratios]


def table(rows: Mapping[str, Facts]) -> str:
    """The table of all networks."""
    lines = [
        "| network | 64 KiB | 1 MiB | 16 MiB | largest | median error | worst | geometric mean |"
        " computing: 16 MiB | median error | geometric mean | slower |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name in sorted(rows, key=lambda name: ([*NETWORKS, name].index(name), name)):
        row = rows[name]
        alone = {int(each): median(values) for each, values in row["alone"].items()}
        beside = {int(each): median(values) for each, values in row["computing"].items()}
        ratios, ratios_beside = ratios_of(alone), ratios_of(beside)
        ratio, low, high = row["slowdown"]
        cells = [
            name,
            *(seconds(alone.get(each)) for each in (1 << 16, 1 << 20, 1 << 24)),
            f"{size(max(alone))} {seconds(alone[max(alone)])}",
            percent(median(_errors(ratios))),
            percent(max(_errors(ratios))),
            number(geometric_mean(ratios), 3),
            seconds(beside.get(1 << 24)),
            percent(median(_errors(ratios_beside))),
            number(geometric_mean(ratios_beside), 3),
            f"{number(ratio)} ({number(low)} to {number(high)})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
