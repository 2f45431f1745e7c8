"""The main path as one object: read, decompose, measure, predict, compare.

A :class:`Bench` is a cache, a runtime on this host, and a granularity. It starts a worker process
when a model or brick has to run, and not before. Must not render anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.closing import Closing
from bricks.compose.basis import Basis
from bricks.compose.estimate import Estimate, IncompleteEstimate
from bricks.compose.memory.peak import PeakMemory, UnknownMemory
from bricks.decompose.granularity import Granularity
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.graph.model import Model
from bricks.measure.campaign_result import CampaignResult
from bricks.measure.graphs import Decomposer
from bricks.measure.progress import Progress
from bricks.measure.rounds import StopRule
from bricks.measure.served import ServedWalk
from bricks.measure.supervisor import Supervisor
from bricks.samples.evaluation import Evaluation
from bricks.samples.memory_peaks import MemoryPeaks
from bricks.samples.profile import Profile
from bricks.samples.verification import Verification
from bricks.session import measuring, peak_memory, predicting, whole_models
from bricks.session.defaults import CACHE, PROBE_BRICKS, PROBING_S
from bricks.session.options import Options
from bricks.session.summaries import Measured, Probed
from bricks.session.workspace import Workspace, silent
from bricks.store import Merged, Published, Reading, Store
from bricks.studies.inference.result import Comparison
from bricks.system import Runtime, Target

if TYPE_CHECKING:
    import onnx
    from onnx_graphsurgeon import Graph


class Bench(Closing):
    """A cache and a runtime on this host; use it as a context manager, or close it."""

    def __init__(
        self,
        cache: str | Path = CACHE,
        options: Options | None = None,
        *,
        progress: Progress = silent,
        **changes: Any,
    ) -> None:
        """Open ``cache`` (folder or database URL); ``changes`` are fields of :class:`Options`.

        Raises :class:`UsageError` for invalid options, and :class:`~bricks.errors.StoreError` for a
        cache that cannot be used.
        """
        options = replace(options or Options(), **changes)
        self.workspace = Workspace.open(cache, options, progress=progress)

    def close(self) -> None:
        """End the worker and close the cache."""
        self.workspace.close()

    @property
    def options(self) -> Options:
        """The options that the bench follows."""
        return self.workspace.options

    @property
    def target(self) -> Target:
        """This host and the runtime."""
        return self.workspace.target

    @property
    def runtime(self) -> Runtime:
        """The runtime."""
        return self.workspace.runtime

    @property
    def store(self) -> Store:
        """The cache."""
        return self.workspace.store

    @property
    def known(self) -> Reading:
        """The cache and the published measurements."""
        return self.workspace.known

    @property
    def published(self) -> Published:
        """The published measurements."""
        return self.workspace.published

    @property
    def granularity(self) -> Granularity:
        """How models are cut."""
        return self.workspace.granularity

    @property
    def progress(self) -> Progress:
        """Called with the current activity and the share of it that is done."""
        return self.workspace.progress

    def read(
        self,
        model: str | Path | onnx.ModelProto | Graph,
        *,
        name: str | None = None,
        batch: int | None = None,
        shapes: Mapping[str, Sequence[int | None]] | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> Model:
        """The model in an ONNX file, of a zoo name, or in memory; see :meth:`Workspace.read`."""
        return self.workspace.read(model, name=name, batch=batch, shapes=shapes, values=values)

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks; from the cache if it was decomposed before."""
        return self.workspace.plans.decompose(model)

    def knows(self, model: Model) -> bool:
        """See :meth:`Plans.knows`."""
        return self.workspace.plans.knows(model)

    def decomposer(self, among: int) -> Decomposer:
        """See :meth:`Plans.decomposer`."""
        return self.workspace.plans.decomposer(among)

    def keep(self, decomposition: Decomposition) -> None:
        """See :meth:`Plans.keep`."""
        self.workspace.plans.keep(decomposition)

    def plan(self, model: Model, *, target: Target | None = None) -> Plan:
        """See :meth:`Plans.plan`."""
        return self.workspace.plans.plan(model, target=target)

    def known_plan(self, digest: str, *, target: Target | None = None) -> Plan | None:
        """See :meth:`Plans.known_plan`."""
        return self.workspace.plans.known_plan(digest, target=target)

    def bricks(self, plan: Plan) -> Mapping[str, Brick]:
        """See :meth:`Plans.bricks`."""
        return self.workspace.plans.bricks(plan)

    def verify(self, model: Model) -> Verification:
        """Chain the model's bricks and compare with the whole model.

        See ``measure/worker/verify``.
        """
        return whole_models.verify(self.workspace, model)

    def evaluate(self, model: Model, *, repeats: int, **fields: Any) -> Evaluation:
        """See :func:`whole_models.evaluate`."""
        return whole_models.evaluate(self.workspace, model, repeats=repeats, **fields)

    def measure(
        self,
        models: Iterable[Model],
        alone: Iterable[Brick] = (),
        *,
        only: Collection[str] | None = None,
    ) -> Measured:
        """Measure the bricks of ``models`` that are missing in the cache; stored results stay.

        Also measures each brick in ``alone``, which belong to no known model. If ``only`` is not
        None, it limits the models' bricks to these keys.
        """
        return measuring.measure(self.workspace, models, alone, only=only)

    def probe(
        self, models: Iterable[Model], *, bricks: int = PROBE_BRICKS, budget_s: float = PROBING_S
    ) -> Probed:
        """Measure the few ``bricks`` that tell most about this target; see :func:`probe`."""
        from bricks.session.probing import probe

        return probe(self.workspace, models, bricks=bricks, budget_s=budget_s)

    def measure_alone(
        self, bricks: Iterable[Brick | Decomposition], *, rule: StopRule | None = None
    ) -> CampaignResult:
        """See :func:`measuring.measure_isolated`."""
        return measuring.measure_isolated(self.workspace, bricks, rule=rule)

    def run(self, models: Iterable[Model]) -> CampaignResult:
        """Measure whole ``models`` and none of their bricks: the baseline for comparisons."""
        return measuring.measure_whole(self.workspace, models)

    def predict(
        self, model: Model, *, measure: bool = True, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """The model's latency, recomposed; with ``measure``, missing bricks are measured first.

        See :func:`predicting.predict`.
        """
        return predicting.predict(self.workspace, model, measure=measure, target=target)

    def basis(self, model: Model, *, measure: bool = True, target: Target | None = None) -> Basis:
        """The inputs of the estimate of :meth:`predict`."""
        return predicting.basis(self.workspace, model, measure=measure, target=target)

    def predict_plan(
        self, plan: Plan, *, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """See :func:`predicting.predict_plan`."""
        return predicting.predict_plan(self.workspace, plan, target=target)

    def recomposed(
        self, plan: Plan, *, target: Target | None = None
    ) -> Estimate | IncompleteEstimate:
        """See :func:`predicting.recomposed`."""
        return predicting.recomposed(self.workspace, plan, target=target)

    def predict_memory(
        self, model: Model, *, target: Target | None = None
    ) -> PeakMemory | UnknownMemory:
        """The peak memory of a process that loads and runs ``model``, from its plan alone."""
        return peak_memory.predict_memory(self.workspace, model, target=target)

    def recomposed_memory(
        self, plan: Plan, *, target: Target | None = None
    ) -> PeakMemory | UnknownMemory:
        """See :func:`peak_memory.memory_of_plan`."""
        return peak_memory.memory_of_plan(self.workspace, plan, target=target)

    def measure_memory(
        self, model: Model, *, inline: bool = False, keeps_freed: bool = False
    ) -> MemoryPeaks:
        """The peak memory of a fresh process that runs ``model`` a few times."""
        return peak_memory.measure_memory(
            self.workspace, model, inline=inline, keeps_freed=keeps_freed
        )

    def profile(self, model: Model) -> Profile:
        """The runtime's own profile of a run of ``model``: which node ran when."""
        return whole_models.profile(self.workspace, model)

    def worker(self) -> Supervisor:
        """See :meth:`Workspace.worker`."""
        return self.workspace.worker()

    @contextmanager
    def served_walk(self, model: Model) -> Iterator[ServedWalk]:
        """See :func:`whole_models.served_walk`."""
        with whole_models.served_walk(self.workspace, model) as walk:
            yield walk

    @contextmanager
    def timing(self) -> Iterator[None]:
        """See :meth:`Workspace.timing`."""
        with self.workspace.timing():
            yield

    def merge(self, results: Path) -> Merged:
        """Import a file that another cache exported: all of it, or nothing."""
        return self.workspace.merge(results)

    def compare(self, models: Iterable[Model]) -> Comparison:
        """Estimates against whole-model runs; missing bricks and models are sampled in turn."""
        from bricks.studies.inference.study import compare

        return compare(self.workspace, models)
