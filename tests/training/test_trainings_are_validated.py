from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch_environment
from torch_environment import workload

from bricks import Bench, BricksError, validate_training
from bricks.measure.supervisor import Supervisor
from bricks.training.validation import (
    AGREES,
    DEVIATES,
    OPTIMIZER_STEPS,
    SAMPLING_EPOCHS,
    UNKNOWN,
    TrainingValidation,
    judge,
    judge_optimizer,
)

OPTIMIZERS = (
    "sgd", "sgd_momentum", "sgd_nesterov", "sgd_upwards", "adam", "adam_amsgrad", "adamw",
    "adamw_foreach", "adamw_fused", "adagrad", "adafactor", "adafactor_own_eps",
    "rmsprop", "rmsprop_centered",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    torch_environment.python()
    folder = tmp_path_factory.mktemp("training") / "cache"
    with Bench(folder, runtime="torch", threads=1) as opened:
        yield opened


@pytest.fixture(scope="module")
def worker(bench: Bench) -> Iterator[Supervisor]:
    with bench.worker() as asked:
        yield asked


def validated(worker: Supervisor, name: str) -> TrainingValidation:
    """What :func:`validate_training` finds, with a worker that has been started."""

    def ask(what: str, **more: int) -> dict[str, Any]:
        return worker.ask(
            "check_training", timeout_s=60, what=what, entry=workload(name), folder="", options={},
            seed=0, **more,
        )  # fmt: skip

    steps = ask("trajectories", steps=OPTIMIZER_STEPS)
    return judge(name, ask("gradients"), steps, ask("item_orders", epochs=SAMPLING_EPOCHS))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_pytorchs_optimisers_are_what_their_definitions_say(name: str, worker: Supervisor) -> None:
    facts = worker.ask(
        "check_training", timeout_s=60, what="trajectories", entry=workload(name), folder="",
        options={}, seed=0, steps=OPTIMIZER_STEPS,
    )  # fmt: skip
    checks = judge_optimizer(facts)
    assert len(checks) == 2
    for check in checks:
        assert check.reason is None
        assert check.verdict == AGREES, check
        assert len(check.differences) == OPTIMIZER_STEPS


def test_what_is_right_agrees(bench: Bench) -> None:
    found = validate_training(bench, workload("good"))
    assert found.errors == ()
    assert found.verdict == AGREES
    assert {g.parameter for g in found.gradients} >= {"first.weight", "norm.weight", "last.bias"}
    verdicts = {g.parameter: g.verdict for g in found.gradients}
    # Normalisation takes away what a bias before it adds: there is no gradient to compare.
    assert verdicts.pop("first.bias") == UNKNOWN
    assert set(verdicts.values()) == {AGREES}
    assert found.sampling.verdict == AGREES


def test_a_gradient_that_is_one_per_cent_off_is_caught_and_named(worker: Supervisor) -> None:
    found = validated(worker, "wrong_gradient")
    assert {g.parameter: g.verdict for g in found.gradients} == {
        "0.weight": DEVIATES, "0.bias": DEVIATES, "2.weight": AGREES, "2.bias": AGREES,
    }  # fmt: skip
    assert max(g.deviation or 0 for g in found.gradients) == pytest.approx(0.01, rel=0.05)
    (error,) = found.errors
    assert "the gradient deviates from finite differences for 0.weight (0.99 %)" in error
    assert "\n" not in error


def test_weight_decay_of_the_wrong_sign_is_caught(worker: Supervisor) -> None:
    found = validated(worker, "wrong_optimizer")
    assert {c.verdict for c in found.optimizer} == {DEVIATES}
    assert {c.definition for c in found.optimizer} == {"AdamW"}
    assert "GrowingAdamW deviates from AdamW on the ill-conditioned" in found.errors[0]
    assert {g.verdict for g in found.gradients} <= {AGREES, UNKNOWN}


def test_an_optimiser_without_a_known_definition_is_not_judged(worker: Supervisor) -> None:
    found = validated(worker, "own_optimizer")
    assert {c.verdict for c in found.optimizer} == {UNKNOWN}
    assert {c.reason for c in found.optimizer} == {"no definition of OwnOptimizer is known here"}
    assert found.errors == ()


def test_an_optimiser_without_a_learning_rate_is_named(worker: Supervisor) -> None:
    with pytest.raises(BricksError, match="its optimizer WithoutRate has no learning rate"):
        validated(worker, "without_rate")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("biased_sampler", "some items appear more often than others (p = "),
        ("some_items_twice", "8 items appear more often in each epoch than in the data set"),
    ],
)
def test_a_biased_sampler_is_caught(name: str, told: str, worker: Supervisor) -> None:
    found = validated(worker, name)
    (error,) = found.errors
    assert told in error


def test_data_that_are_not_shuffled_are_named(worker: Supervisor) -> None:
    sampling = validated(worker, "in_order").sampling
    assert (sampling.verdict, sampling.shuffled) == (AGREES, False)


def test_data_that_change_are_not_judged(worker: Supervisor) -> None:
    sampling = validated(worker, "augmented").sampling
    assert sampling.verdict == UNKNOWN


def test_a_loss_that_is_too_coarse_is_told(worker: Supervisor) -> None:
    found = validated(worker, "coarse")
    assert found.gradients == ()
    assert found.gradients_reason is not None
    assert "float32, which is too coarse" in found.gradients_reason


def test_what_cannot_be_trained_cannot_be_validated(worker: Supervisor) -> None:
    with pytest.raises(BricksError, match="it gives no data and no accuracy"):
        validated(worker, "without_data")
