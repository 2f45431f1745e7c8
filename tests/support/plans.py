"""Plans made by hand for tests that need no ONNX: occurrences, values, measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate
from bricks.compose.recompose import recompose
from bricks.decompose.occurrence import Occurrence
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.graph.types import TensorType
from bricks.samples.call_overhead import LONG, PROBES, SHORT
from bricks.samples.measurement import Failure, Measurement, Round

FLOAT = TensorType("FLOAT", (4,))
HEAVY = TensorType("FLOAT", (1 << 16,))

Place = tuple[str, Sequence[int], Sequence[int]]


def plan(
    places: Sequence[Place | Occurrence],
    *,
    inputs: Sequence[int] = (0,),
    outputs: Sequence[int] | None = None,
    types: Mapping[int, TensorType] | None = None,
) -> Plan:
    """A plan of (brick, inputs, outputs); every value is float[16] unless ``types`` says more."""
    occurrences = tuple(
        p if isinstance(p, Occurrence) else Occurrence(p[0], tuple(p[1]), tuple(p[2]))
        for p in places
    )
    values = {*inputs, *(v for o in occurrences for v in (*o.inputs, *o.outputs))}
    kinds = types or {}
    return Plan(
        model="net",
        digest="m1-net",
        granularity="executed",
        inputs=tuple(inputs),
        outputs=tuple(occurrences[-1].outputs if outputs is None else outputs),
        types=tuple(kinds.get(v, TensorType("FLOAT", (16,))) for v in range(max(values) + 1)),
        occurrences=occurrences,
    )


CHAIN = plan([("a", [0], [1]), ("b", [1], [2]), ("a", [2], [3])])
DIAMOND = plan([("a", [0], [1]), ("b", [1], [2]), ("c", [1], [3]), ("d", [2, 3], [4])])


def estimate_of(basis: Basis) -> Estimate:
    """The estimate from ``basis``, which must be complete."""
    estimate = recompose(basis)
    assert isinstance(estimate, Estimate)
    return estimate


def measurement(key: str, *rounds: float | tuple[float, ...], wall_s: float = 1.0) -> Measurement:
    """A measurement with one sample per round, unless a round is a tuple of samples."""
    taken = tuple(r if isinstance(r, tuple) else (r,) for r in rounds)
    return Measurement(key, tuple(map(Round, taken)), wall_s)


def results(
    latencies: Mapping[str, float | str], *, overhead_s: float = 0.0, node_s: float = 1e-6
) -> dict[str, Measurement | Failure]:
    """Steady measurements by key; a text is the reason of a failure. Probes are included."""
    steady: dict[str, Measurement | Failure] = {
        PROBES[n]: measurement(PROBES[n], *[overhead_s + n * node_s] * 8) for n in (SHORT, LONG)
    }
    for key, latency in latencies.items():
        if isinstance(latency, str):
            steady[key] = Failure(key, latency)
        else:
            steady[key] = measurement(key, *[latency] * 8)
    return steady


def decomposed(plan: Plan, heavy: str = "") -> Decomposition:
    """``plan`` with a brick for each key; those in ``heavy`` have a weight of 256 KiB."""
    bricks = {}
    for key in plan.keys:
        weights = {"w0": HEAVY if key in heavy else FLOAT}
        bricks[key] = Brick(key, key.encode(), {}, weights, {}, ("Relu",), 0)
    return Decomposition(plan, bricks, 0.0)
