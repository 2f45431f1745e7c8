"""Answers about a model on all systems: options of the question, rows by target, and their page.

A question is the query of an address. Its rows have peak memory too, for the page and its JSON. The
page is a headline, and a bar with its interval for each target: positions are percentages of the
longest bar, since the content security policy forbids styles. Must not compute latencies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlencode

from bricks.analysis.answers import ESTIMATE, Answer, NoAnswer
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.errors import BricksError, UsageError, printable
from bricks.graph.types import LARGEST_DIM
from bricks.report.agreement import agreement_remarks
from bricks.report.latency_answers import prediction_answer
from bricks.report.tables import peak_size
from bricks.report.words import source_text, uncertainty_text
from bricks.session import whole_models
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.studies.inference.settings import Setting, varying
from bricks.units.facts import facts

if TYPE_CHECKING:
    from bricks.session.agreement import Agreement
    from bricks.session.workspace import Workspace
    from bricks.system import Target
    from bricks.units.interval import Interval

# Longer bounds are typing errors.
_MOST_MS = 1e9

# Whether a latency meets a bound: it does not if even the lower end of its interval is longer.
YES, NO, UNCERTAIN = "yes", "no", "uncertain"

# Bars longer than this multiple of the shortest are cut off: the others would be too short to see.
_MOST_TIMES = 20.0

# Space behind the longest bar.
_MARGIN = 1.12

# Steps of the slider from one end of the axis to the other, at least.
_STEPS = 150


@dataclass(frozen=True, slots=True)
class AnswerQuestion:
    """The batch, the number of threads and the bound (SLO, in milliseconds) that are asked for.

    None: the model's own batch, any number of threads, no bound.
    """

    batch: int | None = None
    threads: int | None = None
    slo_ms: float | None = None

    @classmethod
    def of(cls, query: Mapping[str, str]) -> AnswerQuestion:
        """The question in a query; :class:`UsageError` for a value that makes no sense."""
        return cls(
            checked_batch(query.get("batch", "")),
            checked_threads(query.get("threads", "")),
            _checked_bound(query.get("slo_ms", "")),
        )

    @property
    def slo_s(self) -> float | None:
        """The bound in seconds."""
        return None if self.slo_ms is None else self.slo_ms / 1e3

    @property
    def without_batch(self) -> AnswerQuestion:
        """The same question about a model whose batch is the one asked for."""
        return replace(self, batch=None)

    @property
    def query(self) -> str:
        """The query of an address, with its question mark; empty if nothing is asked for."""
        pairs = [(field.name, getattr(self, field.name)) for field in fields(self)]
        known = [
            (name, str(value) if isinstance(value, int) else f"{value:.6g}")
            for name, value in pairs
            if value is not None
        ]
        return f"?{urlencode(known)}" if known else ""


def checked_batch(text: str) -> int | None:
    """Parse a batch size; None for an empty ``text``, UsageError for a text that is no size."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:11]) <= LARGEST_DIM):
        raise UsageError(f"the batch {text[:20]!r} is no batch size: give a number such as 1 or 8")
    return int(text)


def checked_threads(text: str) -> int | None:
    """Parse a number of threads; None for an empty ``text``, UsageError for no such number."""
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 5):
        raise UsageError(f"{text[:20]!r} is no number of threads: give a number such as 2")
    return int(text)


def _checked_bound(text: str) -> float | None:
    """Parse a bound in milliseconds; None for an empty ``text``."""
    if not text:
        return None
    try:
        bound_ms = float(text[:20])
    except ValueError:
        bound_ms = math.nan
    if not 0 < bound_ms <= _MOST_MS:
        raise UsageError(f"the bound {text[:20]!r} is no latency: give milliseconds such as 20")
    return bound_ms


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """An answer, the unique name of its target, and its peak memory if that is known."""

    FACTS: ClassVar = (
        ("target.system.name", "system"), ("target.system.key", "system_key"),
        ("target.key", "target"), "target_name", ("target.runtime", "runtime"),
        ("target.runtime.threads", "threads"),
        *((f"answer.{path}", *names) for path, *names in ESTIMATE),
        ("answer.cost_per_million", "cost_per_million"), "peak_bytes", ("known_memory", "memory"),
        "no_memory", "error",
    )  # fmt: skip

    answer: Answer
    target_name: str
    memory: PeakMemory | UnknownMemory

    @property
    def target(self) -> Target:
        """The target that the model runs on."""
        return self.answer.target

    @property
    def known_memory(self) -> PeakMemory | None:
        """The peak memory and its parts; None if unknown."""
        return self.memory if isinstance(self.memory, PeakMemory) else None

    @property
    def peak_bytes(self) -> int | None:
        """The peak memory in bytes; None if unknown."""
        return None if self.known_memory is None else self.known_memory.peak_bytes

    @property
    def no_memory(self) -> str | None:
        """The reason why the peak memory is unknown; None if it is known."""
        return self.memory.reason if isinstance(self.memory, UnknownMemory) else None


@dataclass(frozen=True, slots=True)
class LackingRow:
    """The reason why there is no estimate on a target, and the unique name of the target."""

    LIKE: ClassVar = AnswerRow

    target: Target
    target_name: str
    error: str


def row_of(workspace: Workspace, of: Answer | NoAnswer, target_name: str) -> AnswerRow | LackingRow:
    """The row of an answer, with its predicted peak memory."""
    if isinstance(of, NoAnswer):
        return LackingRow(of.target, target_name, of.reason)
    try:
        memory = whole_models.memory_of_plan(workspace, of.plan, target=of.target)
    except BricksError as error:
        memory = UnknownMemory(of.plan.model, str(error))
    return AnswerRow(of, target_name, memory)


def meets(latency: Interval, bound: float) -> str:
    """Whether ``latency`` is at most ``bound``; uncertain if the bound is within the interval."""
    if latency.high <= bound:
        return YES
    return NO if latency.low > bound else UNCERTAIN


def fastest_first(row: AnswerRow | LackingRow) -> tuple[Any, ...]:
    """Sort key: the fastest first, rows without an answer last."""
    estimate_s = row.answer.estimate.estimate_s if isinstance(row, AnswerRow) else 0.0
    target = row.target
    lacks = isinstance(row, LackingRow)
    return lacks, estimate_s, target.system.name, target.runtime.threads, target.key


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
