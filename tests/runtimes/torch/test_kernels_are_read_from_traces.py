"""A kernel belongs to the annotation during which it was launched, on whichever thread."""

from __future__ import annotations

from typing import Any

import pytest

from bricks.backends.torch.trace.kernels import kernels_by_annotation
from bricks.units.sample import Kernel


def annotation(name: str, at: float, dur: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "user_annotation", "name": name, "ts": at, "dur": dur, "tid": 1}


def launch(correlation: int, at: float, thread: int = 1) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {
        "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at, "dur": 3.0,
        "tid": thread, "args": args,
    }  # fmt: skip


def work(name: str, correlation: int, at: float, dur: float, cat: str = "kernel") -> dict[str, Any]:
    args = {"correlation": correlation, "stream": 7}
    return {"ph": "X", "cat": cat, "name": name, "ts": at, "dur": dur, "args": args}


def test_kernels_belong_to_where_they_were_launched_and_not_to_where_they_ran() -> None:
    events = [
        work("late", 2, 300.0, 5.0),
        work("early", 1, 250.0, 40.5),
        annotation("a", 0.0, 10.0),
        annotation("b", 20.0, 10.0),
        launch(1, 5.0),
        launch(2, 6.0),
        launch(3, 25.0, thread=2),
        work("Memcpy DtoH (Device -> Pinned)", 3, 320.0, 1.5, "gpu_memcpy"),
    ]
    found = kernels_by_annotation(events)
    assert [kernel.name for kernel in found["a"]] == ["early", "late"]
    assert [kernel.device_s for kernel in found["a"]] == pytest.approx([40.5e-6, 5e-6])
    assert found["b"] == (Kernel("Memcpy DtoH (Device -> Pinned)", pytest.approx(1.5e-6)),)


def test_what_was_launched_between_annotations_belongs_to_none() -> None:
    events = [
        annotation("a", 0.0, 10.0),
        launch(1, 15.0),
        work("evicts", 1, 16.0, 100.0),
        work("unknown", 9, 18.0, 1.0),
        {"ph": "M", "name": "process_name"},
    ]
    assert kernels_by_annotation(events) == {}


def test_the_annotation_on_the_device_is_no_other_one() -> None:
    on_device = {**annotation("a", 200.0, 9.0), "cat": "gpu_user_annotation"}
    events = [annotation("a", 0.0, 10.0), on_device, launch(1, 5.0), work("k", 1, 201.0, 2.0)]
    assert kernels_by_annotation(events) == {"a": (Kernel("k", pytest.approx(2e-6)),)}
