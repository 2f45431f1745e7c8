"""The resources of a workspace: an open cache, published data, and a worker of a runtime here.

Here below the services of a workspace, which share them. Must not know what any service does.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.closing import Closing
from bricks.store import Published, Reading, Store, Union
from bricks.store.published_index import NO_FOLDER

if TYPE_CHECKING:
    from bricks.decompose.granularity import Granularity
    from bricks.measure.campaign_result import Progress
    from bricks.measure.conditions import Conditions
    from bricks.measure.further_copies import FurtherCopies
    from bricks.measure.graphs import Graphs
    from bricks.measure.jobs import ModelJob
    from bricks.measure.supervisor import Supervisor
    from bricks.session.options import Options, Setup
    from bricks.sources import ReadOptions
    from bricks.system import Runtime, Target

_logger = logging.getLogger(__name__)


class Resources(Closing):
    """The open cache, published data and worker of a workspace; a context manager.

    ``store`` is the user's cache, ``published`` the measurements that ship, and ``known`` both read
    as one. ``supervisor`` owns the worker, which starts when a model or brick has to run, and not
    before; ``graphs`` asks it about models. ``progress`` is called with the current activity and
    the share of it that is done. A ``shared`` store is not closed with these resources.
    """

    def __init__(
        self, store: Store, setup: Setup, progress: Progress, *, shared: bool = False
    ) -> None:
        self.setup = setup.named(store.systems.named(setup.target.system))
        self.progress = progress
        self.store = store
        self.published = Published() if setup.options.published else Published(NO_FOLDER)
        self.known: Reading = Union(store, self.published)
        self._opened = ExitStack()
        if not shared:
            self._opened.callback(store.close)
        _logger.info("the cache is %s", store.path)
        _logger.info(
            "the target is %s with %s %s, threads: %d",
            self.target.system.name, setup.info.name, setup.info.version, self.runtime.threads,
        )  # fmt: skip

    def close(self) -> None:
        """End the worker and close the cache."""
        self._opened.close()

    @cached_property
    def supervisor(self) -> Supervisor:
        """The owner of the worker."""
        from bricks.measure.supervisor import Supervisor  # an answer from the cache needs none

        supervisor = Supervisor(self.setup.worker_settings)
        self._opened.callback(supervisor.close)
        return supervisor

    @cached_property
    def further_copies(self) -> FurtherCopies:
        """Workers that run further copies of a model while bricks of one copy are timed."""
        from bricks.measure.further_copies import FurtherCopies

        copies = FurtherCopies([self.worker() for _ in range(self.runtime.copies - 1)])
        self._opened.callback(copies.close)
        return copies

    @cached_property
    def graphs(self) -> Graphs:
        """What the worker says about models."""
        from bricks.measure.graphs import Graphs

        return Graphs(self.supervisor, self.options.graph_timeout_s)

    @property
    def options(self) -> Options:
        """The options of the session."""
        return self.setup.options

    @property
    def target(self) -> Target:
        """This host and the runtime, under the name that the cache knows the host by."""
        return self.setup.target

    @property
    def runtime(self) -> Runtime:
        """The runtime of the target."""
        return self.setup.target.runtime

    @property
    def granularity(self) -> Granularity:
        """The granularity at which models are cut."""
        return self.setup.granularity

    @property
    def conditions(self) -> Conditions:
        """The measuring conditions of bricks."""
        return self.setup.conditions

    def read_options(self, **fields: Any) -> ReadOptions:
        """The options to read models with; ``fields`` override those of :class:`ReadOptions`."""
        from bricks.sources import ReadOptions

        return ReadOptions(
            granularity=self.options.granularity,
            runtime=self.runtime.backend,
            threads=self.runtime.threads,
            device=self.options.device,
            python=self.options.python,
            seed=self.options.seed,
            **fields,
        )

    def earns_intervals(self, target: Target) -> bool:
        """Whether ``target`` is one whose runs of whole models show how far estimates are off."""
        return (
            target.key == self.target.key
            and self.setup.info.timed
            and self.options.workers == 1
            and target.system.accelerator is None
        )

    def whole_runs(self) -> list[str]:
        """The digests of the whole models that this host has run, in order."""
        costs = self.store.measurements.costs(self.target.key)
        return [key for key in costs if key.startswith("m1-") and "-w" not in key]

    def worker(self) -> Supervisor:
        """A further worker of the runtime, for work other than bricks and models."""
        from bricks.measure.supervisor import Supervisor

        return Supervisor(self.setup.worker_settings)

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Exclude other timing by this user on this host; the worker's process is ended first."""
        from bricks.measure.timing_lock import timing_lock

        self.supervisor.reset()  # its threads and memory would be in the way
        lock = timing_lock(lambda message: self.progress(message, 0.0))
        with lock if self.conditions.exclusive else nullcontext():
            yield

    def memory_for(self, jobs: Sequence[ModelJob]) -> AbstractContextManager[None]:
        """The memory limit of the worker for measuring ``jobs``."""
        if self.options.memory_bytes is not None or not self.setup.info.bounded_memory:
            return nullcontext()
        from bricks.measure.jobs import memory_bytes

        return self.supervisor.memory_limited(memory_bytes(jobs, self.conditions.max_weight_bytes))

    def folder(self) -> Path:
        """A new folder that exists until these resources are closed."""
        folder = tempfile.TemporaryDirectory(prefix="bricks-model-", ignore_cleanup_errors=True)
        self._opened.callback(folder.cleanup)
        return Path(folder.name)
