from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch_environment
from refusals import refused
from torch_environment import workload

from bricks import Bench, WorkerError, validate_training
from bricks.backends.programs import SeededProgram
from bricks.measure.protocol.training import CheckTrajectories
from bricks.measure.supervisor import Supervisor
from bricks.studies.training.validation import (
    AGREES,
    DEVIATES,
    OPTIMIZER_STEPS,
    UNKNOWN,
    TrainingValidation,
    judge_optimizer,
)

OPTIMIZERS = (
    "sgd", "sgd_momentum", "sgd_nesterov", "sgd_upwards", "adam", "adam_amsgrad", "adamw",
    "adamw_foreach", "adamw_fused", "adagrad", "adafactor", "adafactor_own_eps",
    "rmsprop", "rmsprop_centered",
)  # fmt: skip


@pytest.fixture(scope="module")
def worker() -> Iterator[Supervisor]:
    with torch_environment.one_worker() as asked:
        yield asked


@pytest.fixture(scope="module")
def bench(worker: Supervisor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("training") / "cache"
    with Bench(folder, runtime="torch", threads=1) as opened:
        yield opened


def validated(bench: Bench, name: str) -> TrainingValidation:
    return validate_training(bench.workspace, workload(name))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pytorchs_optimisers_are_what_their_definitions_say(name: str, worker: Supervisor) -> None:
    program = SeededProgram(workload(name), "", {}, seed=0)
    facts = worker.ask(CheckTrajectories(program, OPTIMIZER_STEPS), timeout_s=60)
    checks = judge_optimizer(facts)
    assert len(checks) == 2
    for check in checks:
        assert check.reason is None
        assert check.verdict == AGREES, check
        assert len(check.differences) == OPTIMIZER_STEPS


def test_what_is_right_agrees(bench: Bench) -> None:
    found = validated(bench, "good")
    assert found.errors == ()
    assert found.verdict == AGREES
    assert {g.parameter for g in found.gradients} >= {"first.weight", "norm.weight", "last.bias"}
    verdicts = {g.parameter: g.verdict for g in found.gradients}
    # Normalisation takes away what a bias before it adds: there is no gradient to compare.
    assert verdicts.pop("first.bias") == UNKNOWN
    assert set(verdicts.values()) == {AGREES}
    assert found.sampling.verdict == AGREES


def test_a_gradient_that_is_one_per_cent_off_is_caught_and_named(bench: Bench) -> None:
    found = validated(bench, "wrong_gradient")
    assert {g.parameter: g.verdict for g in found.gradients} == {
        "0.weight": DEVIATES, "0.bias": DEVIATES, "2.weight": AGREES, "2.bias": AGREES,
    }  # fmt: skip
    assert max(g.deviation or 0 for g in found.gradients) == pytest.approx(0.01, rel=0.05)
    (error,) = found.errors
    assert "the gradient deviates from finite differences for 0.weight (0.99 %)" in error
    assert "\n" not in error


def test_weight_decay_of_the_wrong_sign_is_caught(bench: Bench) -> None:
    found = validated(bench, "wrong_optimizer")
    assert {c.verdict for c in found.optimizer} == {DEVIATES}
    assert {c.definition for c in found.optimizer} == {"AdamW"}
    assert "GrowingAdamW deviates from AdamW on the ill-conditioned" in found.errors[0]
    assert {g.verdict for g in found.gradients} <= {AGREES, UNKNOWN}


def test_an_optimiser_without_a_known_definition_is_not_judged(bench: Bench) -> None:
    found = validated(bench, "own_optimizer")
    assert {c.verdict for c in found.optimizer} == {UNKNOWN}
    assert {c.reason for c in found.optimizer} == {"no definition of OwnOptimizer is known here"}
    assert found.errors == ()


def test_an_optimiser_without_a_learning_rate_is_named(bench: Bench) -> None:
    with refused(WorkerError, "WithoutRate", "lr"):
        validated(bench, "without_rate")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("biased_sampler", "some items appear more often than others (p = "),
        ("some_items_twice", "8 items appear more often in each epoch than in the data set"),
    ],
)
def test_a_biased_sampler_is_caught(name: str, text: str, bench: Bench) -> None:
    found = validated(bench, name)
    (error,) = found.errors
    assert text in error


def test_data_that_are_not_shuffled_are_named(bench: Bench) -> None:
    sampling = validated(bench, "in_order").sampling
    assert (sampling.verdict, sampling.shuffled) == (AGREES, False)


def test_data_that_change_are_not_judged(bench: Bench) -> None:
    sampling = validated(bench, "augmented").sampling
    assert sampling.verdict == UNKNOWN


def test_a_loss_that_is_too_coarse_is_reported(bench: Bench) -> None:
    found = validated(bench, "coarse")
    assert found.gradients == ()
    assert found.gradients_reason is not None
    assert "float32, which is too coarse" in found.gradients_reason


def test_what_cannot_be_trained_cannot_be_validated(bench: Bench) -> None:
    with refused(WorkerError, workload("without_data"), "data", "accuracy"):
        validated(bench, "without_data")
