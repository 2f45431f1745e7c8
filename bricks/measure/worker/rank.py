"""Requests to a rank: join others, time collectives and data-parallel steps with them.

All ranks of a group get the same requests at once. Must not know how ranks were started.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from typing import Any

from bricks.backends.base import Backend
from bricks.backends.ranks import Collectives, Communicator, DistributedStep
from bricks.errors import BackendError, WorkerError
from bricks.system.interface import interface_facts

Facts = dict[str, Any]


class RankRequests:
    """Answers requests with what ``backend`` returns."""

    def __init__(self, backend: Callable[[], Backend]) -> None:
        self._backend = backend
        self._group: Collectives | None = None
        self._step: DistributedStep | None = None

    @property
    def _communicator(self) -> Communicator:
        backend: Any = self._backend()
        if not hasattr(backend, "collectives"):
            raise BackendError("this runtime has no collectives: choose torch's")
        communicator: Communicator = backend
        return communicator

    @property
    def _collectives(self) -> Collectives:
        if self._group is None:
            self._group = self._communicator.collectives()
        return self._group

    def do_interface(self, name: str) -> Facts:
        """Facts about an interface, as it is seen from here."""
        return interface_facts(name)

    def do_open_group(self, address: str, patience_s: float) -> Facts:
        """Serve the place where the ranks of a group meet."""
        return {"port": self._collectives.open_store(address, patience_s)}

    def do_join_group(
        self,
        rank: int,
        ranks: int,
        address: str,
        port: int,
        interface: str,
        cores: list[int],
        patience_s: float,
    ) -> Facts:
        """Join the others; from now on, this process stays on ``cores``."""
        if cores and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)
        self._collectives.join(rank, ranks, address, port, interface, patience_s)
        return {}

    def do_leave_group(self) -> Facts:
        """Leave the others."""
        self._step = None
        self._collectives.leave()
        self._group = None
        return {}

    def do_time_collective(
        self, operation: str, num_bytes: int, passes: int, computing: bool
    ) -> Facts:
        """Seconds of a collective, see :class:`Collectives`."""
        return dict(self._collectives.time(operation, num_bytes, passes, computing))

    def do_begin_steps(
        self,
        entry: str,
        folder: str,
        options: dict[str, Any],
        seed: int,
        synchronised: bool,
        bucket_cap_mb: float | None,
        accumulation: int,
    ) -> Facts:
        """Make the program that all ranks train."""
        if not hasattr(self._backend(), "distributed_step"):
            raise BackendError("this runtime has no data-parallel training: choose torch")
        self._step = None
        gc.collect()
        self._step = self._communicator.distributed_step(
            entry, folder, options, seed,
            synchronised=synchronised, bucket_cap_mb=bucket_cap_mb, accumulation=accumulation,
        )  # fmt: skip
        return {}

    def do_time_steps(self, steps: int, delay_s: float) -> Facts:
        """Seconds of a step."""
        return {"step_s": self._begun.time(steps, delay_s)}

    def do_bucket_order(self) -> Facts:
        """The buckets, in the order of their reduction; no step can be timed afterwards."""
        facts = dict(self._begun.facts())
        return {"buckets": list(self._begun.buckets()), **facts}

    @property
    def _begun(self) -> DistributedStep:
        if self._step is None:
            raise WorkerError("no data-parallel training was begun")
        return self._step
