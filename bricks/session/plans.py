"""The plans of models: from the cache if they are known, else decomposed and stored there.

Here for models of one granularity on one target; plans on other targets are only looked up, in the
cache or in published measurements. A plan serves every target whose runtime executes the same
graph. A program that was recorded on a processor is translated to its calls on an accelerator by
its runtime's offer, without running anything. Must not know how bricks are measured.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from bricks import backends
from bricks.backends.base import capability
from bricks.backends.programs import ProgramTranslator
from bricks.decompose.build import build
from bricks.decompose.plan import Brick, Decomposition, Plan
from bricks.errors import BackendError, CacheDamaged, ModelError, UsageError, WorkerError
from bricks.graph.form import ModelForm, form_of, operator_title
from bricks.graph.view import graph_of, parse_model
from bricks.reading.digest import digest
from bricks.session.defaults import PROGRAMS_RUNTIME

if TYPE_CHECKING:
    from bricks.decompose.granularity import Granularity
    from bricks.graph.model import Model
    from bricks.measure.graphs import Decomposer
    from bricks.session.resources import Resources
    from bricks.store import Reading, Store
    from bricks.store.reading import TimedPlan
    from bricks.system import Target

_logger = logging.getLogger(__name__)


class Plans:
    """Plans of models cut at the granularity of ``resources``, for their target and others.

    The worker decomposes models without a known plan. Without the option ``keep_plans``, nothing is
    stored: plans are known as long as this object lives.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._store = resources.store
        self._target = resources.target
        self._granularity = resources.granularity
        self._known = KnownPlans(resources.store, resources.known, resources.granularity)
        self._target_saved = False
        self._own: dict[str, TimedPlan] = {}  # by digest
        self._decompositions: dict[str, Decomposition] = {}  # by digest
        self._translations: dict[str, Decomposition] = {}  # by digest and target
        self._bricks: dict[str, Brick] = {}  # loaded so far: many models share bricks

    @property
    def known(self) -> Iterable[Plan]:
        """The plans of all models that were asked for so far and needed no decomposing."""
        return [plan for plan, _ in self._own.values()]

    @property
    def decompositions(self) -> Mapping[str, Decomposition]:
        """All decompositions requested so far, by the digests of their models."""
        return self._decompositions

    def decompose(self, model: Model) -> Decomposition:
        """The model's plan and bricks on the target, from the cache if it was decomposed before."""
        decomposition = self._decompositions.get(model.digest)
        if decomposition is None or decomposition.plan.model != model.name:
            decomposition = self._cached(model)
            if decomposition is None:
                _logger.info("%s: decomposing it", model.name)
                self._resources.progress(f"decomposing {model.name}", 0.0)
                info = self._resources.setup.info
                form = form_of(parse_model(model.skeleton))
                if form is ModelForm.PROGRAMS and backends.offer(info.name).accepts is not form:
                    raise WorkerError(
                        f"{model.name} is a recorded program, and {info.name} runs ONNX models:"
                        f" choose --runtime {PROGRAMS_RUNTIME}"
                    )
                decomposition = self._resources.graphs.decomposed(model, self._granularity)
                self.keep(decomposition)
            self._decompositions[model.digest] = decomposition
        return decomposition

    def _cached(self, model: Model) -> Decomposition | None:
        own = self._stored(model)
        known = own or self._known.find(model.digest, self._target, model.name)
        if known is None:
            return None
        plan, wall_s = known
        bricks = self.known_bricks(plan)
        if len(bricks) != len(plan.keys):
            return None
        _logger.info("%s: its plan is in the cache, bricks: %d", model.name, len(bricks))
        decomposition = Decomposition(plan, bricks, wall_s)
        if own is None:
            self.keep(decomposition)  # measurements belong to a plan in the same cache
        return decomposition

    def _stored(self, model: Model) -> TimedPlan | None:
        """The user's own plan on the target; its bricks are not loaded."""
        known = self._own.get(model.digest)
        if known is None or known[0].model != model.name:
            known = self._known.stored(model.digest, self._target, model.name)
            if known is not None:
                self._own[model.digest] = known
        return known

    def decomposer(self, among: int) -> Decomposer:
        """A decomposer with a worker of one thread; it stores nothing.

        Memory is divided by ``among``, the number of decomposers.
        """
        from bricks.measure.graphs import Decomposer

        setup = self._resources.setup
        memory_bytes = setup.memory_bytes // among
        settings = replace(setup.worker_settings, threads=1, memory_bytes=memory_bytes)
        return Decomposer(settings, self._granularity, setup.options.graph_timeout_s)

    def knows(self, model: Model) -> bool:
        """Whether the plan of ``model`` on the target is known."""
        if model.digest in self._decompositions:
            return True
        return self._known.find(model.digest, self._target) is not None

    def keep(self, decomposition: Decomposition) -> None:
        """Store a decomposition for the target, made here or elsewhere."""
        plan = decomposition.plan
        self._decompositions[plan.digest] = decomposition
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
            stored = self._stored(model)
            return self.decompose(model).plan if stored is None else stored[0]
        known = self._known.find(model.digest, target, model.name)
        if known is not None:
            return known[0]
        if target.system.accelerator is not None:
            key = f"{model.digest} {target.key}"
            if key not in self._translations:
                self._translations[key] = self._decomposed_on(model, target)
            return self._translations[key].plan
        own = self.decompose(model)
        if not self._known.serves(own.plan, own.bricks, self._target, target):
            raise UsageError(
                f"{model.name} was never decomposed on {target.system.name}, whose runtime may"
                " execute another graph: decompose it there, or give --granularity N"
            )
        return own.plan

    def _decomposed_on(self, model: Model, target: Target) -> Decomposition:
        """A recorded program on an accelerator, where its plan may be known."""
        there, notes = translated(model, target)
        known = self._known.find(there.digest, target, model.name)
        if known is not None:
            plan, wall_s = known
            return Decomposition(plan, self.known_bricks(plan), wall_s)
        made = decomposed(there, notes, self._granularity)
        self._bricks |= made.bricks
        return made

    def translate(self, model: Model) -> None:
        """Make the plans of a recorded program on all known accelerators, where that is possible.

        :meth:`known_plan` then knows them; they are not stored.
        """
        for target in self._resources.known.systems.targets():
            if target.system.accelerator is not None:
                with suppress(ModelError, BackendError, UsageError):  # it has no plan there
                    self._translations[f"{model.digest} {target.key}"] = self._decomposed_on(
                        model, target
                    )

    def known_plan(self, digest: str, *, target: Target | None = None) -> Plan | None:
        """The plan of the model with this digest on ``target``, by default this one, if known.

        Nothing is decomposed. The plan has the name under which the model was decomposed.
        """
        target = self._target if target is None else target
        known = self._known.find(digest, target)
        if known is not None:
            return known[0]
        there = self._translations.get(f"{digest} {target.key}")
        if there is not None:
            return there.plan
        if digest in self._decompositions:
            own = self._decompositions[digest].plan
        elif (found := self._known.find(digest, self._target)) is not None:
            own = found[0]
        else:
            return None
        bricks = self.known_bricks(own)
        return own if self._known.serves(own, bricks, self._target, target) else None

    def know(self, bricks: Mapping[str, Brick]) -> None:
        """Take note of bricks that no model has, such as probes; they are not stored."""
        self._bricks |= bricks

    def bricks(self, plan: Plan) -> Mapping[str, Brick]:
        """The bricks of ``plan``, by key; :class:`CacheDamaged` where the cache lacks one."""
        bricks = self.known_bricks(plan)
        for key in plan.keys:
            if key not in bricks:
                raise CacheDamaged(
                    f"the cache lacks {key}, a brick of {plan.model}: run 'bricks cache verify'"
                )
        return bricks

    def known_bricks(self, plan: Plan) -> dict[str, Brick]:
        """The bricks of ``plan`` that are known, by key."""
        missing = [key for key in plan.keys if key not in self._bricks]
        self._bricks |= self._resources.known.plans.load_bricks(missing)
        return {key: self._bricks[key] for key in plan.keys if key in self._bricks}


class KnownPlans:
    """Plans of models cut at ``granularity``, in ``store`` and in ``known``, which includes it."""

    def __init__(self, store: Store, known: Reading, granularity: Granularity) -> None:
        self._store = store
        self._known = known
        self._granularity = granularity

    def stored(self, digest: str, target: Target, name: str | None) -> TimedPlan | None:
        """The user's own plan of a model on ``target``; see :meth:`find`."""
        return self._load(self._store, digest, target, name)

    def find(self, digest: str, target: Target, name: str | None = None) -> TimedPlan | None:
        """The plan of the model with ``digest`` on ``target``, or None.

        It may be of another target that executes the same graph. ``name`` becomes the plan's
        ``model``; None keeps the name under which the model was decomposed.
        """
        for source in (self._store, self._known):  # opening published files takes a moment
            plan = self._load(source, digest, target, name)
            if plan is not None:
                return plan
        for other in self._known.systems.targets() if self._granularity.executed else ():
            if other.key != target.key and _may_execute_same_graph(other, target):
                plan = self._load(self._known, digest, other, name)
                if plan is not None and _executes_same_graph(plan[0], other, target):
                    return plan
        return None

    def serves(self, plan: Plan, bricks: Mapping[str, Brick], own: Target, target: Target) -> bool:
        """Whether ``plan`` of ``bricks``, which ``own`` executes, is that of ``target`` too."""
        if target.key == own.key or not self._granularity.executed:
            return True
        # A target that has measured all bricks of the plan got them in a private suite.
        results = self._known.measurements.results(target.key, plan.keys)
        return (
            len(results) == len(plan.keys)
            or _executes_same_graph(plan, own, target)
            or (own.executes_like(target, any_vectors=True) and _any_vectors(bricks, own))
        )

    def _load(
        self, source: Reading, digest: str, target: Target, name: str | None
    ) -> TimedPlan | None:
        plan = source.plans.load(digest, str(self._granularity), target.key, name=name)
        if plan is None or plan[0].memory.outdated:
            return None  # it is made again
        if self._granularity.executed and _revised(source, plan[0], target):
            return None
        return plan


def _revised(source: Reading, plan: Plan, target: Target) -> bool:
    """Whether ``plan`` follows an earlier rule of its runtime that was wrong of its operators."""
    name = target.runtime.backend
    own = backends.offer(name) if name in backends.names() else None
    if own is None or plan.rule >= own.rule:
        return False
    return not own.revised.isdisjoint(_operators(source.plans.load_bricks(plan.keys)))


def _operators(bricks: Mapping[str, Brick]) -> set[str]:
    return {operator_title(name) for brick in bricks.values() for name in brick.operators}


def _any_vectors(bricks: Mapping[str, Brick], target: Target) -> bool:
    """Whether the graph of ``bricks`` is that of all widths of vectors."""
    vectorised = backends.offer(target.runtime.backend).vectorised
    return vectorised is not None and vectorised.isdisjoint(_operators(bricks))


def _may_execute_same_graph(one: Target, other: Target) -> bool:
    """Whether some plan of one target may be that of another."""
    mine, theirs = one.runtime, other.runtime
    same_runtime = (mine.backend, mine.version) == (theirs.backend, theirs.version)
    return same_runtime or one.executes_like(other)


def _executes_same_graph(plan: Plan, one: Target, other: Target) -> bool:
    """Whether ``plan`` of one target is that of another; recorded programs are equal on all."""
    if plan.memory.processor_specific:
        return one.executes_like(other)
    return _may_execute_same_graph(one, other)


def translated(model: Model, target: Target) -> tuple[Model, tuple[str, ...]]:
    """``model`` with the calls that it makes on ``target``, and notes on what was assumed.

    Raises :class:`UsageError` for a model that is no recorded program, and :class:`ModelError` for
    calls that no rule translates.
    """
    runtime, proto = target.runtime, parse_model(model.skeleton)
    if form_of(proto) is not ModelForm.PROGRAMS:
        raise UsageError(
            f"{model.name} is an ONNX model, and {target.system.name} was measured with programs of"
            f" {runtime.backend}: give FILE.py:FUNCTION, or a recorded program such as torch_bert"
        )
    return calls_on(runtime.provider, runtime.backend, model)


def calls_on(provider: str, runtime: str, model: Model) -> tuple[Model, tuple[str, ...]]:
    """``model`` with the calls that ``runtime`` makes on ``provider``, and what was assumed.

    Raises :class:`ModelError` for calls that no rule translates.
    """
    translator = capability(backends.offer(runtime), ProgramTranslator, runtime)
    there = translator.calls_on(provider, parse_model(model.skeleton))
    if there.untranslated:
        raise ModelError(
            f"{model.name}: it is not known how {provider} runs {', '.join(there.untranslated)}:"
            " record it on a GPU (--device cuda)"
        )
    skeleton = there.proto.SerializeToString(deterministic=True)
    return replace(model, skeleton=skeleton, digest=digest(there.proto)), there.notes


def decomposed(model: Model, notes: tuple[str, ...], granularity: Granularity) -> Decomposition:
    """A translated ``model`` cut into its calls; its plan has ``notes`` on what was assumed."""
    return build(model, graph_of(parse_model(model.skeleton)), granularity, assumed=notes)
