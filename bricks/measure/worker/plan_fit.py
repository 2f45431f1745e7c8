"""Chooses the plan to chain newly cut pieces by: the stored one, or one cut with equal weights.

Must not know what the pieces compute.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence

from bricks.decompose.identity import Piece
from bricks.decompose.plan import Plan
from bricks.errors import BackendError


def fitting(plan: Plan, again: Plan, pieces: Sequence[Piece]) -> Plan:
    """The plan to chain ``pieces`` by: ``plan`` if it fits, or the plan cut ``again`` with them.

    A runtime may execute the same nodes in another order in each session. Some optimisations depend
    on values: a plan made without values may not fit at all.
    """
    if sorted(o.brick for o in again.occurrences) == sorted(o.brick for o in plan.occurrences):
        # If the plan computes something else, the outputs must show it.
        return again if _computes(again) == _computes(plan) else plan
    planned, cut = len(plan.occurrences), len(pieces)
    other = f"{cut} pieces, where the plan, made without their values, has {planned}"
    if planned == cut:
        ports = [(len(p.inputs), len(p.weights), len(p.outputs)) for p in pieces]
        plan_ports = [(len(o.inputs), len(o.weights), len(o.outputs)) for o in plan.occurrences]
        if ports == plan_ports:
            return plan
        other = "some of its pieces have other inputs than in the plan"
    raise BackendError(f"with these weights the runtime executes another graph: {other}")


def _computes(plan: Plan) -> tuple[Counter[str], list[str]]:
    """Digests of each occurrence with all that it depends on, in any order, and the outputs."""
    values = {number: f"input {i}" for i, number in enumerate(plan.inputs)}
    digests: Counter[str] = Counter()
    for o in plan.occurrences:
        dependencies = "\n".join((o.brick, *(values.get(number, "unknown") for number in o.inputs)))
        digest = hashlib.sha256(dependencies.encode()).hexdigest()
        digests[digest] += 1
        values |= {number: f"{digest} {port}" for port, number in enumerate(o.outputs)}
        values |= {number: f"{digest} v{k}" for k, number in o.hidden}
    return digests, [values.get(number, "constant") for number in plan.outputs]
