"""What is predicted for a model does not depend on who asks first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from commands import chain
from factories import save

from bricks import Bench, Model
from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.lowering import Lowering
from bricks.graph.view import source_graph
from bricks.predict.effort import MIN
from bricks.samples.measurement import Round
from bricks.session import predicting
from bricks.store import Owner
from bricks.system.host_conditions import KERNELS, HostConditions

FAST = 1e-4  # the latency of reference kernels, in seconds
OPERATORS = "Abs Ceil Cos Elu Erf Exp Floor Log Neg Relu Round Selu Sigmoid Sin Sqrt Tanh".split()


def read(bench: Bench, folder: Path) -> list[Model]:
    """Models of the same operators, in another size each."""
    widths = (64, 80, 96, 112, 128, 144)
    return [
        bench.read(save(chain(*OPERATORS, width=width), folder, f"{width}.onnx"))
        for width in widths
    ]


def measured(bench: Bench, models: Sequence[Model], kernel_s: float = FAST) -> None:
    """Put results of all bricks of ``models`` into the cache, in these conditions."""
    keys = sorted({key for model in models for key in bench.decompose(model).plan.keys})
    assert len(keys) >= MIN
    owner = Owner.current()
    bench.store.claims.claim(bench.target.key, keys, owner)
    host = HostConditions((kernel_s,) * len(KERNELS), 1_000)
    rounds = {key: (Round((1e-5 * (1 + at / 100),), host, 0.0), 1.0) for at, key in enumerate(keys)}
    bench.store.claims.append_rounds(bench.target.key, rounds, owner)
    bench.store.claims.finish(bench.target.key, keys, owner)


def test_predictions_are_for_the_usual_conditions_of_the_host(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1, published=False) as bench:
        *known, new = read(bench, tmp_path)
        measured(bench, known)
        latencies = bench.workspace.estimators.latencies()
        latencies.add_model(bench.decompose(new))
        predictions = latencies.predictions(bench.decompose(new).plan.keys)
    assert predictions.of
    assert predictions.host is not None
    assert predictions.host.kernels_s == pytest.approx((FAST,) * len(KERNELS))


def test_together_or_one_by_one_predictions_are_the_same(tmp_path: Path) -> None:
    options = {"runtime": "fake", "threads": 1, "published": False}
    with Bench(tmp_path / "cache", **options) as bench:
        models = read(bench, tmp_path)
        measured(bench, models[:3])
        for model in models:
            bench.decompose(model)
        together = [
            predicting.basis(bench.workspace, model, measure=False).predictions.of
            for model in models
        ]
    assert sum(map(len, together)) >= 3 * len(OPERATORS)
    for model, estimate in zip(models, together, strict=True):
        with Bench(tmp_path / "cache", **options) as bench:
            alone = predicting.basis(bench.workspace, model, measure=False).predictions.of
        assert alone.keys() == estimate.keys()
        for key, prediction in alone.items():
            assert estimate[key].latency_s == pytest.approx(prediction.latency_s)
            assert estimate[key].log_sd == pytest.approx(prediction.log_sd)


def test_what_failed_is_predicted_only_if_nothing_can_measure_it(tmp_path: Path) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1, published=False) as bench:
        *known, new = read(bench, tmp_path)
        measured(bench, known)
        kernels = {0: ["another kernel"]}
        made = build(
            new, source_graph(new), Granularity(None), lowering=Lowering(other_kernels=kernels)
        )
        unmeasurable, crashed, *_ = made.plan.keys
        assert unmeasurable not in bench.decompose(new).bricks
        latencies = bench.workspace.estimators.latencies()
        latencies.add_model(made)
        owner = Owner.current()
        bench.store.claims.claim(bench.target.key, [unmeasurable, crashed], owner)
        for key in (unmeasurable, crashed):
            bench.store.claims.fail(bench.target.key, key, "no measurement", owner)
        predictions = latencies.predictions(made.plan.keys)
    assert predictions.unmeasurable == {unmeasurable}
    assert unmeasurable in predictions.of and crashed not in predictions.of
