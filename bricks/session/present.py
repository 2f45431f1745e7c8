"""The conditions of this host at the present moment, from a second of its reference kernels.

Must not know what is estimated.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.samples.usual_conditions import UsualConditions
    from bricks.session.workspace import Workspace

# Seconds for which reference kernels are timed.
WATCHED_S = 1.0


def present_conditions(workspace: Workspace, models: Sequence[Model] = ()) -> UsualConditions:
    """The conditions of the next seconds; the host has then been watched for one second more.

    Further copies of a target run the first of ``models`` meanwhile.

    Raises :class:`UsageError` if a device computes, whose conditions reference kernels do not show.
    """
    from bricks.measure.protocol.walking import TimeKernels
    from bricks.measure.timing_lock import timing_lock
    from bricks.samples.usual_conditions import UsualConditions
    from bricks.session.jobs import whole_job
    from bricks.system.host_conditions import mean_conditions

    target = workspace.target
    if target.system.accelerator is not None:
        raise UsageError("--now is for processors: a device has its own conditions")
    # Read before this second is added: answers at other times are as if it had not been asked.
    usual, _ = (
        estimator.history(target).watched
        for estimator in (workspace.estimators.measured, workspace.estimators.known)
    )
    timeout_s = workspace.options.conditions.timeout_s
    lock = timing_lock(lambda message: workspace.progress(message, 0.0))
    job = whole_job(workspace, models[0]) if models and target.runtime.copies > 1 else None
    with (
        lock if workspace.conditions.exclusive else nullcontext(),
        workspace.further_copies.running(job, timeout_s=timeout_s),
    ):
        every = workspace.supervisor.ask_afresh(TimeKernels(WATCHED_S), timeout_s=timeout_s)
    workspace.store.measurements.watch(target.key, every)
    if usual is None:
        mean = mean_conditions(every)
        assert mean is not None, "kernels were timed"
        usual = UsualConditions.assumed(mean)
        workspace.estimators.note_measured(())  # what other hosts measured is scaled by these
    return usual.from_now(every)
