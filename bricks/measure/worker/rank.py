"""Handles requests to a rank: join others, time collectives and data-parallel steps.

All ranks of a group get the same requests at once. Must not know how ranks were started.
"""

from __future__ import annotations

import gc
import os

from bricks.backends.ranks import (
    Collectives,
    CollectiveTimes,
    Communicator,
    DistributedStep,
    DistributedTrainer,
)
from bricks.errors import WorkerError
from bricks.measure.protocol.ranks import (
    BeginSteps,
    JoinGroup,
    LeaveGroup,
    OpenGroup,
    ReadInterface,
    TimeCollective,
    TimeSteps,
)
from bricks.measure.worker.runtime import WorkerRuntime
from bricks.system.interface import InterfaceFacts, interface_facts


class RankRequests:
    """This process as one of several ranks, with the backend of ``runtime``."""

    def __init__(self, runtime: WorkerRuntime) -> None:
        self._runtime = runtime
        self._group: Collectives | None = None
        self._step: DistributedStep | None = None

    @property
    def _collectives(self) -> Collectives:
        if self._group is None:
            self._group = self._runtime.capable(Communicator).collectives()
        return self._group

    def read_interface(self, request: ReadInterface) -> InterfaceFacts:
        """Read facts about an interface in this process's namespace."""
        return interface_facts(request.name)

    def open_group(self, request: OpenGroup) -> int:
        """Open the rendezvous of a group; its port."""
        return self._collectives.open_store(request.address, request.patience_s)

    def join_group(self, request: JoinGroup) -> None:
        """Join the group; from now on, this process is pinned to its cores."""
        if request.cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, request.cores)
        self._collectives.join(
            request.rank, request.ranks, request.address, request.port, request.interface,
            request.patience_s,
        )  # fmt: skip

    def leave_group(self, request: LeaveGroup) -> None:
        """Leave the group."""
        self._step = None
        self._collectives.leave()
        self._group = None

    def time_collective(self, request: TimeCollective) -> CollectiveTimes:
        """Time a collective; see :class:`Collectives`."""
        return self._collectives.time(
            request.operation, request.num_bytes, request.passes, request.computing
        )

    def begin_steps(self, request: BeginSteps) -> None:
        """Make the program that all ranks train."""
        trainer = self._runtime.capable(DistributedTrainer)
        self._step = None
        gc.collect()
        self._step = trainer.distributed_step(
            request.program,
            synchronised=request.synchronised,
            bucket_cap_mb=request.bucket_cap_mb,
            accumulation=request.accumulation,
        )

    def time_steps(self, request: TimeSteps) -> float:
        """Time steps; seconds of one."""
        if self._step is None:
            raise WorkerError("no data-parallel training was begun")
        return self._step.time(request.steps, request.delay_s)
