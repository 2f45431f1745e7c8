"""The protocol of a study: the measurements it needs, its prediction, and a real run to compare.

Each package next to this module is a study; :func:`ask` runs any study in the same order. Other
packages offer studies as entry points of the group ``bricks.studies``; a command is made from the
description in an offer. Must not know any study, nor import the modules that answer it, nor know
how results are shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from bricks.errors import BricksError

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.graph.model import Model
    from bricks.measure.conditions import StopRule
    from bricks.session.workspace import Workspace
    from bricks.system import Target
    from bricks.units.interval import Interval

Options = TypeVar("Options")
Prediction = TypeVar("Prediction")
Observation = TypeVar("Observation")
Result_co = TypeVar("Result_co", bound="Result", covariant=True)

# The real run of a study: the part before its only ``yield`` runs before measurements, the rest
# after them; the ``yield`` returns the prediction.
Observing = Generator[None, Prediction, Observation]

GROUP = "bricks.studies"


class Result(Protocol):
    """The result of a study: a dataclass that table, JSON and page are made from."""

    @property
    def errors(self) -> Sequence[str]:
        """A line for each part of the question without an answer."""


@dataclass(frozen=True, slots=True)
class Needs:
    """Measurements that a prediction needs.

    The bricks of ``models``, until ``model_rule`` is met; ``bricks``, each measured in isolation
    until ``rule`` is met (by default, both are the workspace's rule); and ``others``, functions
    that measure and store when called.
    """

    models: Sequence[Model] = ()
    bricks: Sequence[Brick] = ()
    rule: StopRule | None = None
    others: Sequence[Callable[[], object]] = ()
    model_rule: StopRule | None = None


@dataclass(frozen=True, slots=True)
class Checked:
    """A predicted quantity and the observed one, in the same unit."""

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
        """Whether the interval holds the observed quantity."""
        return self.predicted.holds(self.observed)


def target_asked(workspace: Workspace, system: str | None, target: Target | None = None) -> Target:
    """``target``, or that of the known ``system``; without either, the target of ``workspace``."""
    from bricks.session.targets import target_called

    if target is not None or system is None:
        return target or workspace.target
    return target_called(workspace, system)


class Study(ABC, Generic[Options, Prediction, Observation, Result_co]):
    """A question with ``options``, answered with the measurements and the runtime of ``workspace``.

    An instance is asked once, so it may hold values that its methods share, such as models.
    ``times`` is whether the real run is timed, so that no other process may time on this host.
    """

    times: ClassVar[bool] = True

    def __init__(
        self,
        options: Options,
        workspace: Workspace,
        notice: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``notice`` is called with lines to show to the user while the study runs."""
        self.options = options
        self.workspace = workspace
        self.notice = notice

    @property
    def target(self) -> Target:
        """The target of the answer: by default, this host with the runtime of the workspace."""
        return self.workspace.target

    @property
    def observes(self) -> bool:
        """Whether the options request a real run."""
        return False

    @abstractmethod
    def needs(self) -> Needs:
        """The needed measurements; :class:`~bricks.errors.BricksError` if they are impossible."""

    @abstractmethod
    def predict(self) -> Prediction:
        """The prediction, from stored measurements. Nothing is run."""

    def observe(self) -> Observing[Prediction, Observation]:
        """The real run, as :data:`Observing` describes; no other process times on this host.

        Raises :class:`~bricks.errors.UsageError` for options without a real run.
        """
        raise NotImplementedError(f"{type(self).__name__} observes nothing")

    @abstractmethod
    def result(self, prediction: Prediction, observation: Observation | None) -> Result_co:
        """The result; ``observation`` is None without a real run."""


def ask(
    study: Study[Options, Prediction, Observation, Result_co],
    *,
    measure: bool = True,
    check: bool = False,
) -> Result_co:
    """The result of ``study``; ``check`` requests a real run in addition to the options.

    Unless ``measure``, nothing is measured for the prediction: missing bricks are predicted, or an
    error.
    """
    if not (check or study.observes):
        return study.result(_predicted(study, measure=measure), None)
    timing = study.workspace.timing if study.times else nullcontext
    with closing(study.observe()) as observing:
        with timing():
            next(observing)
        prediction = _predicted(study, measure=measure)
        with timing():
            observation = observation_of(observing, prediction)
    return study.result(prediction, observation)


def _predicted(
    study: Study[Options, Prediction, Observation, Result_co], *, measure: bool
) -> Prediction:
    needs = study.needs()
    if measure:
        if needs.models or needs.bricks:
            from bricks.session import measuring
        if needs.models:
            measuring.measure(study.workspace, needs.models, rule=needs.model_rule)
        if needs.bricks:
            measuring.measure_isolated(study.workspace, needs.bricks, rule=needs.rule)
        for measure_other in needs.others:
            measure_other()
    return study.predict()


def observation_of(
    observing: Observing[Prediction, Observation], prediction: Prediction
) -> Observation:
    """The observation of a real run that receives ``prediction``."""
    try:
        observing.send(prediction)
    except StopIteration as end:
        observation: Observation = end.value
        return observation
    raise RuntimeError("the real run of a study has one yield, which returns the prediction")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """The page of a server that asks a study: its ``path``, and the ``question`` as its title.

    ``fields`` are the titles of the options that the page asks for, by name. A server runs no code
    of its users and reads none of their files, so only options that need neither may be among them.
    ``subjects`` returns the values that the study's argument may have, and ``accepts`` tells of
    others whether they are known too. ``defaults`` are typed values of options, by name, that the
    page starts with.
    """

    path: str
    question: str
    fields: Mapping[str, str]
    subjects: Callable[[], Sequence[str]]
    accepts: Callable[[str], bool] = lambda subject: False
    defaults: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOffer:
    """A study called ``name``, which is the word of its command too.

    ``help`` is whole sentences, the last of which is ``Example: bricks …``; ``options`` is the
    dataclass of its options (see :mod:`bricks.studies.options`), and ``load`` imports the study.
    ``runtime`` is the default one; None: the default of models. ``threads`` computes the default
    number of threads from the options; None: one for each core. ``needs_cache`` is called with the
    options, and is true if they name an entry of an existing cache. With ``checks``, the command
    has an option ``--check``; a study ``of_models`` has a field ``model`` in its options, and takes
    options of granularity, optimisation and effort. ``without`` are names of settings of all
    studies that this one lacks. ``page`` is its page on a server, None for none.
    """

    name: str
    help: str
    options: type
    load: Callable[[], Callable[..., Study[Any, Any, Any, Any]]]
    runtime: str | None = None
    threads: Callable[[Any], int | None] = lambda options: None
    needs_cache: Callable[[Any], bool] = lambda options: False
    checks: bool = False
    of_models: bool = False
    without: frozenset[str] = frozenset()
    page: StudyPage | None = None


def names() -> list[str]:
    """The names of all studies that other packages offer; none is imported."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


def offer(name: str) -> StudyOffer | None:
    """The study ``name`` of another package; None if no package has it.

    A package that cannot be loaded has an offer whose ``load`` raises :class:`BricksError`.
    """
    for entry in entry_points(group=GROUP, name=name):
        try:
            loaded = entry.load()
            if not isinstance(loaded, StudyOffer):
                raise TypeError("it is no StudyOffer")
        except Exception as exc:  # of any kind: it is code of others
            return _broken(entry, exc)
        return loaded
    return None


@dataclass(frozen=True, slots=True)
class _NoOptions:
    """The options of a study that cannot be loaded."""


def _broken(entry: EntryPoint, exc: Exception) -> StudyOffer:
    def load() -> type[Study[Any, Any, Any, Any]]:
        raise BricksError(
            f"study {entry.name!r} ({entry.value}) cannot be loaded ({exc}): repair its package"
        ) from exc

    help_ = f"It cannot be loaded. Example: bricks {entry.name}"
    return StudyOffer(name=entry.name, help=help_, options=_NoOptions, load=load)
