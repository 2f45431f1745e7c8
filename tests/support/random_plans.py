"""Plans of any form, for laws that hold for all."""

from __future__ import annotations

from hypothesis import strategies as st
from plans import plan

from bricks.decompose.plan import Plan
from bricks.graph.types import TensorType


@st.composite
def random_plans(draw: st.DrawFn) -> Plan:
    """Up to 25 occurrences that read earlier values of any size; some values are outputs."""
    places = []
    for i in range(draw(st.integers(1, 25))):
        reads = draw(st.lists(st.integers(0, i), min_size=1, max_size=3, unique=True))
        places.append(("a", reads, [i + 1]))
    sizes = {v: TensorType("FLOAT", (draw(st.integers(1, 200)),)) for v in range(len(places) + 1)}
    outputs = draw(st.sets(st.integers(1, len(places)), min_size=1, max_size=3))
    return plan(places, outputs=sorted(outputs), types=sizes)
