"""Lines about bricks whose time depends on input values, and about the measured values.

Must not know how values are observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bricks.errors import printable
from bricks.report.tables import percent

if TYPE_CHECKING:
    from bricks.analysis.explanation import Part

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
