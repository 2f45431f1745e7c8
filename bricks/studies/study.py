"""One question: what has to be measured for it, its prediction, and the real thing observed.

Each package next to this module answers one; :func:`ask` runs any of them in the same order. Must
not know any of them, nor how results are shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.measure.rounds import StopRule
    from bricks.session.workspace import Workspace
    from bricks.system import Target

Options = TypeVar("Options")
Prediction = TypeVar("Prediction")
Observation = TypeVar("Observation")
Result_co = TypeVar("Result_co", bound="Result", covariant=True)

# What a study observes: what precedes its only ``yield`` happens before anything is measured, and
# the ``yield`` gives the prediction that followed from the measurements.
Observing = Generator[None, Prediction, Observation]


class Result(Protocol):
    """The answer to a question: a dataclass, from which table, JSON and page are made."""

    @property
    def errors(self) -> Sequence[str]:
        """A line for each part of the question that has no answer."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What has to be measured before a prediction.

    The bricks of ``models``; ``bricks``, each by itself until ``rule`` is met, by default that of
    the workspace; and whatever ``others`` measure and keep when they are called.
    """

    models: Sequence[Model] = ()
    bricks: Sequence[Brick] = ()
    rule: StopRule | None = None
    others: Sequence[Callable[[], object]] = ()


@dataclass(frozen=True, slots=True)
class Checked:
    """A predicted figure next to the observed one, in the same unit."""

    predicted: Interval
    observed: float

    @property
    def ratio(self) -> float:
        """Predicted over observed."""
        return self.predicted.value / self.observed

    @property
    def error(self) -> float:
        """``|ratio - 1|``."""
        return abs(self.ratio - 1)

    @property
    def inside(self) -> bool:
        """Whether the interval holds what was observed."""
        return self.predicted.holds(self.observed)


def target_asked(workspace: Workspace, system: str | None, target: Target | None = None) -> Target:
    """``target``, or that of the known ``system``; without either, the target of ``workspace``."""
    from bricks.session.targets import target_called

    if target is not None or system is None:
        return target or workspace.target
    return target_called(workspace, system)


class Study(ABC, Generic[Options, Prediction, Observation, Result_co]):
    """A question that is asked with ``options`` of what ``workspace`` has and can measure.

    An instance is asked once, so it may keep what its methods share, such as models that were read.
    Where observing ``times`` nothing, others may time meanwhile.
    """

    times: ClassVar[bool] = True

    def __init__(
        self,
        options: Options,
        workspace: Workspace,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``notice`` is called with lines for whoever waits for the answer."""
        self.options = options
        self.workspace = workspace
        self.notice = notice

    @property
    def target(self) -> Target:
        """What the answer is about: by default, this host with the runtime of the workspace."""
        return self.workspace.target

    @property
    def observes(self) -> bool:
        """Whether the options ask for the real thing."""
        return False

    @abstractmethod
    def needs(self) -> Needs:
        """What has to be measured; refuses with :class:`~bricks.errors.BricksError` what cannot."""

    @abstractmethod
    def predict(self) -> Prediction:
        """The prediction, from what is measured by now. Nothing is run."""

    def observe(self) -> Observing[Prediction, Observation]:
        """Run the real thing, as :data:`Observing` says. Nobody else times on this host meanwhile.

        Raises :class:`~bricks.errors.UsageError` where there is nothing to run.
        """
        raise NotImplementedError(f"{type(self).__name__} observes nothing")

    @abstractmethod
    def result(self, prediction: Prediction, observation: Observation | None) -> Result_co:
        """The answer; ``observation`` is None if the real thing was not run."""


def ask(
    study: Study[Options, Prediction, Observation, Result_co],
    *,
    measure: bool = True,
    check: bool = False,
) -> Result_co:
    """The answer of ``study``; with ``check``, the real thing is run whatever the options say.

    Unless ``measure``, nothing that a prediction needs is measured: what the cache lacks is
    predicted too, or an error.
    """
    if not (check or study.observes):
        return study.result(_predicted(study, measure=measure), None)
    timing = study.workspace.timing if study.times else nullcontext
    with closing(study.observe()) as observing:
        with timing():
            next(observing)
        prediction = _predicted(study, measure=measure)
        with timing():
            observation = _sent(observing, prediction)
    return study.result(prediction, observation)


def _predicted(
    study: Study[Options, Prediction, Observation, Result_co], *, measure: bool
) -> Prediction:
    needs = study.needs()
    if measure:
        _measure(needs, study.workspace)
    return study.predict()


def _measure(needs: Needs, workspace: Workspace) -> None:
    from bricks.session import measuring

    if needs.models:
        measuring.measure(workspace, needs.models)
    if needs.bricks:
        measuring.measure_isolated(workspace, needs.bricks, rule=needs.rule)
    for measure_other in needs.others:
        measure_other()


def _sent(observing: Observing[Prediction, Observation], prediction: Prediction) -> Observation:
    """What is observed after ``prediction``."""
    try:
        observing.send(prediction)
    except StopIteration as end:
        found: Observation = end.value
        return found
    raise RuntimeError("what a study observes has one yield, where it gets the prediction")
