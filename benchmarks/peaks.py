"""How many bricks of the zoo are faster than the machine's peaks allow, and by how much.

    python benchmarks/peaks.py --threads 1 --cache /tmp/peaks

Measures all bricks of the zoo, and the peaks, where the cache lacks them. The share that a brick
reaches of its roofline should exceed 1 by noise alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from bricks import Bench, Part, decompose_all
from bricks.analysis.explain import Explainer
from bricks.zoo import entries

LIMITS = (1.0, 1.05, 1.1, 1.2)
SHOWN = 10


def parts_of_the_zoo(bench: Bench) -> list[Part]:
    """Each brick of the zoo that has a roofline, once; the one that exceeds it most first."""
    models = [bench.read(entry.name) for entry in entries()]
    decompose_all(bench.workspace, models)
    bench.measure(models)
    explainer = Explainer(bench.workspace, measure=True)
    parts = {part.brick: part for model in models for part in explainer.explain(model).parts}
    return sorted(
        (part for part in parts.values() if part.peak_share is not None),
        key=lambda part: -(part.peak_share or 0.0),
    )


def main() -> None:
    """Print the peaks, counts of bricks above them, and the worst of these."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    given = parser.parse_args()
    with Bench(given.cache, threads=given.threads) as bench:
        parts = parts_of_the_zoo(bench)
        peaks = Explainer(bench.workspace).peaks
        print(f"{bench.target.system.name}, {given.threads} threads, {len(parts)} bricks")
    print(f"{(peaks.flops_per_s or 0.0) / 1e9:.0f} GFLOP/s")
    for level in peaks.levels:
        print(f"{level.size_bytes >> 10:>8} KiB {level.bytes_per_s / 1e9:6.1f} GB/s")
    for limit in LIMITS:
        print(f"above {limit:.2f}: {sum((part.peak_share or 0.0) > limit for part in parts)}")
    for part in parts[:SHOWN]:
        print(
            f"{part.peak_share:.2f} {part.latency_s * 1e6:9.1f} µs  {part.operator}  {part.shapes}"
        )


if __name__ == "__main__":
    main()
