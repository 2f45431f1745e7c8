"""All inputs of a model's estimate. Plain data."""

from __future__ import annotations

from dataclasses import dataclass, field

from bricks.compose.parts import Parts, Results, state_of
from bricks.compose.schedule import Construction
from bricks.decompose.plan import Plan
from bricks.predict.prediction import Predictions
from bricks.samples.state_model import StateModel

# The cost of a call in a walk, relative to the probes, which run again and again and so find the
# runtime's code and data cached. So do light bricks, which are run once before each sample; heavy
# ones do not. Chosen on one half of the zoo's families; benchmarks/accuracy.py reports the best
# factor for all families but one, and estimates without the factor.
IN_WALK_CALL_FACTOR = 1.0


@dataclass(frozen=True, slots=True)
class Basis:
    """What an estimate of ``plan`` is made from: ``results`` by key, the probes' among them.

    The estimate is for the machine state ``state_s``; if None, for the state in which most is
    known. A brick that was not measured in that state counts with its latency in another state,
    corrected as ``states`` says (see :mod:`bricks.samples.state_model`), or if None, by what
    ``plan``'s own bricks show. A brick that was never measured counts with its latency in
    ``predictions``; one with a prior there, with that and its measurement; one that failed is a
    gap, unless it is unmeasurable and predicted. ``construction`` says how occurrences run in
    parallel; if None, they run one after another. ``in_walk_call_factor`` times the probes' call
    cost is subtracted from each brick.
    """

    plan: Plan
    results: Results
    state_s: float | None = None
    predictions: Predictions = field(default_factory=Predictions)
    states: StateModel | None = None
    construction: Construction | None = None
    in_walk_call_factor: float = IN_WALK_CALL_FACTOR

    @property
    def parts(self) -> Parts:
        """The measured and the predicted bricks."""
        return Parts.of(self.plan, self.results, self.predictions)

    @property
    def state(self) -> float | None:
        """The machine state of the estimate."""
        if self.state_s is not None:
            return self.state_s
        return state_of(self.plan, self.results, predictions=self.predictions)
