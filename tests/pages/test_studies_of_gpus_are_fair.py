"""Studies of GPUs predict a program from other programs, and hold what they are made for."""

from __future__ import annotations

import pytest

from benchmarks.gpu import compiled, device_time
from benchmarks.gpu.folds import FOLDS, family_of, folds_of
from benchmarks.ratios import Ratios
from benchmarks.study import Options

(DEVICE_TIME,) = device_time.BENCHMARKS


def test_a_program_with_another_batch_is_in_the_same_fold() -> None:
    names = ["lm_decode_b16_512", "zoo_gpt2", "lm_decode_b1_2048", "zoo_gpt2_b64", "bert_b_16_b8"]
    folds = folds_of(names)
    assert [family_of(name) for name in names] == [
        "lm_decode", "zoo_gpt2", "lm_decode", "zoo_gpt2", "bert_b_16",
    ]  # fmt: skip
    assert folds["lm_decode_b16_512"] == folds["lm_decode_b1_2048"]
    assert folds["zoo_gpt2"] == folds["zoo_gpt2_b64"]
    assert set(folds.values()) == set(range(FOLDS))


def test_a_program_is_in_one_fold_on_all_cards_and_processes() -> None:
    (results,) = DEVICE_TIME.kept(Options().results)
    folds = {(family_of(row.case.program), row.fold) for row in results.rows}
    assert len(folds) == len({family for family, _ in folds})
    constants = {(row.fold, row.constants) for row in results.rows}
    assert len(constants) == FOLDS


def test_calls_add_up_to_the_device_time_of_steps() -> None:
    (results,) = DEVICE_TIME.kept(Options().results)
    errors = Ratios(tuple(row.ratio for row in results.rows))
    assert len(results.rows) >= 84
    assert errors.median_error <= 0.015 and errors.p95_error <= 0.05 and errors.worst_error <= 0.1
    assert sum(row.holds for row in results.rows) >= 0.9 * len(results.rows)


@pytest.mark.slow
def test_two_lanes_explain_compiled_steps() -> None:
    (benchmark,) = compiled.BENCHMARKS
    (results,) = benchmark.kept(Options().results)
    assert {row.case for row in results.rows} == {*compiled.cases()}
    steps = [row.compiled for row in results.rows]
    errors = Ratios.of((step.composed_s, step.step_s) for step in steps)
    assert len(steps) == 6
    assert errors.median_error <= 0.04 and errors.worst_error <= 0.12
