"""An edited model next to its original: both latencies, and the difference.

Bricks that both have in equal numbers cancel out of the difference, errors included. Models are
edited by the user (``Bench.read`` takes graphs in memory), or here, by leaving nodes out. Must not
know how results are shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bricks.analysis.operator_times import common_error_s
from bricks.compose.estimate import Estimate, IncompleteEstimate, WhatIf
from bricks.compose.latencies import latencies
from bricks.compose.recompose import recompose
from bricks.errors import BricksError, ModelError, UsageError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Model
from bricks.graph.removal import matching_nodes, without_nodes
from bricks.graph.view import graph_of, parse_model
from bricks.measure.protocol.models import ReadSource
from bricks.reading.digest import digest
from bricks.session import predicting
from bricks.studies.inference.prediction import without
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.analysis.explain import Explainer
    from bricks.analysis.explanation import Explanation
    from bricks.compose.basis import Basis
    from bricks.session.workspace import Workspace
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class Shortened:
    """A model without some of its nodes: ``bypassed`` ones, and others whose results are given."""

    model: Model
    bypassed: tuple[str, ...]
    given: tuple[str, ...]


def what_if(
    workspace: Workspace,
    model: Model,
    edited: Model,
    *,
    measure: bool = True,
    target: Target | None = None,
) -> WhatIf:
    """The latency of ``edited`` next to that of ``model``, by default on the workspace's target.

    With ``measure``, missing bricks are measured first. Raises :class:`ModelError` if bricks of
    either stay without a latency.
    """
    bases = [
        predicting.basis(workspace, each, measure=measure, target=target)
        for each in (model, edited)
    ]
    before, after = map(_estimate, bases)
    return WhatIf(before, after, _difference(bases[0], bases[1], before, after))


def _estimate(basis: Basis) -> Estimate:
    estimate = recompose(basis)
    if isinstance(estimate, IncompleteEstimate):
        raise ModelError(without(estimate))
    return estimate


def _difference(one: Basis, other: Basis, before: Estimate, after: Estimate) -> Interval:
    """The seconds that ``one`` takes longer; errors of bricks that both have cancel out."""
    mine, others = one.plan.counts, other.plan.counts
    keys = sorted(mine.keys() | others.keys())
    counts = {key: mine.get(key, 0) - others.get(key, 0) for key in keys}
    net: Mapping[str, Interval] = {
        key: known.net(key) for known in (latencies(other), latencies(one)) for key in known.gross_s
    }
    widths_s = [abs(count) * net[key].half_width for key, count in counts.items()]
    changed_s = sum(abs(count) * net[key].value for key, count in counts.items())
    common = max(_common_share(before), _common_share(after))
    value_s = before.estimate_s - after.estimate_s
    return Interval.around(value_s, math.hypot(*widths_s, common * changed_s))


def _common_share(of: Estimate) -> float:
    """Half the width of the error that all bricks have in common, relative to the latency."""
    return common_error_s(of) / of.estimate_s if of.estimate_s else 0.0


def shortened(workspace: Workspace, model: Model, patterns: Sequence[str]) -> Shortened:
    """``model`` without the nodes that ``patterns`` match, cut anew by the runtime.

    See :mod:`bricks.graph.removal` for patterns and for what removing means. Raises
    :class:`UsageError` for a program, and for patterns that match nothing.
    """
    if form_of(parse_model(model.skeleton)) is ModelForm.PROGRAMS:
        raise UsageError(f"{model.name} is a PyTorch program: --without edits ONNX graphs")
    source = workspace.graphs.ask(model, ReadSource(model.name, model.skeleton))
    proto = parse_model(source.model)
    positions = matching_nodes(model.name, proto.graph.node, patterns)
    removal = without_nodes(proto, positions, source.types)
    graph = graph_of(removal.proto)
    skeleton = removal.proto.SerializeToString(deterministic=True)
    inputs = tuple((name, graph.types[name]) for name in graph.inputs)
    title = f"{model.name} without {', '.join(patterns)}"
    edited = Model(title, model.folder, skeleton, inputs, digest(removal.proto))
    return Shortened(edited, removal.bypassed, removal.given)


@dataclass(frozen=True, slots=True)
class Removed:
    """A model without nodes that match ``patterns``; or why it cannot be, in one line.

    ``before`` and ``after`` explain both latencies.
    """

    FACTS: ClassVar = (
        "model", "patterns", "bypassed", "given",
        ("what_if.original.latency_s", "estimate_s", "low_s", "high_s"),
        ("what_if.edited.latency_s", "without_s", "without_low_s", "without_high_s"),
        ("what_if.gain", "gain_s", "gain_low_s", "gain_high_s"), "error",
    )  # fmt: skip

    model: str
    patterns: tuple[str, ...]
    nodes: Shortened | None = None
    what_if: WhatIf | None = None
    before: Explanation | None = None
    after: Explanation | None = None
    error: str | None = None

    @property
    def bypassed(self) -> int:
        """The number of nodes whose readers read the nodes' input."""
        return 0 if self.nodes is None else len(self.nodes.bypassed)

    @property
    def given(self) -> int:
        """The number of nodes whose results are given, so that they cost nothing."""
        return 0 if self.nodes is None else len(self.nodes.given)


def removed(insight: Explainer, model: Model, patterns: Sequence[str]) -> Removed:
    """The latency of ``model`` without the nodes that ``patterns`` match, explained.

    Raises :class:`UsageError` as :func:`shortened` does.
    """
    workspace, target = insight.workspace, insight.target
    nodes = shortened(workspace, model, patterns)
    try:
        answer = what_if(workspace, model, nodes.model, measure=insight.measure, target=target)
        before, after = map(insight.explain, (model, nodes.model))
    except BricksError as error:
        return Removed(model.name, tuple(patterns), nodes, error=str(error))
    return Removed(model.name, tuple(patterns), nodes, answer, before, after)
