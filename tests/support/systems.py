"""Caches that know systems other than this host, and latencies that nothing has run for."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Here

import bricks.session.workspace
from bricks import Bench
from bricks.samples.call_overhead import LONG, PROBES, SHORT
from bricks.samples.measurement import Round
from bricks.session.machine_peaks import peak_bricks
from bricks.store import Owner
from bricks.system import System


@contextmanager
def on(system: System) -> Iterator[None]:
    """As long as this lasts, benches take the host for ``system``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bricks.session.workspace, "fingerprint", lambda: system)
        yield


def measure_on(system: System, cache: Path, models: Sequence[Path], **options: Any) -> None:
    """Measure ``models`` with the fake runtime, as if the host were ``system``."""
    quick = {"runtime": "fake", "effort": "quick"}
    with on(system), Bench(cache, **quick | options) as bench:
        bench.measure([bench.read(path) for path in models])


def know(bench: Bench, latency_s: Mapping[str, float]) -> None:
    """Let the cache of a bench have measured that these keys take this long, two rounds each."""
    taken = {key: (Round((each_s,)), 0.1) for key, each_s in latency_s.items()}
    owner, target = Owner.current(), bench.target.key
    bench.store.systems.save_target(bench.target)
    bench.store.claims.claim(target, sorted(taken), owner)
    for _ in range(2):
        bench.store.claims.append_rounds(target, taken, owner)
    bench.store.claims.finish(target, sorted(taken), owner)


def know_on(system: System, cache: Path, path: Path, latency_s: float, **options: Any) -> None:
    """Let a cache know that each brick of a model takes this long on ``system``."""
    with on(system), Bench(cache, **options) as bench:
        plan = bench.decompose(bench.read(path)).plan
        probes = {PROBES[n]: 1e-7 + n * 1e-7 for n in (SHORT, LONG)}
        know(bench, dict.fromkeys(plan.keys, latency_s) | probes)


def know_peaks(bench: Bench) -> None:
    """Let the cache of a bench know peaks, which take seconds to measure: 1 GFLOP/s and GB/s."""
    bricks = {brick.key: brick for brick in peak_bricks()}
    know(bench, {key: max(b.flops or 0, b.bytes_moved) / 1e9 for key, b in bricks.items()})


def copied(cache: Path, here: Here) -> Here:
    """``here``, on a copy of a cache."""
    shutil.copytree(cache, here.cache)
    return here
