"""Where a runtime can, the worker runs the steps of a walk in one call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bricks.backends.base import BoundModel, FusedRunner
from bricks.errors import BackendError
from bricks.measure.worker.passes import FusedRuns
from bricks.units.sample import Sample


class Step:
    def sample(self) -> Sample:
        raise AssertionError("it runs with the others")


@dataclass
class Together(FusedRunner):
    """A backend that notes what it joins, and its answer: the number of each step."""

    refuses: bool = False
    alone: tuple[BoundModel, ...] = ()  # those that run with no other
    joined_steps: list[list[BoundModel]] = field(default_factory=list)

    def fused(self, bound: Sequence[BoundModel]) -> Any:
        self.joined_steps.append(list(bound))
        if any(each is alone for each in bound for alone in self.alone):
            raise BackendError("it does not keep them separate")
        return None if self.refuses else OneCall(len(bound))


@dataclass
class OneCall:
    steps: int

    def sample(self) -> list[Sample]:
        return [Sample(float(n)) for n in range(self.steps)]


STEPS = {name: Step() for name in "abcd"}


def test_all_steps_run_at_once() -> None:
    backend: Any = Together()
    found = FusedRuns().of(backend, STEPS, ["a", "b", "c"], 100)
    assert found is not None and found.eviction_bytes == 100
    assert found.sample(["a", "b", "c"]) == [Sample(0.0), Sample(1.0), Sample(2.0)]
    assert backend.joined_steps == [[STEPS["a"], STEPS["b"], STEPS["c"]]]


def test_a_walk_over_fewer_steps_joins_nothing_anew() -> None:
    backend: Any = Together()
    fused_runs = FusedRuns()
    fused_runs.of(backend, STEPS, ["a", "b", "c"], 100)
    fewer = fused_runs.of(backend, STEPS, ["b", "c"], 200)
    assert fewer is not None and fewer.sample(["b", "c"]) == [Sample(1.0), Sample(2.0)]
    # It runs all steps, so it reads what was read before all of them.
    assert fewer.eviction_bytes == 100
    assert len(backend.joined_steps) == 1


def test_other_steps_are_joined_by_themselves() -> None:
    backend: Any = Together()
    fused_runs = FusedRuns()
    fused_runs.of(backend, STEPS, ["a", "b"], 0)
    assert fused_runs.of(backend, STEPS, ["b", "d"], 0) is not None
    assert len(backend.joined_steps) == 2


def test_what_was_placed_anew_is_joined_anew() -> None:
    backend: Any = Together()
    fused_runs = FusedRuns()
    fused_runs.of(backend, STEPS, ["a", "b"], 0)
    fused_runs.clear()
    fused_runs.of(backend, STEPS, ["a", "b"], 0)
    assert len(backend.joined_steps) == 2


def test_what_cannot_be_joined_is_asked_for_once() -> None:
    backend: Any = Together(refuses=True)
    fused_runs = FusedRuns()
    assert fused_runs.of(backend, STEPS, ["a", "b"], 0) is None
    assert fused_runs.of(backend, STEPS, ["a", "b"], 0) is None
    assert len(backend.joined_steps) == 1


def test_a_step_that_cannot_be_fused_runs_separately() -> None:
    class Lone(Step):
        def sample(self) -> Sample:
            return Sample(7.0)

    steps = {**STEPS, "c": Lone(), "d": Lone()}
    backend: Any = Together(alone=(steps["c"],))
    found = FusedRuns().of(backend, steps, ["a", "b", "c", "d"], 0)
    assert found is not None and found.separate >= {"c"} and not found.separate & {"a", "b"}
    assert found.sample(["b", "c"]) == [Sample(1.0), Sample(7.0)]


def test_steps_of_a_kind_that_is_never_fused_are_not_called_separate() -> None:
    backend: Any = Together(refuses=True)
    assert FusedRuns().of(backend, STEPS, ["a", "b", "c"], 0) is None


def test_other_runtimes_run_step_by_step() -> None:
    backend: Any = object()
    assert FusedRuns().of(backend, STEPS, ["a", "b"], 0) is None
