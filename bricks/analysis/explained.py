"""Predictions of models with their explanations; plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bricks.compose.estimate import IncompleteEstimate
from bricks.session.machine_peaks import Peaks
from bricks.studies.inference.prediction import SETTING_FACTS, PredictedModel

if TYPE_CHECKING:
    from bricks.analysis.explanation import Explanation, OperatorPart, Part
    from bricks.analysis.gains import Gain
    from bricks.analysis.integer_execution import IntegerExecution

_NOT_MEASURED = Peaks()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedModel(PredictedModel):
    """A prediction with its explanation, and what replacing its operators would gain.

    The explanation is None where there is no prediction, ``integers`` for models in floats too.
    """

    FACTS: ClassVar = (
        *(("parts", "bricks") if fact == ("shares", "bricks") else fact
          for fact in PredictedModel.FACTS if fact not in SETTING_FACTS),
        "fastest_s", "peaks", "operators", "gains", "integers",
    )  # fmt: skip

    explanation: Explanation | None = None
    gains: tuple[Gain, ...] = ()
    integers: IntegerExecution | None = None

    @property
    def LIKE(self) -> type:
        """The class with the JSON facts of this object: incomplete estimates have one more."""
        return IncompleteExplained if isinstance(self.estimate, IncompleteEstimate) else type(self)

    @property
    def parts(self) -> Sequence[Part]:
        """Its bricks, the one that takes longest first."""
        return () if self.explanation is None else self.explanation.parts

    @property
    def operators(self) -> Sequence[OperatorPart]:
        """Its operators, the one that takes longest first."""
        return () if self.explanation is None else self.explanation.operators

    @property
    def peaks(self) -> Peaks:
        """The best rates of the machine."""
        return _NOT_MEASURED if self.explanation is None else self.explanation.peaks

    @property
    def fastest_s(self) -> float | None:
        """The latency with the fastest known implementation of each brick."""
        return None if self.explanation is None else self.explanation.fastest_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteExplained(ExplainedModel):
    """An explained model of which some bricks have no latency."""

    FACTS: ClassVar = (*ExplainedModel.FACTS, ("estimate.measured_s", "measured_s"))
