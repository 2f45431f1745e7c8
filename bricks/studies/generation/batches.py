"""A decoder that generates in batches of several sizes, on several systems.

All missing bricks are measured in one session. Must not know how a batch is predicted.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.errors import BricksError
from bricks.studies.generation.options import GenerationOptions, LlmOptions
from bricks.studies.generation.result import GenerationFailure, GenerationResult, LlmResult
from bricks.studies.generation.study import GenerationStudy
from bricks.studies.study import Needs, Study, ask, observation_of

if TYPE_CHECKING:
    from bricks.session.workspace import Workspace

# In place of the names of systems.
ALL = "all"


def predict_llm(workspace: Workspace, options: LlmOptions, *, measure: bool = True) -> LlmResult:
    """Predict a decoder that generates as ``options`` say, a row for each batch and system.

    A row that cannot be predicted is a failure among the others; raises its
    :class:`~bricks.errors.BricksError` where no row can. See
    :func:`~bricks.studies.generation.study.predict_generation`.
    """
    return ask(LlmStudy(options, workspace), measure=measure)


class LlmStudy(Study[LlmOptions, LlmResult, LlmResult, LlmResult]):
    """A decoder that makes texts in batches of several sizes."""

    @property
    def observes(self) -> bool:
        """Whether texts are really generated too."""
        return self.options.check

    def needs(self) -> Needs:
        """The bricks of the steps of all batches."""
        needs = [study.needs() for study in self._studies]
        models = {model.digest: model for need in needs for model in need.models}
        return replace(needs[0], models=[*models.values()])

    def predict(self) -> LlmResult:
        """A row for each batch on each system."""
        rows: list[GenerationResult | GenerationFailure] = []
        errors: list[BricksError] = []
        for study in self._studies:
            try:
                rows.append(study.predict())
            except BricksError as error:
                errors.append(error)
                rows.append(_failure(study.options, error))
        if len(errors) == len(rows):
            raise errors[0]
        return LlmResult(self.options.model, self.workspace.target, rows)

    def observe(self) -> Generator[None, LlmResult, LlmResult]:
        """Generate texts of the only batch, before and after the prediction."""
        (study,) = self._studies
        with closing(study.observe()) as observing:
            next(observing)
            prediction = yield
            (row,) = prediction.known
            return replace(prediction, rows=[observation_of(observing, row)])

    def result(self, prediction: LlmResult, observation: LlmResult | None) -> LlmResult:
        """The prediction; after a real run, with its latencies."""
        return prediction if observation is None else observation

    @cached_property
    def _studies(self) -> Sequence[GenerationStudy]:
        options = self.options
        if options.systems is not None and ALL in options.systems:
            options = replace(options, systems=self._systems)
        return [GenerationStudy(each, self.workspace) for each in options.questions]

    @property
    def _systems(self) -> Sequence[str]:
        """The systems that are known with the runtime of the workspace."""
        targets, backend = self.workspace.known.systems.targets(), self.workspace.runtime.backend
        return sorted({each.system.name for each in targets if each.runtime.backend == backend})


def _failure(of: GenerationOptions, error: BricksError) -> GenerationFailure:
    return GenerationFailure(of.model, of.system or "", of.generation.batch, str(error))
