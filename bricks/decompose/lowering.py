"""Facts about a graph beyond its nodes and types: its lowering, and the contents of its values.

A runtime lowers a graph to its kernels, and a run on synthetic data observes values. Both decide
which bricks are equal. Frozen data; must not know how either is observed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bricks.graph.sketch import Sketch


@dataclass(frozen=True, slots=True)
class Lowering:
    """The lowering of a graph to a runtime's kernels.

    ``groups`` are the positions of nodes that the runtime executes as one kernel; None if it
    executes each node separately. ``layouts`` maps a value to its layout if this is not ONNX's, and
    ``in_place`` a value to the value whose memory it reuses. A group may run as other kernels in
    the model than in isolation: ``other_kernels`` maps its first node to its kernels in the model.
    ``rewritten_bytes`` is the size of the weights that the runtime rewrites while it loads the
    model; None if unknown. ``rule`` is the version of the rule by which the graph was lowered.
    """

    groups: Sequence[tuple[int, ...]] | None = None
    layouts: Mapping[str, str] = field(default_factory=dict)
    other_kernels: Mapping[int, Sequence[str]] = field(default_factory=dict)
    in_place: Mapping[str, str] = field(default_factory=dict)
    rewritten_bytes: int | None = None
    rule: int = 0


@dataclass(frozen=True, slots=True)
class Contents:
    """Observed contents of values, by name, that decide on kernels or on their latency.

    ``steering`` are the flattened contents of computed steering values. ``sketches`` are sketches
    (``graph.sketch``) of values on which the latency of an operator depends; ``weights`` those of
    weights that their model notes, since they or products of them are denormal or zero.
    ``iterations`` are the numbers of iterations of loops, by the name of a loop's first output.
    """

    steering: Mapping[str, Sequence[float]] = field(default_factory=dict)
    sketches: Mapping[str, Sketch] = field(default_factory=dict)
    iterations: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, Sketch] = field(default_factory=dict)


# For a graph that is executed as it is written, and whose values were not observed.
AS_WRITTEN, UNKNOWN = Lowering(), Contents()
