"""The plans of models: from the cache where they are known, else decomposed and stored there.

Here for models of one granularity on one target; plans on other targets are only looked up. Must
not know how bricks are measured.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from bricks import backends
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.errors import CacheDamaged, UsageError, WorkerError
from bricks.graph.form import ModelForm, form_of
from bricks.graph.model import Model
from bricks.graph.view import parse_model
from bricks.measure.graphs import Decomposer
from bricks.session.defaults import PROGRAMS_RUNTIME
from bricks.session.resources import Resources
from bricks.store import Reading
from bricks.system import Target

_logger = logging.getLogger(__name__)


class Plans:
    """Plans of models cut at the granularity of ``resources``, for their target and others.

    Missing ones are made by the worker. Without the option ``keep_plans``, nothing is stored: plans
    are known as long as this object lives.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._known = resources.known
        self._target = resources.target
        self._granularity = resources.granularity
        self._target_saved = False
        self._met: dict[str, Decomposition] = {}  # by digest: commands ask several times
        self._bricks: dict[str, Brick] = {}  # loaded so far: many models share bricks

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks on the target, from the cache if it was decomposed before."""
        found = self._met.get(model.digest)
        if found is None or found.plan.model != model.name:
            found = self._found(model)
            if found is None:
                _logger.info("%s: decomposing it", model.name)
                found = self._cut(model)
                self.keep(found)
            self._met[model.digest] = found
        return found

    def _cut(self, model: Model) -> Decomposition:
        self._resources.progress(f"decomposing {model.name}", 0.0)
        info = self._resources.setup.info
        form = form_of(parse_model(model.skeleton))
        if form is ModelForm.PROGRAMS and backends.offer(info.name).accepts is not form:
            raise WorkerError(
                f"{model.name} is a recorded program, and {info.name} runs ONNX models:"
                f" choose --runtime {PROGRAMS_RUNTIME}"
            )
        return self._resources.graphs.decomposed(model, self._granularity)

    def decomposer(self, among: int) -> Decomposer:
        """A decomposer for such models, with a worker and a thread of its own.

        Memory is divided by ``among``, the number of decomposers. Nothing is put into the cache.
        """
        setup = self._resources.setup
        memory_bytes = setup.memory_bytes // among
        settings = replace(setup.worker_settings, threads=1, memory_bytes=memory_bytes)
        return Decomposer(settings, self._granularity, setup.options.graph_timeout_s)

    def met(self) -> Mapping[str, Decomposition]:
        """All decompositions requested so far, by the digests of their models."""
        return self._met

    def knows(self, model: Model) -> bool:
        """Whether the model's plan is known, here or where the same graph is executed."""
        if model.digest in self._met:
            return True
        return self._alike(model.digest, model.name, self._target) is not None

    def keep(self, decomposition: Decomposition) -> None:
        """Store a decomposition for the target, made here or elsewhere."""
        plan = decomposition.plan
        self._met[plan.digest] = decomposition
        self._bricks |= decomposition.bricks
        _logger.info(
            "%s: decomposed, bricks: %d, places: %d",
            plan.model, len(decomposition.bricks), len(plan.occurrences),
        )  # fmt: skip
        if not self._resources.options.keep_plans:
            return
        self.save_target()
        self._store.plans.save(decomposition, self._target.key)

    def save_target(self) -> None:
        """Store the target before anything that belongs to it."""
        if not self._target_saved:
            self._store.systems.save_target(self._target)
            self._target_saved = True

    def plan(self, model: Model, *, target: Target | None = None) -> Plan:
        """The model's plan on ``target``, by default this one; decomposes it if it isn't known.

        Raises :class:`UsageError` if the model was never decomposed on another target and its
        executed graph depends on that target.
        """
        if target is None or target.key == self._target.key:
            return self.decompose(model).plan
        known = self._alike(model.digest, model.name, target)
        if known is not None:
            return known[0]
        if self._granularity.executed:
            elsewhere = self._elsewhere(model, target)
            if elsewhere is not None:
                return elsewhere
            raise UsageError(
                f"{model.name} was never decomposed on {target.system.name}, whose runtime may"
                " execute another graph: decompose it there, or give --granularity N"
            )
        return self.decompose(model).plan

    def known_plan(self, digest: str, *, target: Target | None = None) -> Plan | None:
        """The plan of the model with this digest, if it is known on ``target``, by default this.

        Nothing is decomposed. The plan has the name that it was made under.
        """
        target = self._target if target is None else target
        known = self._alike(digest, None, target)
        if known is not None:
            return known[0]
        met = self._met.get(digest)
        if met is not None:
            own: Plan | None = met.plan
        else:
            found = self._alike(digest, None, self._target)
            own = None if found is None else found[0]
        if own is None or target.key == self._target.key or not self._granularity.executed:
            return own
        return own if self._executed_on(own, target) else None

    def _elsewhere(self, model: Model, target: Target) -> Plan | None:
        """This host's plan, if a target where the model was never decomposed executes it too."""
        plan = self.decompose(model).plan
        return plan if self._executed_on(plan, target) else None

    def _executed_on(self, plan: Plan, target: Target) -> bool:
        """Whether a plan of this host is that of another target too."""
        # If all of it was measured there as it is executed here, the target measured a private
        # suite.
        settled = len(self._known.measurements.results(target.key, plan.keys)) == len(plan.keys)
        return settled or _executed_alike(plan, self._target, target)

    def bricks(self, plan: Plan) -> Mapping[str, Brick]:
        """The bricks of ``plan``, by key; :class:`CacheDamaged` where the cache lacks one."""
        found = self._bricks_of(plan)
        for key in plan.keys:
            if key not in found:
                raise CacheDamaged(
                    f"the cache lacks {key}, a brick of {plan.model}: run 'bricks cache verify'"
                )
        return found

    def _found(self, model: Model) -> Decomposition | None:
        own = self._load(model.digest, model.name, self._target, self._store)
        known = own or self._alike(model.digest, model.name, self._target)
        if known is None:
            return None
        plan, wall_s = known
        bricks = self._bricks_of(plan)
        if len(bricks) != len(plan.keys):
            return None
        _logger.info("%s: its plan is in the cache, bricks: %d", model.name, len(bricks))
        found = Decomposition(plan, bricks, wall_s)
        if own is None:
            self.keep(found)  # what is measured belongs to a plan in the same cache
        return found

    def _bricks_of(self, plan: Plan) -> dict[str, Brick]:
        """The bricks of ``plan`` that the cache has."""
        missing = [key for key in plan.keys if key not in self._bricks]
        self._bricks |= self._known.plans.load_bricks(missing)
        return {key: self._bricks[key] for key in plan.keys if key in self._bricks}

    def _alike(self, digest: str, name: str | None, target: Target) -> tuple[Plan, float] | None:
        """The model's plan on ``target``, or on one that executes the same graph."""
        for source in (self._store, self._known):  # opening others takes a moment
            found = self._load(digest, name, target, source)
            if found is not None:
                return found
        for other in self._known.systems.targets() if self._granularity.executed else ():
            if other.key != target.key and _may_execute_alike(other, target):
                found = self._load(digest, name, other, self._known)
                if found is not None and _executed_alike(found[0], other, target):
                    return found
        return None

    def _load(
        self, digest: str, name: str | None, target: Target, source: Reading
    ) -> tuple[Plan, float] | None:
        cut = str(self._granularity)
        found = source.plans.load(digest, cut, target.key, name=name)
        if found is not None and found[0].memory.outdated:
            return None  # it is made again
        return found


def _may_execute_alike(one: Target, other: Target) -> bool:
    """Whether some plan of one target may be that of another."""
    mine, theirs = one.runtime, other.runtime
    same_runtime = (mine.backend, mine.version) == (theirs.backend, theirs.version)
    return same_runtime or one.executes_like(other)


def _executed_alike(plan: Plan, one: Target, other: Target) -> bool:
    """Whether the plan of one target is that of another: a recorded program is the same on all."""
    if plan.memory.by_processor:
        return one.executes_like(other)
    return _may_execute_alike(one, other)
