"""Runs whole models in a worker: verified against their bricks, evaluated, profiled, served.

Must not know what a worker does for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from bricks.errors import ModelError
from bricks.measure.protocol.evaluation import EvaluateModel, VerifyModel
from bricks.measure.protocol.whole_models import RunSizes
from bricks.measure.served import ServedWalk
from bricks.session.jobs import whole_job

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.evaluation import Evaluation
    from bricks.samples.profile import Profile
    from bricks.samples.size_changes import SizeChanges
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


def size_changes(workspace: Workspace, models: Sequence[Model]) -> SizeChanges:
    """Runs of one session with open dimensions, in which the sizes of ``models`` take turns.

    ``models`` are one model at several sizes. The runs are not stored. Raises
    :class:`~bricks.errors.BricksError` where no session can take all sizes.
    """
    from bricks.graph.form import ModelForm, form_of
    from bricks.graph.shapes import with_open_sizes
    from bricks.graph.view import parse_model

    first = models[0]
    protos = [parse_model(model.skeleton) for model in models]
    if len({model.digest for model in models}) < 2:
        raise ModelError(f"{first.name}: it has one size, which never changes")
    if form_of(protos[0]) is ModelForm.PROGRAMS:
        raise ModelError(f"{first.name}: a recorded program runs at the size of its record alone")
    if workspace.target.runtime.copies > 1:
        raise ModelError(f"{first.name}: one copy alone changes its size: leave out --copies")
    opened = with_open_sizes(protos, first.name)
    shapes = tuple({name: getattr(t, "shape", ()) for name, t in m.inputs} for m in models)
    request = RunSizes(first.digest, opened.SerializeToString(deterministic=True), shapes)
    jobs = [whole_job(workspace, model) for model in models]
    with workspace.timing(), workspace.memory_for(jobs):
        workspace.progress(f"changing the size of {first.name}", 0.0)
        return workspace.graphs.ask(first, request)


@contextmanager
def served_walk(workspace: Workspace, model: Model) -> Iterator[ServedWalk]:
    """A server, in a worker of its own, that runs the model's bricks in place of the model."""
    decomposition = workspace.plans.decompose(model)
    with closing(workspace.worker()) as worker:
        yield ServedWalk(worker, decomposition, workspace.conditions)
