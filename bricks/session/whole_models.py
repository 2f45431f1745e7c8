"""Runs whole models in a worker: verified against their bricks, evaluated, profiled, served.

Their peak memory is measured so, or predicted from their plans. Must not know what a worker does
for that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from bricks.compose.memory.peak import PeakMemory, UnknownMemory, peak_memory
from bricks.decompose.plan import Decomposition, Plan
from bricks.errors import ModelError, StoreError
from bricks.measure.protocol.models import EvaluateModel, RunSizes, VerifyModel
from bricks.measure.served import ServedWalk
from bricks.session.measuring import whole_job

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.evaluation import Evaluation, Verification
    from bricks.samples.whole_models import MemoryPeaks, Profile, SizeChanges
    from bricks.session.workspace import Workspace
    from bricks.system import Target


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

    ``fields`` are other fields of :class:`~bricks.measure.protocol.models.EvaluateModel`.
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


def predict_memory(
    workspace: Workspace, model: Model, *, target: Target | None = None
) -> PeakMemory | UnknownMemory:
    """The peak memory in bytes of a process that loads and runs ``model``, from its plan.

    Nothing is measured, and no weight is read. ``target`` is another target of the cache; it
    raises :class:`UsageError` as ``predict`` does.
    """
    if target is None or target.key == workspace.target.key:
        return _memory(workspace, workspace.plans.decompose(model), workspace.target)
    return memory_of_plan(workspace, workspace.plans.plan(model, target=target), target=target)


def memory_of_plan(
    workspace: Workspace, plan: Plan, *, target: Target | None = None
) -> PeakMemory | UnknownMemory:
    """The peak memory of ``plan`` on ``target``; see :func:`predict_memory`."""
    target = workspace.target if target is None else target
    try:
        decomposition = Decomposition(plan, workspace.plans.bricks(plan), 0.0)
    except StoreError as error:
        return UnknownMemory(plan.model, str(error))
    return _memory(workspace, decomposition, target)


def _memory(workspace: Workspace, of: Decomposition, target: Target) -> PeakMemory | UnknownMemory:
    return peak_memory(of.plan, of.bricks, target.runtime, workers=workspace.options.workers)


def measure_memory(
    workspace: Workspace, model: Model, *, inline: bool = False, keeps_freed: bool = False
) -> MemoryPeaks:
    """The peak memory of a fresh process that loads ``model`` and runs it a few times.

    Its weights are synthetic, in a file next to the model, or with ``inline`` in the model's own
    file. With ``keeps_freed``, the process keeps freed memory as the C library does by default;
    otherwise it counts what the runtime needs (research/memory.md). The result is not stored.
    Raises :class:`~bricks.errors.WorkerError` where the runtime or the system has no such
    measurement.
    """
    from bricks.measure.graphs import Graphs
    from bricks.measure.supervisor import Freed, Supervisor

    freed = Freed.BY_DEFAULT if keeps_freed else Freed.RETURNED
    workspace.progress(f"measuring the memory of {model.name}", 0.0)
    with Supervisor(replace(workspace.setup.worker_settings, freed=freed)) as fresh:
        graphs = Graphs(fresh, workspace.options.graph_timeout_s)
        return graphs.memory_peaks(model, inline=inline)
