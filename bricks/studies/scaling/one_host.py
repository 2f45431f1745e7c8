"""Times of ranks that share one host: their bricks are measured while as many copies run at once.

Must not know networks, nor how steps on several ranks are simulated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.errors import BricksError
from bricks.studies.scaling.copies import copy_bricks, ddp_bricks
from bricks.studies.scaling.scaling import RankTimes
from bricks.studies.scaling.steps import RankModels, copy_rule, copy_times, rank_step

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class RanksOfHost:
    """Each number of ``ranks`` on the host of ``target``, with the ``models`` of their steps.

    ``whole`` is the batch of one rank by itself; ranks divide it if ``strong``. As many ranks run
    at once as have cores of their own: where there are more, they take turns.
    """

    target: Target
    models: RankModels
    ranks: Sequence[int]
    strong: bool

    def copies(self, ranks: int) -> int:
        """The number of ``ranks`` that run at the same time."""
        return max(1, min(ranks, int(self.target.system.processors // self.target.runtime.threads)))

    def measure(self, workspace: Workspace) -> None:
        """Measure missing bricks of ranks that run at once, on the host of ``workspace``."""
        from bricks.session import measuring

        for copies, models in self._models_by_copies().items():
            threads = self.target.runtime.threads
            with workspace.with_options(copies=copies, threads=threads) as shared:
                measuring.measure(shared, models)
                bricks = [*copy_bricks(), *ddp_bricks()]
                measuring.measure_isolated(shared, bricks, rule=copy_rule(shared))

    def times(
        self, workspace: Workspace, whole: int
    ) -> tuple[Mapping[int, RankTimes], Mapping[int, str]]:
        """Times of a rank by the number of ranks, and why others have none.

        ``whole`` is the number of samples of one rank by itself. From stored measurements.
        """
        times, problems = dict[int, RankTimes](), dict[int, str]()
        for ranks, model, copies in self._several():
            runtime = replace(self.target.runtime, copies=copies)
            target = replace(self.target, runtime=runtime)
            share = whole // ranks if self.strong else whole
            try:
                step = rank_step(workspace, model, target, share)
                times[ranks] = RankTimes(step, copy_times(workspace, target))
            except BricksError as error:
                problems[ranks] = f"{copies} ranks at once: {error}"
        return times, problems

    def _several(self) -> Iterator[tuple[int, Model, int]]:
        """Numbers of ranks of which several run at once, with a rank's model and how many."""
        for ranks in self.ranks:
            copies, whole = self.copies(ranks), self.models.whole
            share = whole if whole is None or not self.strong else whole // ranks
            if copies > 1 and ranks not in self.models.problems:
                yield ranks, self.models.models[share], copies

    def _models_by_copies(self) -> Mapping[int, Sequence[Model]]:
        by_copies: dict[int, list[Model]] = {}
        for _, model, copies in self._several():
            models = by_copies.setdefault(copies, [])
            if model not in models:
                models.append(model)
        return by_copies
