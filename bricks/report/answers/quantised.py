"""Answers about quantised models: how long one takes, next to the model as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.compose.estimate import Estimate
from bricks.report.answers.settings import place_of
from bricks.report.answers.words import source_text, value_text
from bricks.report.tables import number

if TYPE_CHECKING:
    from bricks.studies.inference.prediction import PredictedModel

# More models are compared in a table alone.
_MOST = 3


@dataclass(frozen=True, slots=True)
class QuantisedPair:
    """The estimates of a model as it is, and of the same model ``quantised``."""

    original: PredictedModel
    quantised: PredictedModel

    @property
    def different(self) -> bool:
        """Whether their intervals are apart."""
        one, other = self.original.latency_s, self.quantised.latency_s
        return one.high < other.low or other.high < one.low


def quantised_pairs(known: Sequence[PredictedModel]) -> list[QuantisedPair]:
    """The pairs of a few models; empty for many models, and where either estimate is missing."""
    originals = {of.model: of for of in known if of.setting.quantize is None}
    quantised = [of for of in known if of.setting.quantize is not None]
    if len(quantised) > _MOST or {of.model for of in quantised} != originals.keys():
        return []
    return [QuantisedPair(originals[of.model], of) for of in quantised]


def quantised_text(of: QuantisedPair) -> str:
    """``resnet50 in int8 takes 14.1 ms (±4 %) here with 2 threads, 0.37 of the original's …``."""
    own, other = of.quantised, of.original
    assert isinstance(own.estimate, Estimate), "a pair has estimates"
    place = place_of(replace(own.setting, quantize=None))
    ratio = number(own.latency_s.value / other.latency_s.value)
    times = f"{ratio} of" if of.different else f"which may be as long as ({ratio} of)"
    return (
        f"{own.model} in {own.setting.quantize} takes {value_text(own.latency_s)} {place},"
        f" {times} the original's {value_text(other.latency_s)}:"
        f" {source_text(own.estimate.provenance)}"
    )
