"""Runs whole models in a worker: verified against their bricks, evaluated, profiled, served.

Must not know what a worker does for that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from bricks.measure.protocol.evaluation import EvaluateModel, VerifyModel
from bricks.measure.served import ServedWalk
from bricks.session.jobs import whole_job

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.evaluation import Evaluation
    from bricks.samples.profile import Profile
    from bricks.samples.verification import Verification
    from bricks.session.workspace import Workspace


def verify(workspace: Workspace, model: Model) -> Verification:
    """Chain the model's bricks and compare with the whole model.

    See ``measure/worker/verify``.
    """
    decomposition = workspace.plans.decompose(model)
    workspace.progress(f"verifying {model.name}", 0.0)
    bricks = {key: brick.model for key, brick in decomposition.bricks.items()}
    folder = str(model.folder)
    request = VerifyModel(model.name, folder, model.skeleton, decomposition.plan, bricks)
    return workspace.graphs.ask(model, request)


def evaluate(workspace: Workspace, model: Model, *, repeats: int, **fields: Any) -> Evaluation:
    """Outputs of ``repeats`` runs of ``model``, compared with a reference in double precision.

    ``fields`` are other fields of :class:`~bricks.measure.protocol.evaluation.EvaluateModel`.
    """
    workspace.progress(f"evaluating {model.name}", 0.0)
    return workspace.graphs.ask(model, EvaluateModel(model.skeleton, repeats, **fields))


def profile(workspace: Workspace, model: Model) -> Profile:
    """The runtime's own profile of a run of ``model``: which node ran when.

    The profile is not stored. Raises :class:`~bricks.errors.BricksError` if there is none.
    """
    job = whole_job(workspace, model)
    # ``timing`` ends the worker: memory of other models would count against this one's limit.
    with workspace.timing(), workspace.memory_for([job]):
        workspace.progress(f"profiling {model.name}", 0.0)
        return workspace.graphs.profile(job)


@contextmanager
def served_walk(workspace: Workspace, model: Model) -> Iterator[ServedWalk]:
    """A server, in a worker of its own, that runs the model's bricks in place of the model."""
    decomposition = workspace.plans.decompose(model)
    with closing(workspace.worker()) as worker:
        yield ServedWalk(worker, decomposition, workspace.conditions)
