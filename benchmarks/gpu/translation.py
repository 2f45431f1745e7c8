"""Compares programs translated from the processor's calls with the same recorded on CUDA."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import onnx

from bricks.decompose.build import build
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Decomposition
from bricks.graph.model import Model
from bricks.graph.view import graph_of


@dataclass(frozen=True, slots=True)
class Agreement:
    """Calls of a translated program and of the recorded one, as bricks.

    ``in_order`` tells whether both make the same bricks in the same order. ``missing`` are
    operators of calls that only CUDA makes, ``added`` of those that only the translation makes.
    """

    calls: int
    equal: int
    in_order: bool
    missing: Counter[str]
    added: Counter[str]


def agreement(translated: onnx.ModelProto, recorded: onnx.ModelProto) -> Agreement:
    """Compare the bricks of two programs."""
    ours, theirs = _keys(translated), _keys(recorded)
    ours_count, theirs_count = Counter(ours), Counter(theirs)
    return Agreement(
        calls=len(theirs),
        equal=sum((ours_count & theirs_count).values()),
        in_order=ours == theirs,
        missing=_operators(theirs_count - ours_count),
        added=_operators(ours_count - theirs_count),
    )


def _operators(keys: Counter[tuple[str, str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (_, operator), count in keys.items():
        counts[operator] += count
    return counts


def _keys(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    """The key and the operator of each call in order."""
    plan = _decomposed(proto).plan
    operators = (node.op_type for node in proto.graph.node)
    return [
        (occurrence.brick, operator)
        for occurrence, operator in zip(plan.occurrences, operators, strict=True)
    ]


def _decomposed(proto: onnx.ModelProto) -> Decomposition:
    skeleton = proto.SerializeToString(deterministic=True)
    digest = "m1-" + hashlib.sha256(skeleton).hexdigest()[:16]
    model = Model(proto.graph.name, Path(), skeleton, (), digest)
    return build(model, graph_of(proto), Granularity.parse("executed"))
