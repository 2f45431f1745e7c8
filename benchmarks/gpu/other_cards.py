"""Compare what cards that were not measured here are predicted to take with published throughputs.

    .venv/bin/python -m benchmarks gpu

Training of ResNet-50 in FP32, with TF32 in convolutions where cards have it, was timed by others on
many cards (``results/gpu/throughputs.csv``). Here the same step, with a smaller batch, is predicted
from what its calls took on the H100 and on the H200, and from calls of other programs alone.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.measured import MeasuredProgram, measured
from benchmarks.gpu.raw import programs
from benchmarks.gpu.unmeasured import family_of, learned_without
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Results, Run
from bricks.predict.kernels.kernel_predictor import KernelPrediction, total_s, transferred
from bricks.report.tables import percent
from bricks.session.device_latencies import transfer_error
from bricks.system.cards import card_named
from bricks.units.interval import Interval

PROGRAM, BATCH = "resnet50_train_b64", 64
SOURCES = {"h100-walks": "H100", "h200-walks": "H200"}
# Cards by which the rule was chosen among four (bricks/predict/kernels/kernel_predictor.py), one of
# each class; and cards that were measured here.
CHOSEN, HERE = frozenset({"v100-16gb", "a100", "rtx3090"}), frozenset({"h100", "h200"})
PUBLISHED = Path(__file__).resolve().parents[1] / "results" / "gpu" / "throughputs.csv"


@dataclass(frozen=True, slots=True)
class Published:
    """The published throughput of a ``card``, by its alias, with a ``batch`` in a ``year``."""

    card: str
    images_per_s: float
    batch: int
    year: int


@dataclass(frozen=True, slots=True)
class Case:
    """A published throughput, and the session whose calls it is predicted from.

    ``measured`` says whether the program's own calls are used, or those of other families alone.
    """

    published: Published
    session: str
    measured: bool


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds an image: as published, and predicted with the ends of the interval."""

    case: Case
    published_s: float
    predicted_s: float
    low_s: float
    high_s: float

    @property
    def ratio(self) -> float:
        """Predicted over published."""
        return self.predicted_s / self.published_s

    @property
    def holds(self) -> bool:
        """Whether the published one lies inside the interval."""
        return self.low_s <= self.published_s <= self.high_s


def published() -> list[Published]:
    """All published throughputs."""
    rows = csv.DictReader(PUBLISHED.read_text(encoding="utf-8").splitlines())
    return [
        Published(row["card"], float(row["images_per_s"]), int(row["batch"]), int(row["year"]))
        for row in rows
    ]


def cases() -> list[Case]:
    """Each card from each source; from calls of other families on the H200 alone too."""
    return [
        *(Case(of, session, True) for of in published() for session in SOURCES),
        *(Case(of, "h200-walks", False) for of in published()),
    ]


@cache
def _program(session: str) -> MeasuredProgram:
    return next(
        measured(raw) for raw in programs() if (raw.session, raw.name) == (session, PROGRAM)
    )


def run(case: Case, run: Run) -> Row:
    """The row of a card; its interval has the error of other architectures, as answers have."""
    of, card = _program(case.session), card_named(case.published.card)
    here = card_named(of.program.card)
    bricks = of.decomposition.bricks
    if case.measured:
        predictions = transferred(bricks, of.measured, here, card)
    else:
        predictions = learned_without(family_of(PROGRAM)).predictions(bricks, card)
    counts = Counter(occurrence.brick for occurrence in of.plan.occurrences)
    error = transfer_error(here.accelerator, card) if card != here else 0.0
    image_s = _step_s(predictions, counts).times(Interval.around(1.0, error)).scaled(1 / BATCH)
    seconds = 1 / case.published.images_per_s, image_s.value, image_s.low, image_s.high
    return Row(case, *(digits(own, 5) for own in seconds))


def _step_s(predictions: dict[str, KernelPrediction], counts: Counter[str]) -> Interval:
    return total_s([(predictions[key], counts[key]) for key in predictions], None)


def parts(results: Results[Row]) -> dict[str, str]:
    """Errors by group of cards, and each card."""
    return {"other_cards": paragraphs(_errors(results.rows), _cards(results.rows))}


def _errors(rows: Sequence[Row]) -> str:
    head = ["", "predictions", "median error", "worst", "inside the interval"]
    own = [row for row in rows if row.case.measured]
    groups = {
        "cards without part in the rule": [
            r for r in own if r.case.published.card not in CHOSEN | HERE
        ],
        "cards by which the rule was chosen": [r for r in own if r.case.published.card in CHOSEN],
        "H100 and H200 themselves": [r for r in own if r.case.published.card in HERE],
        "calls never measured, all but these two": [
            r for r in rows if not r.case.measured and r.case.published.card not in HERE
        ],
    }
    return table(head, [_summary(name, of) for name, of in groups.items()])


def _summary(name: str, rows: Sequence[Row]) -> list[str]:
    of = Ratios(tuple(row.ratio for row in rows))
    errors = [percent(each, 0) for each in (of.median_error, of.worst_error)]
    return [name, str(len(rows)), *errors, percent(sum(row.holds for row in rows) / len(rows), 0)]


def _cards(rows: Sequence[Row]) -> str:
    head = [
        "card", "year", "batch", "images/s, published", "from the H100", "from the H200",
        "never measured", "interval from the H100",
    ]  # fmt: skip
    found = {(row.case.published.card, row.case.session, row.case.measured): row for row in rows}
    lines = []
    for of in published():
        first, second = (found[of.card, session, True] for session in SOURCES)
        anew = found[of.card, "h200-walks", False]
        interval = f"{1 / first.high_s:.0f} to {1 / first.low_s:.0f}"
        lines.append(
            [
                card_named(of.card).name, str(of.year), str(of.batch), f"{of.images_per_s:.0f}",
                *(f"{1 / row.predicted_s:.0f}" for row in (first, second, anew)), interval,
            ]
        )  # fmt: skip
    return table(head, lines, "l")


BENCHMARKS = (Derived("other_cards", PAGE, Row, cases, run, parts),)
