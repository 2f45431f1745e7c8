"""The main path as one object: read, decompose, measure, predict, compare.

Each method of a :class:`Bench` is one call of the session; studies, analyses and further services
take its ``workspace``. Must not render anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.closing import Closing
from bricks.session import measuring, predicting, whole_models
from bricks.session.defaults import CACHE
from bricks.session.options import Options
from bricks.session.workspace import Workspace, silent
from bricks.sources.source import UNQUANTIZED

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph

    from bricks.compose.estimate import Estimate, IncompleteEstimate, WhatIf
    from bricks.decompose.plan import Brick, Decomposition
    from bricks.graph.model import Model
    from bricks.measure.campaign_result import Progress
    from bricks.samples.evaluation import Verification
    from bricks.session.measuring import Measured
    from bricks.store import Store
    from bricks.studies.inference.result import Comparison
    from bricks.system import Target


class Bench(Closing):
    """A cache and a runtime on this host; use it as a context manager, or close it.

    Its worker process starts when a model or brick has to run, and not before.
    """

    def __init__(
        self,
        cache: str | Path = CACHE,
        options: Options | None = None,
        *,
        progress: Progress = silent,
        **changes: Any,
    ) -> None:
        """Open ``cache`` (folder or database URL); ``changes`` are fields of :class:`Options`.

        ``progress`` is called with the current activity and the share of it that is done. Raises
        :class:`UsageError` for invalid options, and :class:`~bricks.errors.StoreError` for a cache
        that cannot be used.
        """
        options = replace(options or Options(), **changes)
        self.workspace = Workspace.open(cache, options, progress=progress)

    def close(self) -> None:
        """End the worker and close the cache."""
        self.workspace.close()

    @property
    def target(self) -> Target:
        """This host and the runtime."""
        return self.workspace.target

    @property
    def store(self) -> Store:
        """The cache."""
        return self.workspace.store

    def read(
        self,
        model: str | Path | onnx.ModelProto | Graph,
        *,
        name: str | None = None,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        values: Mapping[str, Any] | None = None,
        quantize: str = UNQUANTIZED,
    ) -> Model:
        """The model in an ONNX file, of a zoo name, or in memory, with its open dimensions fixed.

        In memory it is an ``onnx.ModelProto``, or a ``Graph`` of onnx-graphsurgeon (the package's
        extra ``graphsurgeon`` brings that library); it is copied to a temporary file that stays
        until the bench is closed, and may be edited further.
        ``name`` overrides the name of its file or graph. ``values`` are the values of inputs that
        cannot be synthetic; see :func:`read_model`, which also lists the errors. With ``quantize``
        ``int8``, the tool of a runtime quantises the model; results say nothing of its accuracy.
        """
        return self.workspace.read(
            model,
            name=name,
            batch=batch,
            shapes=shapes or {},
            values=values or {},
            quantize=quantize,
        )

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks; from the cache if it was decomposed before."""
        return self.workspace.plans.decompose(model)

    def verify(self, model: Model) -> Verification:
        """The difference of the model's chained bricks from the whole model."""
        return whole_models.verify(self.workspace, model)

    def measure(
        self,
        models: Iterable[Model],
        isolated: Iterable[Brick] = (),
        *,
        only: Collection[str] | None = None,
    ) -> Measured:
        """Measure the bricks of ``models`` that are missing in the cache; stored results stay.

        Also measures each brick in ``isolated``, which belong to no known model. If ``only`` is not
        None, it limits the models' bricks to these keys.
        """
        return measuring.measure(self.workspace, models, isolated, only=only)

    def predict(
        self, model: Model, *, measure: bool = True, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The model's latency, recomposed; with ``measure``, missing bricks are measured first.

        Bricks that the effort or the budget leaves out, or that are missing without ``measure``,
        are predicted from the target's measured bricks, if there are enough to learn from;
        otherwise they are gaps. ``target`` is another target of the cache: nothing can be measured
        there. Raises :class:`UsageError` if the model was never decomposed there and its executed
        graph depends on it.
        """
        return predicting.predict(self.workspace, model, measure=measure, target=target)

    def compare(self, models: Iterable[Model]) -> Comparison:
        """Estimates against whole-model runs; missing bricks and models are sampled in turn.

        Whole models are measured once per target and number of workers, so a second comparison runs
        nothing.
        """
        from bricks.studies.inference.study import compare

        return compare(self.workspace, models)

    def what_if(self, model: Model, edited: Model, *, measure: bool = True) -> WhatIf:
        """The latency of ``edited`` next to that of ``model``, and the gain with its interval.

        Errors of bricks that both have cancel out of the gain. :meth:`read` reads a graph that was
        edited in memory. With ``measure``, missing bricks are measured first. Raises
        :class:`~bricks.errors.ModelError` if bricks of either stay without a latency.
        """
        from bricks.analysis.what_if import what_if

        return what_if(self.workspace, model, edited, measure=measure)
