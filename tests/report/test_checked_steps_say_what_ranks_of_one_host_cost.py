"""A checked step says what both ranks at once took without communication: they share a host."""

from __future__ import annotations

from typing import Any

import pytest

from bricks.report.scaling import scaling_parts


def row(ranks: int, step_s: float, solo_s: float | None) -> dict[str, Any]:
    figures = ("samples_per_s", "speedup", "efficiency", "exposed_communication_s")
    named = {f"{name}{end}": 1.0 for name in figures for end in ("", "_low", "_high")}
    ends = ("", "_low", "_high")
    return {
        **named, **{f"cost_per_epoch{end}": None for end in ends}, "ranks": ranks,
        "strategy": "ddp", "batch": 4, "step_s": step_s, "low_s": step_s, "high_s": step_s,
        "communication_s": 0.0, "bytes_sent": 0, "ratio": None, "error": None,
        "measured_solo_s": solo_s, "measured_step_s": None if solo_s is None else 1.1 * solo_s,
        "origin": dict.fromkeys(("compute", "copies", "network", "slowdown"), "measured"),
    }  # fmt: skip


def facts(scaling: str) -> dict[str, Any]:
    return {
        "workload": "net", "system": {"name": "host"}, "network": "lo", "scaling": scaling,
        "runtime": {"backend": "torch", "version": "2", "threads": 1}, "accumulate": 1,
        "straggler": 1.0, "samples_per_epoch": None, "pays": [], "page": None, "trace": None,
        "ranks": [row(1, 0.1, None), row(2, 0.11, 0.15)],
    }  # fmt: skip


def said(scaling: str) -> str:
    return " ".join(part for part in scaling_parts(facts(scaling)) if isinstance(part, str))


@pytest.mark.parametrize("fact", ["2 ranks at once took 150 ms", "(100 ms predicted)"])
def test_a_checked_step_has_its_solo_step_beside_the_predicted_one(fact: str) -> None:
    assert fact in said("weak")


def test_a_rank_of_a_divided_batch_is_not_compared_with_one_that_has_all() -> None:
    assert "at once" not in said("strong")
