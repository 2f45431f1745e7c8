"""Laws of every runtime, on one small model each; other tests of a runtime have their own files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import runtime_environments
import torch_environment
from factories import conv_net, one_node, save, value
from refusals import refused
from tiers import slow_but

from bricks import BackendError, Bench, Conditions, Estimate, Model, StopRule, WorkerError
from bricks.backends import built_in, describe, offer
from bricks.graph.form import ModelForm

ONCE = Conditions(rule=StopRule(min_rounds=1, max_rounds=1, passes=1), exclusive=False)
# Of two runtimes that share an environment, one is enough each time.
EACH_TIME = ("fake", "onnxruntime", "openvino", "mxnet", "torch")


@dataclass(frozen=True)
class Opened:
    """A runtime with a cache, and models to run: the second has other names and weights."""

    bench: Bench
    cache: Path
    model: Model
    renamed: Model


@pytest.fixture(scope="module", params=slow_but(EACH_TIME.__contains__, built_in()))
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator:
    name, folder = request.param, tmp_path_factory.mktemp("contract")
    with ExitStack() as stack:
        if offer(name).environment is not None:
            runtime_environments.python(name)
        try:
            describe(name)
        except BackendError as exc:  # the processor, or no compiler
            pytest.skip(str(exc))
        programs = offer(name).accepts is ModelForm.PROGRAMS
        if programs and name == "torch":
            stack.enter_context(torch_environment.one_recorder())
        bench = stack.enter_context(
            Bench(folder / "cache", runtime=name, threads=1, conditions=ONCE)
        )
        yield Opened(bench, folder / "cache", *models(bench, folder, programs))


def models(bench: Bench, folder: Path, programs: bool) -> tuple[Model, Model]:
    if programs:
        program = torch_environment.program("convolutions")
        return bench.read(program), bench.read(program, name="renamed")
    small = {"blocks": 1, "size": 8}
    renamed = conv_net(**small, prefix="other_", seed=1)
    return (
        bench.read(save(conv_net(**small), folder, "small.onnx")),
        bench.read(save(renamed, folder, "renamed.onnx")),
    )


def test_its_bricks_chained_equal_the_model(opened: Opened) -> None:
    if opened.bench.target.runtime.backend == "fake":
        with refused(WorkerError, "small", "fake", "--runtime onnxruntime"):
            opened.bench.verify(opened.model)
        return
    result = opened.bench.verify(opened.model)
    assert result.difference.finite
    assert result.difference.within_tolerance


def test_its_bricks_have_the_same_keys_under_other_names_and_with_other_weights(
    opened: Opened,
) -> None:
    plan, renamed = (opened.bench.decompose(each).plan for each in (opened.model, opened.renamed))
    assert len(plan.keys) > 2
    assert [o.brick for o in plan.occurrences] == [o.brick for o in renamed.occurrences]


def test_it_measures_each_brick_once(opened: Opened) -> None:
    first = opened.bench.measure([opened.model])
    assert first.new_bricks == first.bricks == len(opened.bench.decompose(opened.model).plan.keys)
    assert (first.failures, first.unfinished) == ((), 0)
    assert opened.bench.measure([opened.model, opened.renamed]).new_bricks == 0
    name = opened.bench.target.runtime.backend
    with Bench(opened.cache, runtime=name, threads=1, conditions=ONCE) as another:
        assert another.target.key == opened.bench.target.key
        assert another.measure([opened.model]).new_bricks == 0


def test_an_estimate_is_an_interval_around_a_positive_latency(opened: Opened) -> None:
    estimate = opened.bench.predict(opened.model)
    assert isinstance(estimate, Estimate), estimate.gaps
    assert estimate.coverage == 1.0
    assert 0 <= estimate.low_s <= estimate.estimate_s <= estimate.high_s
    assert estimate.estimate_s > 0


def test_a_missing_operator_is_refused_by_name(opened: Opened, tmp_path: Path) -> None:
    x, y = value("x", [2, 3]), value("y", [2, 3])
    proto = one_node("Frobnicate", [x], [y], domain="nowhere")
    name = opened.bench.target.runtime.backend
    what = ("PyTorch", "--runtime") if name.startswith("torch") else ("Frobnicate",)
    with refused(WorkerError, "lacking", *what):
        opened.bench.decompose(opened.bench.read(save(proto, tmp_path, "lacking.onnx")))
