"""Answers about quantised models name the original too, and do not claim what is undecided."""

from __future__ import annotations

import pytest
from estimates import predicted

from bricks.report.latency_answers import quantised_pairs, quantised_text
from bricks.studies.inference.prediction import PredictedModel
from bricks.units.interval import Interval


def cell(latency_ms: float, quantize: str | None, model: str = "net") -> PredictedModel:
    latency_s = Interval.around(latency_ms / 1e3, latency_ms * 4e-5)
    return predicted(model, latency_s, runtime="onnxruntime", threads=2, quantize=quantize)


@pytest.mark.parametrize(
    ("int8_ms", "text"),
    [
        (14.1, "net in int8 takes 14.1 ms (±4 %) here with 2 threads, 0.37 of the original's"
         " 38.2 ms (±4 %): 100 % measured"),
        (37.9, "net in int8 takes 37.9 ms (±4 %) here with 2 threads, which may be as long as"
         " (0.99 of) the original's 38.2 ms (±4 %): 100 % measured"),
    ],
)  # fmt: skip
def test_the_answer_has_both_latencies(int8_ms: float, text: str) -> None:
    (pair,) = quantised_pairs([cell(38.2, None), cell(int8_ms, "int8")])
    assert quantised_text(pair) == text


def test_a_pair_has_both_estimates() -> None:
    assert quantised_pairs([cell(1, None)]) == quantised_pairs([cell(1, "int8")]) == []
    many = [cell(1, precision, f"m{n}") for n in range(4) for precision in (None, "int8")]
    assert quantised_pairs(many) == [] and len(quantised_pairs(many[:6])) == 3
