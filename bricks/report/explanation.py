"""Details of an explanation: bricks by operator, peaks, memory, input values and integers.

Must not compute results, nor know how values are observed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from bricks.analysis.integer_execution import IntegerExecution, Numbers, NumbersTime
from bricks.compose.memory.peak import PeakMemory
from bricks.errors import printable
from bricks.report.prediction import memory_remarks, phase_lines
from bricks.report.tables import (
    DASH,
    Column,
    billions,
    number,
    part_column,
    peak_parts,
    peak_size,
    percent,
    seconds,
    table_of,
)
from bricks.report.words import device_of, listed

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

    from bricks.analysis.explain import ExplainedModel
    from bricks.analysis.explanation import OperatorPart, Part
    from bricks.analysis.integer_execution import FloatVersion
    from bricks.session.machine_peaks import Peaks

# The maximum width of the first column: beyond it, figures are far from their names.
_WIDEST = 56


def detail_lines(model: ExplainedModel) -> list[Text | Table | str]:
    """All bricks of an explained model, below the peaks of a processor; and its memory."""
    lines: list[Text | Table | str] = [explanation_table(model)]
    if device_of(model) is None:
        lines.insert(0, f"{model.model}: peaks of the machine: {_peaks(model.peaks)}")
    lost_s = sum(part.lost_s for part in model.parts)
    if lost_s and model.interval is not None and model.interval.value:
        lines.append(
            f"With the fastest implementation of each brick that is known here:"
            f" {seconds(model.fastest_s)}, {percent(lost_s / model.interval.value)} less."
        )
    if isinstance(model.memory, PeakMemory):
        peak = peak_size(model.memory.peak_bytes, model.memory.unknown)
        lines.append(f"Peak memory: {peak} ({peak_parts(asdict(model.memory))}).")
    return lines


def explanation_remarks(model: ExplainedModel) -> list[str]:
    """Remarks on an explained model: values that decide its time, phases, memory."""
    values = value_lines(model.parts)
    return [*values, *phase_lines(model.model, model.phases), *memory_remarks(model)]


def _peaks(of: Peaks) -> str:
    known = [
        f"{of.flops_per_s / 1e9:.3g} GFLOP/s" if of.flops_per_s else None,
        f"{of.bytes_per_s / 1e9:.3g} GB/s" if of.bytes_per_s else None,
    ]
    return ", ".join(rate for rate in known if rate) or "not measured"


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the table: an operator, or one of its bricks (``part``)."""

    title: str
    share: float
    occurrences: str
    latency_s: float
    part: Part | None = None
    style: str = ""


def _of_part(title: str, text: Callable[[Part], str]) -> Column[_Line]:
    """A column of bricks, which is empty for operators."""
    return part_column(title, lambda line: line.part, text, otherwise="")


_COLUMNS: Sequence[Column[_Line]] = (
    Column("operator and brick", lambda line: line.title, left=True),
    Column("share", lambda line: percent(line.share)),
    Column("nodes", lambda line: line.occurrences),
    Column("latency", lambda line: seconds(line.latency_s)),
    Column("device", lambda line: _device(line.part)),
    _of_part("GFLOP/s", lambda part: billions(part.flops_per_s, ".1f")),
    _of_part("GB/s", lambda part: billions(part.bytes_per_s, ".1f")),
    _of_part("FLOP/byte", lambda part: number(part.intensity, 1)),
    _of_part("of peak", lambda part: percent(part.peak_share, 0)),
    _of_part("bound by", lambda part: part.bound or DASH),
    _of_part("in models", lambda part: str(part.models or DASH)),
)


def _device(part: Part | None) -> str | None:
    """Seconds of one occurrence's kernels; None for an operator, and for a call without any."""
    return seconds(part.work_s) if part is not None and part.device_s else None


def explanation_table(model: ExplainedModel) -> Table:
    """Operators, the one that takes longest first, and the bricks of each."""
    lines = [line for group in model.operators for line in _lines(group, model.parts)]
    table = table_of(lines, _COLUMNS)
    # Keys and shapes are truncated in a narrow terminal, figures never are.
    first = table.columns[0]
    first.no_wrap, first.overflow, first.max_width = True, "ellipsis", _WIDEST
    for row, line in zip(table.rows, lines, strict=True):
        row.style = line.style
    return table


def _lines(group: OperatorPart, parts: Sequence[Part]) -> Iterator[_Line]:
    yield _Line(group.operator, group.share, str(group.occurrences), group.total_s, style="bold")
    of_operator = [part for part in parts if part.operator == group.operator]
    for position, part in enumerate(of_operator, 1):
        key = f"{part.brick[:11]}{' (predicted)' if part.predicted else ''}"
        title = printable(f"{'└' if position == len(of_operator) else '├'} {key} {part.shapes}")
        yield _Line(title, part.share, f"{part.occurrences} ×", part.latency_s, part)


# At most so many bricks have a line each; further ones are counted.
_MOST = 4


def value_lines(parts: Sequence[Part]) -> list[str]:
    """A line for each of the first bricks whose time depends on values; none, if there is none."""
    dependent = [part for part in parts if part.values]
    lines = [
        f"Its time depends on values: {printable(part.operator)} ({part.brick[:11]}),"
        f" measured with {'; '.join(map(_described, part.values.values()))}."
        for part in dependent[:_MOST]
    ]
    if len(dependent) > _MOST:
        lines.append(f"So does that of {len(dependent) - _MOST} more bricks (--json lists them).")
    return lines


def _described(sketch: Mapping[str, Any]) -> str:
    return ", ".join(_words(sketch)) or "random values"


def _words(sketch: Mapping[str, Any]) -> Iterator[str]:
    if "iterations" in sketch:
        yield f"{sketch['iterations']:,} iterations"
    if "negative" in sketch:
        yield f"{percent(sketch['negative'])} negative"
    if "log_size" in sketch:
        yield f"a mean size of {2 ** sketch['log_size']:.2g}"
    if "zeros" in sketch:
        yield f"{percent(sketch['zeros'])} zeros"
    if "nan" in sketch:
        yield f"{percent(sketch['nan'])} NaN"
    if "places" in sketch:
        yield f"boxes at {sketch['places']:,} places"
        return
    if "distinct" in sketch:
        yield f"{sketch['distinct']:,} distinct values"
    if "rises" in sketch:
        yield f"{percent(sketch['rises'])} greater than the one before"
    if "quantiles" in sketch:
        low, *_, high = sketch["quantiles"]
        yield f"values from {low:g} to {high:g}"
    if "columns" in sketch:
        yield f"the distributions of {len(sketch['columns'])} columns"


# Operators of one kind of numbers that are named, and characters of all their names together.
_NAMED, _WIDEST_NAMES = 3, 44

_NUMBERS: Sequence[Column[NumbersTime]] = (
    Column("numbers", lambda time: str(time.numbers), left=True),
    Column("share", lambda time: percent(time.share)),
    Column("nodes", lambda time: f"{time.nodes:,}"),
    Column("latency", lambda time: seconds(time.total_s)),
    Column("operators", lambda time: _named(time.operators), left=True),
)


def numbers_table(of: IntegerExecution) -> Table:
    """The time in integers, conversions and floats, a row each."""
    return table_of(of.times, _NUMBERS)


def number_remarks(of: ExplainedModel) -> list[str]:
    """A line on a quantised model: what is fused, what stays float, and why it is fast or slow."""
    execution = of.integers
    if execution is None:
        return []
    sentences = [_executed(execution)]
    if execution.floats is not None:
        sentences.append(_compared(of, execution, execution.floats))
    sentences.append(_instructions(execution))
    return [f"{printable(of.model)}: {' '.join(sentences)}"]


def _named(operators: Sequence[str]) -> str:
    text = ", ".join(operators[:_NAMED])
    if len(text) > _WIDEST_NAMES:
        return f"{text[: _WIDEST_NAMES - 1]}…"
    return text if len(operators) <= _NAMED else f"{text}, …"


def _executed(of: IntegerExecution) -> str:
    integer, floats = (
        of.time(kind).products for kind in (Numbers.INTEGERS, Numbers.FLOAT_PRODUCTS)
    )
    text = (
        f"of {integer + floats} convolutions and matrix products, {integer} compute in 8-bit"
        f" integers and {floats} in floats"
    )
    if of.in_file and of.apart <= of.in_file:
        text += f"; of {of.in_file} conversions in the file, {of.in_file - of.apart} are part of"
        text += " kernels"
    elif of.in_file:  # a runtime gives each reader of a weight a conversion of its own
        text += f"; {of.apart} conversions run, {of.in_file} are in the file"
    return f"{text}."


def _compared(of: ExplainedModel, execution: IntegerExecution, floats: FloatVersion) -> str:
    products_s = execution.time(Numbers.INTEGERS).total_s
    products_s += execution.time(Numbers.FLOAT_PRODUCTS).total_s
    conversions_s = execution.time(Numbers.CONVERSIONS).total_s
    others_s = execution.time(Numbers.OTHERS).total_s
    ratio = of.latency_s.value / floats.latency_s
    return (
        f"It takes {ratio:.2f} of the {seconds(floats.latency_s)} of {printable(floats.model)}:"
        f" products {seconds(products_s)} against {seconds(floats.products_s)}, other operators"
        f" {seconds(others_s)} against {seconds(floats.others_s)}, conversions"
        f" {seconds(conversions_s)}."
    )


def _instructions(of: IntegerExecution) -> str:
    if of.instructions is None:
        return "Whether the processor has instructions for 8-bit products is not known."
    if not of.instructions:
        return (
            "The processor has no instructions for 8-bit products (VNNI, AMX, dot products), so"
            " they may take as long as those of floats."
        )
    return f"The processor has instructions for 8-bit products: {listed(of.instructions)}."
