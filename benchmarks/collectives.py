"""All-reduces on networks, predicted for sizes that nobody measured, next to measured ones.

    .venv/bin/python -m benchmarks collectives

All-reduces between two ranks of this host, a core each, separate and while both compute; sizes are
powers of two. Every second size is fitted, and the others are predicted. Needs root, for network
namespaces. Run nothing else meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.markdown import table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Benchmark, Results, Run
from bricks.network.collective import ALL_REDUCE, Aspect
from bricks.network.series import rising_curve
from bricks.network.times import MeasuredNetwork
from bricks.report.tables import number, percent, seconds, size
from bricks.samples.statistics import median
from bricks.session.networks import NetworkRequest, measure_locally, network_called
from bricks.store import Store
from bricks.units.interval import Interval
from bricks.units.quantities import bytes_per_s_of

LOOPBACK, RANKS = "loopback", 2
NETWORKS = (LOOPBACK, "1Gbit", "100Mbit")
SIZES = tuple(1024 << power for power in range(17))

# Seconds of all rounds, by size in bytes.
Series = Mapping[str, tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class Case:
    """A network: ``loopback``, or a rate between two network namespaces."""

    network: str


@dataclass(frozen=True, slots=True)
class Row:
    """All-reduces while nothing else runs, and while both ranks compute, by size in bytes.

    ``identity`` and ``version`` distinguish networks; ``slowdown`` is of a program that computes
    while they run.
    """

    case: Case
    identity: Mapping[str, Any]
    version: str
    slowdown: Interval
    separate_s: Series
    computing_s: Series


def cases() -> list[Case]:
    """Loopback, and two shaped networks."""
    return [Case(name) for name in NETWORKS]


def run(case: Case, run: Run) -> Row:
    """The rounds of each size on a network."""
    shaped = case.network != LOOPBACK
    rate_bps = 8 * bytes_per_s_of("--only", case.network) if shaped else None
    request = NetworkRequest(
        case.network, RANKS, operations=[ALL_REDUCE], sizes=SIZES, computing=True
    )
    run.folder.mkdir(parents=True, exist_ok=True)
    with Store.open(run.folder) as store:
        measure_locally(store, request, shaped=shaped, bandwidth_bps=rate_bps)
        network = network_called(store, case.network)
    return Row(
        case,
        network.fingerprint["identity"],
        network.fingerprint["version"],
        network.slowdown(RANKS).interval,
        _series(network, Aspect.ALONE),
        _series(network, Aspect.COMPUTING),
    )


def _series(network: MeasuredNetwork, aspect: Aspect) -> Series:
    found = network.series(ALL_REDUCE, aspect)[RANKS].rounds_s
    return {str(size): tuple(digits(each, 4) for each in found[size]) for size in sorted(found)}


def _medians_s(series: Series) -> dict[int, float]:
    return {int(size): median(rounds) for size, rounds in series.items()}


def predicted_sizes(points: Mapping[int, float]) -> Ratios:
    """Predicted over measured, of every second size but the first and the last, by the others.

    ``points`` are seconds by size.
    """
    ordered = sorted(points)
    left_out = ordered[1:-1:2]
    kept = rising_curve([(size, points[size]) for size in ordered if size not in left_out])
    return Ratios.of((kept.at(size).value, points[size]) for size in left_out)


def parts(results: Results[Row]) -> dict[str, str]:
    """The table of all networks."""
    head = ["network", "64 KiB", "1 MiB", "16 MiB", "largest", "median error", "worst",
            "geometric mean", "computing: 16 MiB", "median error", "geometric mean",
            "slower"]  # fmt: skip
    rows = sorted(results.rows, key=lambda row: NETWORKS.index(row.case.network))
    return {"networks": table(head, map(_cells, rows))}


def _cells(row: Row) -> list[str]:
    separate_s, computing_s = _medians_s(row.separate_s), _medians_s(row.computing_s)
    separate, computing = predicted_sizes(separate_s), predicted_sizes(computing_s)
    largest, slow = max(separate_s), row.slowdown
    return [
        row.case.network,
        *(seconds(separate_s.get(each)) for each in (1 << 16, 1 << 20, 1 << 24)),
        f"{size(largest)} {seconds(separate_s[largest])}",
        percent(separate.median_error),
        percent(separate.worst_error),
        number(separate.geomean, 3),
        seconds(computing_s.get(1 << 24)),
        percent(computing.median_error),
        number(computing.geomean, 3),
        f"{number(slow.value)} ({number(slow.low)} to {number(slow.high)})",
    ]


BENCHMARKS = (Benchmark("collectives", "scaling.md", Row, cases, run, parts),)
