"""Peak memory of models: predicted from their plans, or measured in a fresh process.

Must not know how memory is predicted or measured.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bricks.compose.memory.peak import PeakMemory, UnknownMemory, peak_memory
from bricks.decompose.plan import Decomposition, Plan
from bricks.errors import StoreError

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.memory_peaks import MemoryPeaks
    from bricks.session.workspace import Workspace
    from bricks.system import Target


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
