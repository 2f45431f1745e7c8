"""Compare steps that ``torch.compile`` made with eager ones, and with their kernels on two lanes.

    .venv/bin/python -m benchmarks gpu

Kernels and the host's seconds are those of the compiled step itself, which only a card tells. So
this shows how a compiled step is composed, and predicts nothing. The host issues the kernels at
even intervals, since a trace does not tell when it issued each. Costs of launching are the medians
of the file's processes; nothing is fitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from benchmarks.gpu.derived import PAGE, Derived
from benchmarks.gpu.raw import CompiledProgram, RawProgram, programs, read
from benchmarks.gpu.stepped import launch_costs
from benchmarks.markdown import paragraphs, table
from benchmarks.ratios import Ratios, digits
from benchmarks.study import Results, Run
from bricks.compose.device.launching import RunMode, device_run
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Plan
from bricks.report.tables import percent
from bricks.samples.statistics import median
from bricks.units.sample import Kernel

SESSION = "h200-turns"
# Files with an eager step of a program; the first that has one counts.
_EAGER = (SESSION, "h200-walks")


@dataclass(frozen=True, slots=True)
class Case:
    """A program that was compiled; ``eager`` is the file of its eager step."""

    program: str
    eager: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """A real step, alone and pipelined, and its parts: ``host_s``, and all kernels.

    ``composed_s`` and ``composed_pipelined_s`` are the same steps, composed on two lanes.
    """

    step_s: float
    pipelined_s: float
    host_s: float
    device_s: float
    kernels: int
    limited_by: str
    composed_s: float
    composed_pipelined_s: float

    @classmethod
    def of(
        cls,
        latency_s: Sequence[float],
        pipelined_s: float,
        host_s: Sequence[float],
        kernels: Sequence[Kernel],
    ) -> Lanes:
        """Compose the step with the costs of the file's processes; few digits of all."""
        issued_s, costs = median(host_s), launch_costs(SESSION)
        calls_s, started = [issued_s / len(kernels)] * len(kernels), [[k] for k in kernels]
        plan = _plan(kernels)
        alone = device_run(plan, calls_s, started, costs)
        many = device_run(plan, calls_s, started, costs, RunMode.PIPELINED)
        device_s = sum(kernel.device_s for kernel in kernels)
        return cls(
            digits(median(latency_s), 5),
            digits(pipelined_s, 5),
            digits(issued_s, 5),
            digits(device_s, 5),
            len(kernels),
            alone.limited_by,
            digits(alone.step_s, 5),
            digits(many.step_s, 5),
        )


@dataclass(frozen=True, slots=True)
class CompiledRow:
    """A program's eager and compiled step; ``compile_s`` is what compiling took."""

    case: Case
    compile_s: float
    eager: Lanes
    compiled: Lanes


@cache
def _compiled() -> dict[Case, tuple[CompiledProgram, RawProgram]]:
    eager = {(of.session, of.name): of for of in programs() if of.step}
    found = {}
    for of in read(SESSION).compiled:
        session = next(session for session in _EAGER if (session, of.name) in eager)
        found[Case(of.name, session)] = of, eager[session, of.name]
    return found


def cases() -> list[Case]:
    """The programs that were compiled."""
    return [*_compiled()]


def run(case: Case, run: Run) -> CompiledRow:
    """Both steps of a program."""
    compiled, eager = _compiled()[case]
    return CompiledRow(
        case,
        digits(compiled.compile_s, 3),
        _eager(eager),
        Lanes.of(compiled.latency_s, compiled.pipelined_s, compiled.host_s, compiled.kernels),
    )


def _eager(of: RawProgram) -> Lanes:
    """The eager step: of all turns, where there are any."""
    latency_s = [s for turn in of.turns for s in turn.latency_s] or of.latency_s
    host_s = [s for turn in of.turns for s in turn.host_s] or of.host_s
    pipelined_s = median([turn.pipelined_s for turn in of.turns] or [of.pipelined_s])
    return Lanes.of(latency_s, pipelined_s, host_s, [each.kernel for each in of.step])


def _plan(kernels: Sequence[Kernel]) -> Plan:
    """A plan with an occurrence for each kernel."""
    occurrences = tuple(Occurrence(kernel.name, (), ()) for kernel in kernels)
    return Plan("compiled", "", "kernels", (), (), (), occurrences)


def parts(results: Results[CompiledRow]) -> dict[str, str]:
    """What compiling saves, and how well two lanes explain the compiled steps."""
    return {"compiled": paragraphs(_saved(results.rows), _composed(results.rows))}


def _saved(rows: Sequence[CompiledRow]) -> str:
    lines = [
        [
            row.case.program, _ms(row.eager.step_s), _ms(row.compiled.step_s),
            f"{row.eager.step_s / row.compiled.step_s:.2f}", _ms(row.eager.device_s),
            _ms(row.compiled.device_s), f"{row.eager.kernels} → {row.compiled.kernels}",
            f"{row.eager.limited_by} → {row.compiled.limited_by}", f"{row.compile_s:.1f}",
        ]
        for row in rows
    ]  # fmt: skip
    head = [
        "program", "eager step, ms", "compiled step, ms", "speedup", "eager kernels, ms",
        "compiled kernels, ms", "kernels", "limited by", "compiling, s",
    ]  # fmt: skip
    return table(head, lines, "l")


def _composed(rows: Sequence[CompiledRow]) -> str:
    lines = [
        [
            row.case.program, _ms(of.host_s), _ms(of.device_s), _ms(of.step_s),
            f"{of.composed_s / of.step_s:.3f}", _ms(of.pipelined_s),
            f"{of.composed_pipelined_s / of.pipelined_s:.3f}",
        ]
        for row in rows
        for of in (row.compiled,)
    ]  # fmt: skip
    errors = [
        Ratios.of((of.composed_s, of.step_s) for of in (row.compiled for row in rows)),
        Ratios.of((of.composed_pipelined_s, of.pipelined_s) for of in (r.compiled for r in rows)),
    ]
    alone, many = (f"{percent(e.median_error, 1)}, {percent(e.worst_error, 1)}" for e in errors)
    lines.append(["median error, worst", "", "", "", alone, "", many])
    head = [
        "compiled program", "host, ms", "kernels, ms", "step, ms", "composed / step",
        "pipelined, ms", "composed / pipelined",
    ]  # fmt: skip
    return table(head, lines, "l")


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


BENCHMARKS = (Derived("compiled", PAGE, CompiledRow, cases, run, parts),)
