"""A workspace: an open cache and a runtime on this host, with the services that share them.

Studies, analyses and commands get this one object. It knows plans, estimates and campaigns;
questions are functions of it (:mod:`~bricks.session.measuring`,
:mod:`~bricks.session.predicting`). Must not render anything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bricks.session.defaults import CACHE
from bricks.session.estimator import Estimators
from bricks.session.options import Options, Setup
from bricks.session.plans import Plans
from bricks.session.resources import Resources
from bricks.store import Store
from bricks.system import fingerprint

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph

    from bricks.graph.model import Model
    from bricks.measure.campaign_result import Progress
    from bricks.session.campaigns import Campaigns
    from bricks.store import Merged


def silent(what: str, share: float) -> None:
    """Show no progress."""


class Workspace(Resources):
    """The resources of a session and its services; use it as a context manager, or close it.

    ``plans`` decomposes models and knows their plans; ``estimators`` know latencies of all targets.
    """

    def __init__(
        self, store: Store, setup: Setup, progress: Progress = silent, *, shared: bool = False
    ) -> None:
        """Callers want :meth:`open`; unless it is ``shared``, ``store`` is closed together."""
        super().__init__(store, setup, progress, shared=shared)
        self.plans = Plans(self)
        self.estimators = Estimators(self, self.plans)

    @cached_property
    def campaigns(self) -> Campaigns:
        """What measures on the target."""
        from bricks.session.campaigns import Campaigns  # an answer from the cache needs none

        return Campaigns(self, self.plans, self.estimators)

    @classmethod
    def open(
        cls,
        cache: str | Path = CACHE,
        options: Options | None = None,
        *,
        progress: Progress = silent,
    ) -> Self:
        """Open ``cache`` (folder or database URL) with ``options`` on this host.

        Raises :class:`UsageError` for invalid options, and :class:`~bricks.errors.StoreError` for a
        cache that cannot be used.
        """
        setup = Setup.of(options or Options(), fingerprint())
        store = Store.open(cache)
        try:
            return cls(store, setup, progress)
        except BaseException:
            store.close()
            raise

    def with_runtime(self, name: str) -> Self:
        """The same cache and options with the runtime called ``name``, to be closed before this.

        Raises :class:`UsageError` if there is no such runtime or it does not support the options,
        and :class:`~bricks.errors.BackendError` if it is not installed.
        """
        return self.with_options(runtime=name, version=None)

    def with_options(self, progress: Progress | None = None, **changed: Any) -> Self:
        """The same cache with ``changed`` :class:`Options`, to be closed before this.

        Raises as :meth:`with_runtime` does.
        """
        options = replace(self.options, **changed)
        same = options.device == self.options.device
        setup = Setup.of(options, self.target.system if same else fingerprint())
        return type(self)(self.store, setup, progress or self.progress, shared=True)

    def read(self, model: str | Path | onnx.ModelProto | Graph, **fields: Any) -> Model:
        """The model in an ONNX file, of a zoo name, or in memory; see :meth:`bricks.Bench.read`.

        ``fields`` are those of :class:`~bricks.sources.ReadOptions` that differ from this
        workspace's. A model in memory is copied to a file that stays until the workspace is closed.
        """
        from bricks.sources import InMemory, read

        named = isinstance(model, str | Path)
        source = str(model) if named else InMemory(model, self.folder)
        return read(source, self.read_options(**fields))

    def merge(self, results: Path) -> Merged:
        """Import a file that another cache exported: all of it, or nothing.

        Raises :class:`~bricks.errors.StoreError` if the file is damaged or implausible. Later
        predictions may differ from earlier ones.
        """
        from bricks.decompose.identity import mismatch

        merged = self.store.contents.merge(results, mismatch)
        self.estimators.forget()  # they have learned without the imported results
        return merged
