"""How well is generated text predicted? Steps of decoders next to a real greedy loop.

    .venv/bin/python -m benchmarks generation --minutes 20

Each case generates texts before and after the bricks of its steps are measured, in one cache. The
compared steps have lengths of the KV cache that were not measured. Decoders of seven billion
parameters are predicted only: their weights exist nowhere. Run nothing else meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks import summary
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, shortened
from benchmarks.study import Benchmark, Failed, Results, Run
from bricks.report.tables import number, percent, seconds, size
from bricks.studies.generation.options import Generation, GenerationOptions
from bricks.studies.generation.result import GenerationResult
from bricks.studies.generation.study import predict_generation
from bricks.units.interval import Interval

PROMPT, NEW = 256, 64
LARGE_PROMPT, LARGE_NEW = 512, 128
LARGE = ("decoder_llama_7b_int4", "decoder_llama_7b_int8")


@dataclass(frozen=True, slots=True)
class Case:
    """A decoder with a number of threads and a number of texts at a time."""

    decoder: str
    threads: int
    batch: int

    @property
    def checked(self) -> bool:
        """Whether texts are really generated."""
        return self.decoder not in LARGE

    @property
    def cells(self) -> list[str]:
        """The decoder's short name and the number of threads."""
        return [self.decoder.removeprefix("decoder_"), str(self.threads)]


@dataclass(frozen=True, slots=True)
class Step:
    """A step with ``past`` cached tokens that was not measured, predicted and real."""

    past: int
    estimate_s: Interval
    real_s: float


@dataclass(frozen=True, slots=True)
class Generated:
    """What was really generated: first and further tokens, and the time between two steps."""

    between_steps_s: float
    ttft_s: float
    tpot_s: float | None
    tokens_per_s: float
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """Predicted first and further tokens, and the real ones where texts were generated.

    ``memory_bytes`` has the sizes of weights, of the KV cache and of the peak. ``wall_s`` is what
    measuring the bricks took.
    """

    case: Case
    ttft_s: Interval
    tpot_s: Interval
    tokens_per_s: Interval
    memory_bytes: tuple[int | None, int | None, int | None]
    measured_share: float
    wall_s: float | None = None
    real: Generated | None = None


def cases() -> list[Case]:
    """Three decoders with one and two threads, one and four texts; and two large ones."""
    small = [
        Case(f"decoder_{name}", threads, batch)
        for name in ("gpt2", "llama", "grouped")
        for threads in (1, 2)
        for batch in (1, 4)
    ]
    return [*small, *(Case(name, 2, 1) for name in LARGE)]


def run(case: Case, run: Run) -> Row:
    """Predict a decoder, and generate texts with it."""
    prompt_tokens, new_tokens = (PROMPT, NEW) if case.checked else (LARGE_PROMPT, LARGE_NEW)
    texts = Generation(prompt_tokens, new_tokens, case.batch)
    options = GenerationOptions(model=case.decoder, generation=texts, check=case.checked)
    with run.bench("cache", threads=case.threads) as bench:
        began_s = time.monotonic()
        result = predict_generation(bench.workspace, options)
        return _row(case, result, time.monotonic() - began_s)


def _row(case: Case, result: GenerationResult, wall_s: float) -> Row:
    assert result.tpot_s is not None
    memory = result.memory
    shares = [step.run.provenance.predicted_share for step in (result.prompt, *result.shown)]
    return Row(
        case,
        shortened(result.ttft_s),
        shortened(result.tpot_s),
        shortened(result.tokens_per_s),
        (memory.weight_bytes, memory.cache_bytes, memory.peak_bytes),
        min(1 - share for share in shares),
        None if case.checked else wall_s,
        _generated(result),
    )


def _generated(result: GenerationResult) -> Generated | None:
    """The real tokens, and steps at three lengths that were not measured."""
    checked, asked = result.checked, result.generation
    if checked is None:
        return None
    lengths = [asked.prompt_tokens + round(part * (asked.new_tokens - 2) / 6) for part in (1, 3, 5)]
    steps = (
        Step(past, shortened(result.times.at(asked.batch, past)), checked.steps_s[past])
        for past in lengths
    )
    figures = checked.step_s, checked.ttft_s, checked.tpot_s, checked.tokens_per_s
    return Generated(*figures, tuple(steps))


def parts(results: Results[Row]) -> dict[str, str]:
    """The tables of checked and of large decoders."""
    order = cases()
    rows = sorted(results.rows, key=lambda row: order.index(row.case))
    return {
        "generated": _checked(results, [row for row in rows if row.case.checked]),
        "large": _large(results, [row for row in rows if not row.case.checked]),
    }


def summed_up(results: Results[Row]) -> dict[str, str]:
    """Steps of one token, at lengths of the cache that were not measured."""
    reals = [row.real for row in results.rows if row.real is not None]
    steps = [(step.estimate_s, step.real_s) for real in reals for step in real.steps]
    ratios = Ratios.of((estimate.value, real_s) for estimate, real_s in steps)
    inside = (estimate.low <= real_s <= estimate.high for estimate, real_s in steps)
    return summary.row("tokens", ratios, inside)


def _checked(results: Results[Row], rows: Sequence[Row]) -> str:
    head = ["decoder", "threads", "texts", "first token", "generated", "ratio",
            "token at three lengths", "generated", "ratios", "between steps",
            "tokens/s"]  # fmt: skip
    failed = [[*each.case.cells, str(each.case.batch), each.error, *[""] * 7]
              for each in _failed(results, checked=True)]  # fmt: skip
    pairs = [(row, row.real) for row in rows if row.real is not None]
    steps = [(step.estimate_s, step.real_s) for _, real in pairs for step in real.steps]
    firsts = [(row.ttft_s, real.ttft_s) for row, real in pairs]
    about = results.about
    note = (
        f"{about.date}, {about.system}, {about.runtime}, prompts of {PROMPT} tokens and {NEW} new"
        f" ones. Steps: {_summed_up(steps)}. First tokens: {_summed_up(firsts)}."
    )
    lines = [*(_cells(*pair) for pair in pairs), *failed]
    return paragraphs(table(head, lines), note if pairs else "")


def _cells(row: Row, real: Generated) -> list[str]:
    return [
        *row.case.cells, str(row.case.batch), seconds(row.ttft_s.value), seconds(real.ttft_s),
        number(row.ttft_s.value / real.ttft_s, 3),
        ", ".join(seconds(step.estimate_s.value) for step in real.steps),
        ", ".join(seconds(step.real_s) for step in real.steps),
        ", ".join(number(step.estimate_s.value / step.real_s, 3) for step in real.steps),
        seconds(real.between_steps_s), number(real.tokens_per_s, 1),
    ]  # fmt: skip


def _failed(results: Results[Row], *, checked: bool) -> Iterable[Failed[Case]]:
    return (failed for failed in results.failed if failed.case.checked == checked)


def _summed_up(pairs: Sequence[tuple[Interval, float]]) -> str:
    ratios = Ratios.of((estimate.value, real) for estimate, real in pairs)
    inside = sum(estimate.low <= real <= estimate.high for estimate, real in pairs)
    return (
        f"median error {percent(ratios.median_error)}, worst {percent(ratios.worst_error)},"
        f" geometric mean {number(ratios.geomean, 3)}, {inside} of {len(pairs)} inside the interval"
    )


def _large(results: Results[Row], rows: Sequence[Row]) -> str:
    head = ["decoder", "threads", "first token", "time per token", "tokens/s", "weights", "cache",
            "peak", "measuring took"]  # fmt: skip
    failed = [[*each.case.cells, each.error, *[""] * 6] for each in _failed(results, checked=False)]
    return table(head, [*map(_large_cells, rows), *failed])


def _large_cells(row: Row) -> list[str]:
    intervals = [
        f"{seconds(each.value)} ({seconds(each.low)} … {seconds(each.high)})"
        for each in (row.ttft_s, row.tpot_s)
    ]
    sizes = map(size, row.memory_bytes)
    return [*row.case.cells, *intervals, number(row.tokens_per_s.value, 2), *sizes,
            seconds(row.wall_s)]  # fmt: skip


BENCHMARKS = (
    Benchmark(
        "generation", "scenarios.md", Row, cases, run, parts, others={summary.PAGE: summed_up}
    ),
)
