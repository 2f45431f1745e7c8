"""The order of predicted models, or of the settings of each: the least, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bricks.analysis.ranking import ranked

if TYPE_CHECKING:
    from bricks.studies.inference.prediction import ModelPredictions, PredictedModel

LATENCY, SAMPLE = "latency_s", "sample_s"

# Models in one setting share the errors of how fast their host will be.
COMPARABLE = "comparable_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedOrder:
    """The order of some predictions by a ``quantity``, the least first.

    ``model`` is the model whose settings are compared, ``batch`` the batch that they share; None
    where models are compared, or batches differ. ``order`` has positions among all predictions.
    ``sure`` is the probability that the first is the least; ``decided_share`` the share of all
    pairs whose order is decided.
    """

    model: str | None
    batch: int | None
    quantity: str
    order: tuple[int, ...]
    sure: float
    decided_share: float


def predicted_orders(of: ModelPredictions) -> list[PredictedOrder]:
    """The orders that an answer about several models, or settings of them, is made from."""
    known = [n for n, model in enumerate(of.models) if model.interval is not None]
    if not of.dimensions:
        return [_order(of.models, known, LATENCY, among=COMPARABLE)] if len(known) > 1 else []
    return [
        order
        for name in dict.fromkeys(m.model for m in of.models)
        for order in _of_model(of, name, known)
    ]


def _of_model(of: ModelPredictions, name: str, known: Sequence[int]) -> Iterator[PredictedOrder]:
    cells = [n for n in known if of.models[n].model == name]
    if len(cells) < 2:
        return
    least = min(of.models[n].batch for n in cells)
    yield _order(of.models, [n for n in cells if of.models[n].batch == least], LATENCY, name)
    if "batch" in of.dimensions:
        yield _order(of.models, cells, SAMPLE, name)


def _order(
    models: Sequence[PredictedModel],
    cells: Sequence[int],
    quantity: str,
    name: str | None = None,
    *,
    among: str | None = None,
) -> PredictedOrder:
    ranking = ranked([getattr(models[n], among or quantity) for n in cells])
    batches = {models[n].batch for n in cells}
    return PredictedOrder(
        model=name,
        batch=batches.pop() if len(batches) == 1 else None,
        quantity=quantity,
        order=tuple(cells[n] for n in ranking.order),
        sure=ranking.sure,
        decided_share=ranking.decided_share,
    )
