"""The page of a model's answers: a headline, and a bar with its interval for each target.

Positions are percentages of the longest bar, since the content security policy forbids styles.
Must not compute latencies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.agreement import agreement_remarks
from bricks.report.answers.prediction import prediction_answer
from bricks.report.answers.words import source_text, uncertainty_text
from bricks.report.tables import peak_size
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.studies.inference.settings import Setting, varying
from bricks.units.facts import facts
from bricks.web.answer_rows import AnswerRow, LackingRow, meets

if TYPE_CHECKING:
    from bricks.session.agreement import Agreement
    from bricks.system import Target
    from bricks.units.interval import Interval
    from bricks.web.answer_question import AnswerQuestion

# Bars longer than this multiple of the shortest are cut off: the others would be too short to see.
_MOST_TIMES = 20.0

# Space behind the longest bar.
_MARGIN = 1.12

# Steps of the slider from one end of the axis to the other, at least.
_STEPS = 150


@dataclass(frozen=True, slots=True)
class Axis:
    """The axis of all bars, from 0 to ``end_s`` seconds."""

    end_s: float

    @classmethod
    def of(cls, latencies: Sequence[Interval]) -> Axis:
        """An axis that holds ``latencies``, unless one is much longer than the shortest."""
        if not latencies:
            return cls(1.0)
        shortest_s = min(latency.value for latency in latencies)
        longest_s = max(min(latency.high, 1.5 * latency.value) for latency in latencies)
        end_s = min(_MARGIN * longest_s, _MOST_TIMES * shortest_s)
        return cls(end_s if end_s > 0 else 1.0)

    @property
    def step_ms(self) -> float:
        """A round step of the slider in milliseconds: 1, 2 or 5 times a power of ten."""
        rough = 1e3 * self.end_s / _STEPS
        power = 10.0 ** math.floor(math.log10(rough))
        return power * max(times for times in (1, 2, 5) if times * power <= rough * 1.0001)

    @property
    def end_ms(self) -> float:
        """The end of the slider in milliseconds, a multiple of its step."""
        return self.step_ms * math.floor(1e3 * self.end_s / self.step_ms)

    def position(self, latency_s: float) -> float:
        """Percent of the axis at ``latency_s``; 100 beyond its end."""
        return round(min(100.0, max(0.0, 100 * latency_s / self.end_s)), 3)


@dataclass(frozen=True, slots=True)
class Bar:
    """The latency on a target as a page shows it; ``width``, ``low`` and ``high`` are percents."""

    row: AnswerRow
    width: float
    low: float
    high: float
    is_best: bool
    meets_slo: str | None

    @property
    def latency(self) -> Interval:
        """The latency in seconds."""
        return self.row.answer.estimate.latency_s

    @property
    def uncertainty(self) -> str:
        """The interval in words."""
        return uncertainty_text(self.latency)

    @property
    def details(self) -> list[str]:
        """Where the latency comes from, the peak memory, and the cost where a price is known."""
        known = self.row.known_memory
        texts = [source_text(self.row.answer.estimate.provenance)]
        if known is not None:
            texts.append(f"peak memory {peak_size(known.peak_bytes, known.unknown)}")
        if self.row.answer.cost_per_million is not None:
            texts.append(f"cost per million requests {self.row.answer.cost_per_million:.3g}")
        return texts


def answer_values(
    rows: Sequence[AnswerRow | LackingRow],
    question: AnswerQuestion,
    model: str,
    here: Target,
    agreements: Sequence[Agreement] = (),
) -> dict[str, Any]:
    """The values of the page of ``rows``, which are sorted, the fastest first."""
    asked = [row for row in rows if question.threads in (None, row.target.runtime.threads)]
    answered = [row for row in asked if isinstance(row, AnswerRow)]
    axis = Axis.of([row.answer.estimate.latency_s for row in answered])
    return {
        "headline": headline(answered, question, model, here, agreements),
        "differing": agreement_remarks(agreements),
        "axis": axis,
        "bars": [
            _bar(row, axis, question, best=number == 0) for number, row in enumerate(answered)
        ],
        "lacking": [row for row in asked if isinstance(row, LackingRow)],
        "every_threads": sorted({row.target.runtime.threads for row in rows}),
        "question": question,
        "slo_position": None if question.slo_s is None else axis.position(question.slo_s),
    }


def headline(
    rows: Sequence[AnswerRow],
    question: AnswerQuestion,
    model: str,
    here: Target,
    agreements: Sequence[Agreement] = (),
) -> str:
    """The answer in a sentence, as ``bricks predict`` has it: the latency, and the best target."""
    if not rows:
        threads = "" if question.threads is None else f" with {question.threads} threads"
        return f"No known system has an answer for {printable(model)}{threads}."
    predicted = tuple(_predicted(row, here) for row in rows)
    dimensions = varying(of.setting for of in predicted)
    estimate = rows[0].answer.estimate
    return prediction_answer(
        ModelPredictions(
            None, estimate.granularity, estimate.workers, predicted, dimensions,
            agreements=tuple(agreements),
        )
    )  # fmt: skip


def _predicted(row: AnswerRow, here: Target) -> PredictedModel:
    plan, target = row.answer.plan, row.target
    setting = Setting(runtime=target.runtime.backend, batch=plan.inferences).on(target, here)
    return PredictedModel(
        model=printable(plan.model), estimate=row.answer.estimate, setting=setting
    )


def with_bound(row: AnswerRow | LackingRow, slo_s: float | None) -> dict[str, Any]:
    """The facts of a row, and whether it meets the bound; None where nothing is known."""
    meets_slo = None
    if isinstance(row, AnswerRow) and slo_s is not None:
        meets_slo = meets(row.answer.estimate.latency_s, slo_s)
    return {**facts(row), "meets_slo": meets_slo}


def _bar(row: AnswerRow, axis: Axis, question: AnswerQuestion, *, best: bool) -> Bar:
    latency = row.answer.estimate.latency_s
    return Bar(
        row,
        axis.position(latency.value),
        axis.position(latency.low),
        axis.position(latency.high),
        best,
        None if question.slo_s is None else meets(latency, question.slo_s),
    )
