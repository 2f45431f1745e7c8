from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from factories import constant, model, node, save, value
from refusals import refused

from bricks import Bench, Decomposition, Occurrence, WorkerError


def network() -> onnx.ModelProto:
    """Two branches that must not be mixed up, and two equal matrices with other values."""
    weights = [
        constant(name, np.random.default_rng(i).normal(size=(4, 4)), "FLOAT")
        for i, name in enumerate(("u", "w"))
    ]
    nodes = [
        node("MatMul", ["x", "u"], ["a"]),
        node("Tanh", ["a"], ["b"]),
        node("MatMul", ["b", "w"], ["c"]),
        node("Sigmoid", ["c"], ["d"]),
        node("Sub", ["d", "b"], ["y"]),
    ]
    return model(nodes, [value("x", [2, 4])], [value("y", [2, 4])], weights)


@pytest.fixture(scope="module", params=["executed", "1"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    with Bench(tmp_path_factory.mktemp("cache"), granularity=request.param, threads=1) as made:
        yield made


def changed(made: Decomposition, operator: str, **changes: object) -> Decomposition:
    """The decomposition with the last occurrence of an operator changed."""
    occurrences = list(made.plan.occurrences)
    (at, *_) = [
        i
        for i in reversed(range(len(occurrences)))
        if made.bricks[occurrences[i].brick].operators == (operator,)
    ]
    occurrences[at] = replace(occurrences[at], **changes)
    return replace(made, plan=replace(made.plan, occurrences=tuple(occurrences)))


def last(made: Decomposition) -> Occurrence:
    return made.plan.occurrences[-1]


def key_of(made: Decomposition, operator: str) -> str:
    return next(key for key, brick in made.bricks.items() if brick.operators == (operator,))


def swapped_inputs(made: Decomposition) -> Decomposition:
    return changed(made, "Sub", inputs=tuple(reversed(last(made).inputs)))


def another_value(made: Decomposition) -> Decomposition:
    return changed(made, "Sub", inputs=(last(made).inputs[0],) * 2)


def another_brick(made: Decomposition) -> Decomposition:
    return changed(made, "Sigmoid", brick=key_of(made, "Tanh"))


@pytest.mark.parametrize("spoil", [swapped_inputs, another_value, another_brick])
def test_a_spoilt_plan(
    bench: Bench,
    spoil: Callable[[Decomposition], Decomposition],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = bench.read(save(network(), tmp_path))
    assert bench.verify(read).difference.max_rel < 1e-5
    spoilt = spoil(bench.decompose(read))
    monkeypatch.setattr(bench.workspace.plans, "decompose", lambda model: spoilt)
    result = bench.verify(read)
    assert not result.exact
    assert result.difference.max_rel > 1e-3 >= result.difference.tolerance


def test_a_plan_of_another_model(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = bench.read(save(network(), tmp_path))
    made = bench.decompose(read)
    shorter = replace(made, plan=replace(made.plan, occurrences=made.plan.occurrences[:-1]))
    monkeypatch.setattr(bench.workspace.plans, "decompose", lambda model: shorter)
    with refused(WorkerError, "model", len(made.plan.occurrences), len(shorter.plan.occurrences)):
        bench.verify(read)


def test_equal_branches_that_are_executed_in_another_order(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = [
        constant(name, np.random.default_rng(i).normal(size=(4, 4)), "FLOAT")
        for i, name in enumerate(("u", "w"))
    ]
    nodes = [node("MatMul", ["x", "u"], ["a"]), node("MatMul", ["x", "w"], ["b"])]
    outputs = [value("a", [2, 4]), value("b", [2, 4])]
    twins = model(nodes, [value("x", [2, 4])], outputs, weights)
    read = bench.read(save(twins, tmp_path))
    made = bench.decompose(read)
    other = replace(made.plan, occurrences=made.plan.occurrences[::-1])
    monkeypatch.setattr(bench.workspace.plans, "decompose", lambda model: replace(made, plan=other))
    assert bench.verify(read).difference.max_rel < 1e-5
