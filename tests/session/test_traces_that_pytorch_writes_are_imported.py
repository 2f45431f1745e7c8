from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import profiler_traces as kineto
import pytest
import runtime_environments
import torch_environment
from refusals import refused

from bricks import Bench
from bricks.compose.estimate import Estimate
from bricks.errors import StoreError
from bricks.session.trace_import import (
    ImportedTrace,
    TracedHost,
    TraceImport,
    decomposed_on,
    trace_offer,
)

pytestmark = pytest.mark.slow


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with Bench(tmp_path / "cache", runtime="torch", threads=1) as opened:
        yield opened


def profiled(tmp_path: Path, function: str, *plain: str) -> Path:
    path = tmp_path / f"{function}.json.gz"
    runtime_environments.run(torch_environment.python(), "profiled.py", function, path, *plain)
    return path


def imported(bench: Bench, path: Path, function: str) -> ImportedTrace:
    model = bench.read(torch_environment.program(function))
    found = trace_offer(path)
    assert found is not None
    ran = decomposed_on(bench.workspace, lambda: model)
    return TraceImport(bench.store, *found).run(path, TracedHost(threads=1), ran)


@pytest.mark.parametrize("function", ["convolutions", "convolutions_strided"])
def test_all_calls_of_an_inference_are_bricks_of_its_program(
    bench: Bench, tmp_path: Path, function: str
) -> None:
    of = imported(bench, profiled(tmp_path, function), function)
    plan = bench.workspace.plans.decompose(bench.read(torch_environment.program(function))).plan
    assert (of.unknown, of.unseen) == ({}, {})
    assert of.calls == 2 * len(plan.occurrences)
    assert of.bricks == len(plan.keys)
    estimate = bench.predict(
        bench.read(torch_environment.program(function)), measure=False, target=of.target
    )
    assert isinstance(estimate, Estimate) and estimate.measured_share == 1.0


def test_most_calls_of_a_training_step_are_bricks_of_its_program(
    bench: Bench, tmp_path: Path
) -> None:
    of = imported(bench, profiled(tmp_path, "momentum"), "momentum")
    # Autograd adds gradients in place, unless a recorder looks on.
    assert set(of.unknown) <= {"aten::add_", "aten::_reshape_alias", "aten::detach_"}
    assert of.matched > 0.9 * of.calls


def test_on_a_gpu_a_model_is_the_calls_that_it_makes_there(bench: Bench, tmp_path: Path) -> None:
    images = kineto.tensor([2, 8, 12, 12], [1152, 144, 12, 1])
    norm = [images, *[kineto.tensor([8], [1])] * 4]
    settings = [kineto.number(text) for text in ("False", "0.10000000000000001", "1e-05")]
    path = kineto.write(
        tmp_path / "gpu.json",
        kineto.trace(
            [
                kineto.call("aten::cudnn_batch_norm", [*norm, *settings], 0, 20),
                kineto.call("aten::relu", [images], 30, 40),
                kineto.launch(1, 35), kineto.kernel(1, "relu", 50, 52),
            ],
            devices=[kineto.H100],
        ),
    )  # fmt: skip
    of = imported(bench, path, "convolutions")
    assert (of.target.runtime.provider, of.unknown, of.matched) == ("CUDA", {}, 2)
    ((plan, _),) = bench.store.plans.all(of.target.key, "executed")
    operators = {b.operators[0] for b in bench.store.plans.load_bricks(plan.keys).values()}
    assert "org.pytorch.aten.cudnn_batch_norm" in operators


def test_a_trace_without_shapes_is_refused(bench: Bench, tmp_path: Path) -> None:
    path = profiled(tmp_path, "convolutions", "plain")
    with refused(StoreError, path, "record_shapes=True"):
        imported(bench, path, "convolutions")


def test_signatures_are_those_of_the_pinned_version(tmp_path: Path) -> None:
    from bricks.backends.torch.trace.signatures import signatures

    convolution = signatures()["aten::convolution"][""]
    assert not convolution.composite and len(convolution.parameters) == 9
    assert signatures()["aten::linear"][""].composite
