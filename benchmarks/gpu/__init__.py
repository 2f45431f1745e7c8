"""What was measured on GPUs, in ``results/gpu``, and what follows from it.

    .venv/bin/python -m benchmarks gpu

Nothing here needs a GPU. Each module has a study of ``research/gpu.md``.
"""

from __future__ import annotations

from typing import Any

from benchmarks.gpu import (
    compiled,
    decoders,
    device_time,
    displaced,
    graphs,
    lanes,
    other_cards,
    translation,
    unmeasured,
    unmeasured_host,
)
from benchmarks.study import Benchmark

BENCHMARKS: tuple[Benchmark[Any, Any], ...] = (
    *device_time.BENCHMARKS,
    *displaced.BENCHMARKS,
    *lanes.BENCHMARKS,
    *graphs.BENCHMARKS,
    *compiled.BENCHMARKS,
    *translation.BENCHMARKS,
    *decoders.BENCHMARKS,
    *unmeasured.BENCHMARKS,
    *unmeasured_host.BENCHMARKS,
    *other_cards.BENCHMARKS,
)
