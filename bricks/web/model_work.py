"""The work of a job about a model: read it, decompose it, and add up its latencies.

A model is decomposed in the supervised process of a worker, within its allowances. Must not know
HTTP.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.errors import BricksError, OpenDimensions
from bricks.web.jobs import DECOMPOSING, PREDICTING, READING, Job, JobWorker
from bricks.web.questioned_models import QuestionedModel, QuestionedModels
from bricks.web.server_limits import Keep

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.web.answer_service import AnswerService


@dataclass(slots=True)
class ModelWork:
    """Answers for the model of ``origin``."""

    service: AnswerService
    models: QuestionedModels
    origin: QuestionedModel

    async def __call__(self, job: Job, worker: JobWorker) -> None:
        """Do the work; ``job`` has the digest and the address of the answers then."""
        job.state = READING
        try:
            model = await worker.call(self.origin.read)
        except OpenDimensions:
            self.models.hold(job.id, self.origin)  # until somebody gives the sizes
            raise
        decomposition = None
        if not await self.service.knows(model):
            job.state = DECOMPOSING
            decomposition = await worker.call(lambda: worker.decomposer(model))
        job.state = PREDICTING
        await self.service.add(model, decomposition)
        if self.origin.content is None:  # of the zoo: those of others are read in workers alone
            await self.service.translate(model)
        self._keep(model)
        await self.service.answered(model.digest)
        job.digest, job.address = model.digest, f"/models/{model.digest}"

    def _keep(self, model: Model) -> None:
        """Keep what the server keeps of the model, and its origin for other batches."""
        if self.origin.content is not None and self.service.keep is Keep.MODEL:
            self.service.keep_model(model)
        if self.service.keep is not Keep.NOTHING or self.origin.content is None:
            self.models.hold(model.digest, self.origin)
            self.models.answered(self.origin, model.digest)


def zoo_origin(name: str, batch: int, digest: str) -> QuestionedModel | None:
    """The zoo model ``name`` with this batch; None unless its digest is ``digest``.

    An upload may have the name of a zoo model.
    """
    for origin in (QuestionedModel(name), QuestionedModel(name, batch=batch)):
        try:
            if origin.read().digest == digest:
                return origin
        except BricksError:
            return None
    return None
