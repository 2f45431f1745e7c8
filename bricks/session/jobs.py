"""The measuring jobs of a workspace: for the bricks of a model, a whole model, or one brick.

Must not know how, or when, a job is measured.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from bricks.decompose.context import surrounding_bytes
from bricks.decompose.plan import Brick, Decomposition, isolated_decomposition
from bricks.decompose.streams import streams_of
from bricks.graph.model import Model
from bricks.measure.jobs import ModelJob

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace


def bricks_job(
    workspace: Workspace, model: Model, *, chosen: frozenset[str] | None = None
) -> ModelJob:
    """The job that measures the bricks of ``model``; with ``chosen``, only these keys."""
    return ModelJob(model, workspace.plans.decompose(model), whole=False, chosen=chosen)


def whole_job(workspace: Workspace, model: Model) -> ModelJob:
    """The job that measures ``model`` and its bricks."""
    decomposition, workers = workspace.plans.decompose(model), workspace.options.workers
    streams: tuple[int, ...] = ()
    if workers > 1:
        streams = streams_of(decomposition.plan, decomposition.bricks, workers)
    return ModelJob(model, decomposition, whole=True, streams=streams, workers=workers)


def isolated_job(workspace: Workspace, brick: Brick | Decomposition) -> ModelJob:
    """The job that measures one brick outside any model; it may be decomposed already."""
    decomposition = brick
    if isinstance(decomposition, Brick):
        cut = str(workspace.granularity)
        decomposition = isolated_decomposition(
            decomposition, cut, surrounding_bytes=surrounding_bytes(decomposition)
        )
    (key,) = decomposition.bricks
    nothing = Model(key, Path(), b"", (), decomposition.plan.digest)
    return ModelJob(nothing, decomposition, whole=False)
