"""How a quantised model is executed, for terminals: a table, and what it means in sentences.

Must not compute results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bricks.analysis.integer_execution import IntegerExecution, Numbers, NumbersTime
from bricks.errors import printable
from bricks.report.answers.words import listed
from bricks.report.columns import Column, table_of
from bricks.report.tables import percent, seconds

if TYPE_CHECKING:
    from rich.table import Table

    from bricks.analysis.explained import ExplainedModel
    from bricks.analysis.integer_execution import FloatVersion

# Operators of one kind of numbers that are named, and characters of all their names together.
_NAMED, _WIDEST = 3, 44

_COLUMNS: Sequence[Column[NumbersTime]] = (
    Column("numbers", lambda time: str(time.numbers), left=True),
    Column("share", lambda time: percent(time.share)),
    Column("nodes", lambda time: f"{time.nodes:,}"),
    Column("latency", lambda time: seconds(time.total_s)),
    Column("operators", lambda time: _named(time.operators), left=True),
)


def numbers_table(of: IntegerExecution) -> Table:
    """The time in integers, conversions and floats, a row each."""
    return table_of(of.times, _COLUMNS)


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
    if len(text) > _WIDEST:
        return f"{text[: _WIDEST - 1]}…"
    return text if len(operators) <= _NAMED else f"{text}, …"


def _executed(of: IntegerExecution) -> str:
    """What runs in integers, and how many conversions of the file are part of kernels."""
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
    """Its latency next to that of the same model in floats, by kind of numbers."""
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
    """The instructions of the processor for products of 8-bit integers."""
    if of.instructions is None:
        return "Whether the processor has instructions for 8-bit products is not known."
    if not of.instructions:
        return (
            "The processor has no instructions for 8-bit products (VNNI, AMX, dot products), so"
            " they may take as long as those of floats."
        )
    return f"The processor has instructions for 8-bit products: {listed(of.instructions)}."
