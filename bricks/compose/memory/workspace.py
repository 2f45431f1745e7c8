"""Memory that kernels of ONNX Runtime allocate from the arena while they run: their workspace.

They are buffers for im2col, transposed copies, scores of attention. Each rule of ``operators``
follows from the runtime's resident memory before and during a run of the operator; a test repeats
the comparison. An operator without a rule has an unknown workspace. Must not know plans.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from bricks.graph.payload import type_of
from bricks.operators.node import Node
from bricks.operators.operator import no_workspace
from bricks.operators.registry import operator_called

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.containers import ValueType


def workspace(brick: Brick, threads: int) -> tuple[int, ...] | None:
    """Return the sizes in bytes of the buffers of ``brick``'s kernel; None if unknown."""
    rules = [operator_called(name).workspace for name in brick.operators]
    if all(rule is no_workspace for rule in rules):
        return () if rules else None
    rule = rules[0] if len(rules) == 1 else None
    node = None if rule is None else node_of(brick)
    if rule is None or node is None:
        return None
    try:
        return tuple(size for size in rule(node, threads) if size)
    except (LookupError, ValueError):  # ports or types for which no rule was found
        return None


def node_of(brick: Brick) -> Node | None:
    """Return the node of ``brick``; None if it has several nodes, or bytes that are no model."""
    try:
        model = onnx.ModelProto.FromString(brick.model)
    except Exception:  # protobuf's error classes differ between its implementations
        return None
    if len(model.graph.node) != 1:
        return None
    (proto,) = model.graph.node
    types: dict[str, ValueType] = {t.name: type_of(t) for t in model.graph.initializer}
    types |= {**brick.inputs, **brick.weights, **brick.outputs}
    version = next((o.version for o in model.opset_import if o.domain == proto.domain), 0)
    return Node(proto, types, version=version)
