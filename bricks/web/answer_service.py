"""A server's workspace, the thread that uses it, and a cache of finished answers.

Only one thread at a time may use a workspace; requests for finished answers do not wait for it. An
answer depends on the model's digest and on the measurements that are known. Must not know HTTP, nor
how answers are shown.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bricks.analysis.answers import Answer, NoAnswer, answer, answers
from bricks.analysis.explain import ModelPicture, model_picture
from bricks.measure.conditions import Conditions
from bricks.session import agreement, measuring
from bricks.session.targets import runtime_facts
from bricks.session.workspace import Workspace
from bricks.system.names import names_of
from bricks.units.facts import facts
from bricks.web.answers import AnswerRow, LackingRow, fastest_first, row_of
from bricks.web.server_limits import Keep, ServerLimits

if TYPE_CHECKING:
    from bricks.decompose.plan import Decomposition, Plan
    from bricks.graph.model import Model
    from bricks.measure.graphs import Decomposer
    from bricks.session.agreement import Agreement
    from bricks.session.options import Options
    from bricks.system import Target

T = TypeVar("T")

DIGEST = re.compile(r"m1-[0-9a-f]{32}")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ModelAnswers:
    """All answers for a model, the fastest first, and ``pages`` rendered so far.

    ``facts`` are the same as JSON. ``agreements`` are kept verdicts on the runtimes. ``here`` is
    the server's own target. ``made_s`` is in seconds of ``time.monotonic()``; ``pages`` go by
    question.
    """

    plan: Plan
    rows: Sequence[AnswerRow | LackingRow]
    here: Target
    facts: dict[str, Any]
    made_s: float
    agreements: Sequence[Agreement] = ()
    pages: dict[Any, bytes] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class ModelPictures:
    """The parts of a model's latency on a target, and ``pages`` of pictures rendered so far.

    ``among`` are the answers that ``answer`` is one of.
    """

    answer: Answer | NoAnswer
    picture: ModelPicture
    among: ModelAnswers
    pages: dict[Any, bytes] = field(default_factory=dict, compare=False)


class AnswerService:
    """Answers from the measurements in ``cache`` and published ones; opened and closed once.

    With ``measure``, bricks that this host lacks are measured, for ``limits.measure_s`` at most.
    """

    def __init__(
        self, cache: str, options: Options, limits: ServerLimits, keep: Keep, *, measure: bool
    ) -> None:
        self._cache, self._limits, self.keep, self._measure = cache, limits, keep, measure
        self._options = replace(
            options,
            graph_timeout_s=limits.decompose_s,
            keep_plans=keep is not Keep.NOTHING,
            conditions=Conditions(budget_s=limits.measure_s),
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="workspace")
        self._workspace: Workspace | None = None
        self._decomposed = 0
        self._answered: OrderedDict[str, ModelAnswers] = OrderedDict()
        self._pictured: OrderedDict[tuple[str, str], ModelPictures] = OrderedDict()
        self._systems: list[dict[str, Any]] = []
        self._systems_s = 0.0
        self._refresh: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the workspace; raises StoreError for a cache that cannot be used."""
        await self._update_systems()

    async def close(self) -> None:
        """Close the workspace after its current work."""
        if self._refresh is not None:
            self._refresh.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=True)

    def _close(self) -> None:
        if self._workspace is not None:
            self._workspace.close()
            self._workspace = None

    async def _ask(self, question: Callable[[Workspace], T]) -> T:
        """The result of ``question``, which is called with the workspace in its thread."""

        def asked() -> T:
            if self._workspace is None:
                self._workspace = Workspace.open(self._cache, self._options)
            return question(self._workspace)

        return await asyncio.get_running_loop().run_in_executor(self._thread, asked)

    async def decomposer(self) -> Decomposer:
        """A decomposer with a process of its own; close it."""
        return await self._ask(
            lambda workspace: workspace.plans.decomposer(self._limits.decomposers)
        )

    async def knows(self, model: Model) -> bool:
        """Whether the plan of ``model`` is known."""
        return await self._ask(lambda workspace: workspace.plans.knows(model))

    async def add(self, model: Model, decomposition: Decomposition | None) -> None:
        """Keep the decomposition of ``model``, None if its plan was known; measure missing bricks.

        Nothing is measured unless the service measures.
        """

        def keep(workspace: Workspace) -> None:
            if decomposition is not None:
                self._decomposed += 1
                workspace.plans.keep(decomposition)
            if self._measure:
                measuring.measure(workspace, [model])

        await self._ask(keep)
        self._answered.pop(model.digest, None)
        if self._measure:
            self._answered.clear()
            await self._update_systems()

    async def translate(self, model: Model) -> None:
        """Make the plans of a program on known accelerators; see :meth:`Plans.translate`."""
        await self._ask(lambda workspace: workspace.plans.translate(model))

    def keep_model(self, model: Model) -> None:
        """Keep a model without its weights in the folder ``uploads`` of the cache."""
        folder = Path(self._cache) / "uploads"
        folder.mkdir(exist_ok=True)
        part = folder / f"{model.digest}.part"
        part.write_bytes(model.skeleton)
        part.replace(folder / f"{model.digest}.onnx")

    async def answered(self, digest: str) -> ModelAnswers | None:
        """All answers for the model with this digest; None where its plan is not known."""
        answers = self._answered.get(digest)
        if answers is None or time.monotonic() - answers.made_s > self._limits.answer_s:
            if DIGEST.fullmatch(digest) is None:
                return None
            answers = await self._ask(lambda workspace: self._answer(workspace, digest))
            if answers is None:
                return None
            self._answered[digest] = answers
            while len(self._answered) > self._limits.answers:
                self._answered.popitem(last=False)
        self._answered.move_to_end(digest)
        return answers

    def _answer(self, workspace: Workspace, digest: str) -> ModelAnswers | None:
        kept = self._answered.get(digest)  # another request may have made it meanwhile
        if kept is not None and time.monotonic() - kept.made_s <= self._limits.answer_s:
            return kept
        plan = workspace.plans.known_plan(digest)
        target_answers = answers(workspace, digest)
        plan = plan or next((of.plan for of in target_answers if isinstance(of, Answer)), None)
        if plan is None:
            return kept  # where nothing is kept, a fresh workspace knows less than this
        names = names_of([of.target for of in target_answers])
        unsorted = (row_of(workspace, of, names[of.target.key]) for of in target_answers)
        rows = sorted(unsorted, key=fastest_first)
        same = agreement.kept(
            plan.model, digest, [row.target for row in rows if isinstance(row, AnswerRow)]
        )
        facts_of_model = {
            "model": plan.model,
            "digest": digest,
            "granularity": plan.granularity,
            "batch": plan.inferences,
            "nodes": plan.nodes,
            "bricks": len(plan.keys),
            "assumed": list(plan.assumed),
            "answers": [facts(row) for row in rows],
            "agreements": [facts(of) for of in same],
        }
        if self._decomposed >= self._limits.renew_after:
            self._decomposed = 0
            self._close()
        return ModelAnswers(plan, rows, workspace.target, facts_of_model, time.monotonic(), same)

    async def pictured(self, digest: str, target_key: str) -> ModelPictures | None:
        """Where the model's time goes on a target; None where one of them is not known."""
        if DIGEST.fullmatch(digest) is None:
            return None
        answers = await self.answered(digest)
        if answers is None:
            return None
        pictures = self._pictured.get((digest, target_key))
        if pictures is None or pictures.among is not answers:
            pictures = await self._ask(lambda workspace: _picture(workspace, answers, target_key))
            if pictures is None:
                return None
            self._pictured[digest, target_key] = pictures
            while len(self._pictured) > self._limits.answers // 4:
                self._pictured.popitem(last=False)
        return pictures

    async def systems(self) -> list[dict[str, Any]]:
        """All systems, with the targets that something was measured on.

        Where they were looked up long ago, they are again, but nobody waits for that.
        """
        aged = time.monotonic() - self._systems_s > self._limits.answer_s
        if aged and (self._refresh is None or self._refresh.done()):
            self._refresh = asyncio.create_task(self._update_systems())
        return self._systems

    async def _update_systems(self) -> None:
        self._systems = await self._ask(_systems)
        self._systems_s = time.monotonic()


def _picture(workspace: Workspace, answered: ModelAnswers, target_key: str) -> ModelPictures | None:
    for target in workspace.known.systems.targets():
        if target.key == target_key:
            plan = workspace.plans.known_plan(answered.plan.digest, target=target)
            if plan is None:
                return None
            picture = model_picture(workspace, plan, target)
            return ModelPictures(answer(workspace, plan, target), picture, answered)
    return None


def _systems(workspace: Workspace) -> list[dict[str, Any]]:
    targets = [
        target
        for target in workspace.known.systems.targets()
        if workspace.known.measurements.costs(target.key)
    ]
    published = {target.key for target in workspace.published.systems.targets()}
    runtimes = runtime_facts(targets, published)
    systems = {target.system.key: target.system for target in targets}
    return [
        {
            "key": key,
            "name": system.name,
            "identity": dict(system.identity),
            "price_per_hour": system.price_per_hour,
            "published": any(of["published"] for of in runtimes[key]),
            "runtimes": runtimes[key],
        }
        for key, system in systems.items()
    ]
