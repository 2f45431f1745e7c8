"""The digest of a model that was decomposed once is enough to ask for it again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from factories import conv_net, mlp, save
from refusals import refused

from bricks import Bench, backends
from bricks.analysis.answers import Answer, answers
from bricks.backends import fake
from bricks.errors import UsageError
from bricks.system import System, Target, fingerprint


def test_a_digest_leads_to_the_plan_and_its_name(tmp_path: Path) -> None:
    path = save(conv_net(), tmp_path, "conv.onnx")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        model = bench.read(path, batch=3)
        assert bench.workspace.plans.known_plan(model.digest) is None
        plan = bench.decompose(model).plan
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        assert bench.workspace.plans.known_plan(model.digest) == plan
        assert plan.model == "conv"
        assert plan.inferences == 3


def test_an_answer_for_a_digest_is_the_prediction(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        model = bench.read(path)
        bench.measure([model])
        (answer,) = answers(bench.workspace, model.digest)
        assert isinstance(answer, Answer)
        assert answer.estimate == bench.predict(model, measure=False)


def test_plans_that_are_not_kept_are_known_until_the_bench_is_closed(tmp_path: Path) -> None:
    path = save(mlp(), tmp_path, "mlp.onnx")
    with Bench(tmp_path / "cache", runtime="fake", threads=1, keep_plans=False) as bench:
        model = bench.read(path)
        plan = bench.decompose(model).plan
        assert bench.workspace.plans.known_plan(model.digest) == plan
        assert bench.workspace.plans.bricks(plan).keys() == set(plan.keys)
        assert bench.store.systems.targets() == []
        assert bench.store.plans.load_bricks(plan.keys) == {}
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        assert bench.workspace.plans.known_plan(model.digest) is None


@pytest.mark.parametrize("digest", ["", "m1-none"])
def test_an_unknown_digest_leads_nowhere(tmp_path: Path, digest: str) -> None:
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        assert bench.workspace.plans.known_plan(digest) is None
        assert answers(bench.workspace, digest) == []


def test_a_graph_without_convolutions_is_that_of_other_vectors(tmp_path: Path) -> None:
    dense, conv = save(mlp(), tmp_path, "dense.onnx"), save(conv_net(), tmp_path, "conv.onnx")
    here = fingerprint()
    other = "avx2" if "avx512f" in here.vectors else "avx512f"
    with Bench(tmp_path / "cache", runtime="onnxruntime", threads=1) as bench:
        plans, runtime = bench.workspace.plans, bench.workspace.runtime
        there = Target(System("there", {**here.identity, "instruction_sets": [other]}, {}), runtime)
        arm = Target(System("arm", {**here.identity, "architecture": "aarch64"}, {}), runtime)
        model = bench.read(dense)
        assert plans.plan(model, target=there) == plans.decompose(model).plan
        with refused(UsageError, "conv", "never decomposed", "there"):
            plans.plan(bench.read(conv), target=there)
        with refused(UsageError, "dense", "never decomposed", "arm"):
            plans.plan(model, target=arm)


def test_a_plan_of_an_earlier_rule_is_made_again_where_the_rule_was_wrong(tmp_path: Path) -> None:
    paths = [save(made, tmp_path, f"{i}.onnx") for i, made in enumerate((mlp(), conv_net()))]
    own = fake.OFFER
    with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
        dense, conv = (bench.decompose(bench.read(path)).plan.digest for path in paths)
    with pytest.MonkeyPatch.context() as patched:
        later = replace(own, rule=1, revised=frozenset(("Conv",)))
        patched.setattr(backends, "offer", lambda name: later if name == "fake" else own)
        with Bench(tmp_path / "cache", runtime="fake", threads=1) as bench:
            known = bench.workspace.plans.known_plan
            assert known(dense) is not None
            assert known(conv) is None
