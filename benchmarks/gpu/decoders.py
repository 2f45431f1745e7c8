"""Compare steps of a decoder, written from its dimensions, with real steps of the same decoder.

    .venv/bin/python -m benchmarks gpu --only decoders

The decoder was recorded on GPUs; its steps are written anew, cut into bricks, and their kernels are
those that were measured of equal calls. Constants are those of the folds that a program is not in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.device_time import Case, fitted_without
from benchmarks.gpu.measured import cut
from benchmarks.gpu.stepped import Stepped, stepped, stepped_of
from benchmarks.markdown import table
from benchmarks.ratios import digits
from benchmarks.study import Results, Run
from bricks.architectures.architecture import Architecture
from bricks.backends.torch.decoders import decoder_step
from bricks.compose.device.kernels import step_kernels
from bricks.report.tables import percent
from bricks.system.cards import card_named

_NAME = "lm1b"
_DECODER = Architecture(
    layers=16, hidden=2048, heads=32, kv_heads=8, head=64, inner=8192, vocabulary=32000,
    positions=8192, published=1.1e9,
)  # fmt: skip
_TRAINING = "_train_"


@dataclass(frozen=True, slots=True)
class DecoderRow:
    """A step of ``batch`` texts with new ``tokens`` after ``past`` others.

    ``calls`` are those of the written step, ``equal`` those with the brick of the recorded step at
    their place. Seconds of all kernels: in a real step, and estimated, with its relative ``error``.
    """

    case: Case
    batch: int
    tokens: int
    past: int
    calls: int
    equal: int
    step_s: float
    estimate_s: float
    error: float

    @property
    def ratio(self) -> float:
        """Estimate over real step."""
        return self.estimate_s / self.step_s

    @property
    def holds(self) -> bool:
        """Whether the real step lies inside the interval."""
        return abs(self.step_s / self.estimate_s - 1) <= self.error


def cases() -> list[Case]:
    """The decoder's prompts and steps of one token, in all processes."""
    return [of.case for of in stepped() if _is_step(of)]


def _is_step(of: Stepped) -> bool:
    return of.case.program.startswith(_NAME) and _TRAINING not in of.case.program


def run(case: Case, run: Run) -> DecoderRow:
    """The row of a step, whose bricks have the kernels of equal calls."""
    of = stepped_of(case)
    batch, tokens, past = _sizes(of.raw.proto)
    written = cut(decoder_step(_NAME, _DECODER, batch, tokens, past), _NAME)
    ours = [occurrence.brick for occurrence in written.plan.occurrences]
    theirs = [occurrence.brick for occurrence in of.measured.plan.occurrences]
    step = step_kernels(
        written.plan, of.measured.measured, card_named(of.raw.card).accelerator,
        written.bricks, fitted_without(case.program),
    )  # fmt: skip
    return DecoderRow(
        case, batch, tokens, past, len(ours),
        sum(own == other for own, other in zip(ours, theirs, strict=False)),
        digits(of.raw.step_device_s, 5), digits(step.device_s, 5), digits(step.error, 4),
    )  # fmt: skip


def _sizes(proto: onnx.ModelProto) -> tuple[int, int, int]:
    """Texts, new tokens, and tokens before; the cache has room for all."""
    batch, tokens = (dim.dim_value for dim in proto.graph.input[0].type.tensor_type.shape.dim)
    caches = [of.dims[2] for of in proto.graph.initializer if of.name == "k0"]
    return batch, tokens, caches[0] - tokens if caches else 0


def parts(results: Results[DecoderRow]) -> dict[str, str]:
    """Each step."""
    return {"decoders": _steps(results.rows)}


def _steps(rows: Sequence[DecoderRow]) -> str:
    lines = [
        [
            row.case.session, str(row.batch), str(row.tokens), str(row.past),
            f"{row.equal} of {row.calls}", f"{row.step_s * 1e3:.3f}",
            f"{row.estimate_s * 1e3:.3f}", f"{row.ratio:.3f}", f"± {percent(row.error, 1)}",
            "yes" if row.holds else "no",
        ]
        for row in sorted(rows, key=lambda row: (row.tokens == 1, row.batch, row.case.session))
    ]  # fmt: skip
    head = [
        "file", "texts", "new tokens", "before", "equal bricks", "real, ms", "estimate, ms",
        "estimate / real", "interval", "inside",
    ]  # fmt: skip
    return table(head, lines)


BENCHMARKS = (Derived("decoders", PAGE, DecoderRow, cases, run, parts),)
