"""The inputs of a model's estimate: plan, results, predictions and construction. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bricks.compose.parts import Parts, Results
from bricks.predict.prediction import BrickPredictions
from bricks.samples.correction import Correction

if TYPE_CHECKING:
    from bricks.compose.device.basis import DeviceBasis
    from bricks.compose.own_runs import OwnRuns
    from bricks.compose.schedule import Construction
    from bricks.decompose.plan import Plan
    from bricks.samples.sensitivity import Sensitivities
    from bricks.samples.usual_conditions import UsualConditions

# The cost of a call in a walk, relative to the probes, which run repeatedly and so find the
# runtime's code and data cached. Light bricks do too, since they run once before each sample; heavy
# bricks do not. Chosen on one half of the zoo's families; benchmarks/accuracy.py reports the best
# factor for all families but one, and estimates without the factor.
IN_WALK_CALL_FACTOR = 1.0


@dataclass(frozen=True, slots=True)
class Basis:
    """The inputs of an estimate of ``plan``; ``results`` hold bricks and probes by key.

    The estimate is for the ``conditions`` of the host, to which latencies are corrected by the
    ``sensitivities`` of bricks; without either, latencies count as they were measured. An
    unmeasured brick counts with its latency in ``predictions``, a
    measured one with a prior there with the posterior of both; a brick whose measurement failed is
    a gap, unless it is unmeasurable and predicted. ``own_runs`` are whole models that the host ran,
    which show its error of recomposition; None: it is as usual. ``construction`` says how
    occurrences run in parallel; if None, they run one after another. ``in_walk_call_factor`` times
    the call cost of the probes is subtracted from each brick. ``device`` are further inputs about
    a known accelerator.
    """

    plan: Plan
    results: Results
    predictions: BrickPredictions = field(default_factory=BrickPredictions)
    conditions: UsualConditions | None = None
    sensitivities: Sensitivities | None = None
    own_runs: OwnRuns | None = None
    construction: Construction | None = None
    device: DeviceBasis | None = None
    in_walk_call_factor: float = IN_WALK_CALL_FACTOR

    @property
    def parts(self) -> Parts:
        """The measured and the predicted bricks."""
        return Parts.of(self.plan, self.results, self.predictions)

    @property
    def correction(self) -> Correction:
        """The correction to the conditions, as the rounds of measured bricks teach it."""
        return Correction(self.sensitivities, self.conditions, self.parts.measured.values())
