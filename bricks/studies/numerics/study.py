"""Studies of operators and networks over several runtimes: accuracy, and latency of operators.

All results are observed in real runs: latencies of operators are estimates from bricks, but
runtimes take turns with measurements. Must not know how results are shown.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

from bricks.errors import BackendError, BricksError, UsageError
from bricks.session.targets import target_called
from bricks.sources import Unread
from bricks.studies.numerics.comparison import compare_operators
from bricks.studies.numerics.networks import compare_networks
from bricks.studies.numerics.operators import DEEPBENCH, TOP, ZOO, ZooSource, operators_named
from bricks.studies.numerics.results import MissingRuntime, NetworkComparison, OperatorComparison
from bricks.studies.study import Needs, Study

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace
    from bricks.studies.numerics.operators import OperatorCase


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorComparisonOptions:
    """The operators that ``what`` names, each evaluated ``repeats`` times by each of ``runtimes``.

    Words are arguments of :func:`~bricks.studies.numerics.operators.operators_named`. The zoo's
    list has the ``top`` costliest bricks by measurements of the known ``system``; None: of this
    host, or of a published system.
    """

    runtimes: Sequence[str]
    what: Sequence[str] = (DEEPBENCH,)
    system: str | None = None
    top: int = TOP
    repeats: int = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkComparisonOptions:
    """The ``models``, each evaluated ``repeats`` times by each of ``runtimes``.

    ``tolerance`` is the greatest difference of a value that is no error, relative to its greatest
    magnitude; None: the tolerance of its type.
    """

    models: Sequence[Model | Unread]
    runtimes: Sequence[str]
    repeats: int = 3
    tolerance: float | None = None


Options = TypeVar("Options", OperatorComparisonOptions, NetworkComparisonOptions)
Compared = TypeVar("Compared", OperatorComparison, NetworkComparison)


@contextmanager
def open_runtimes(
    workspace: Workspace, runtimes: Sequence[str]
) -> Iterator[tuple[list[Workspace], tuple[MissingRuntime, ...]]]:
    """Open ``workspace`` with each of ``runtimes``, in order; its own is not opened again.

    Those that are not installed are missing.
    """
    workspaces, missing = [], []
    with ExitStack() as further:
        for name in dict.fromkeys(runtimes):
            if name == workspace.runtime.backend:
                workspaces.append(workspace)
                continue
            try:
                workspaces.append(further.enter_context(workspace.with_runtime(name)))
            except BackendError as error:
                missing.append(MissingRuntime(name, str(error)))
        yield workspaces, tuple(missing)


class RuntimesStudy(Study[Options, None, Compared, Compared]):
    """A comparison of the runtimes in the options, on the host of the workspace.

    Only bricks are timed, as in any campaign: so other processes may time in between.
    """

    times: ClassVar[bool] = False

    @property
    def observes(self) -> bool:
        """Always, since all results are observed."""
        return True

    def needs(self) -> Needs:
        """Nothing: bricks are measured in turn with evaluations."""
        return Needs()

    def predict(self) -> None:
        """Nothing."""

    def observe(self) -> Generator[None, None, Compared]:
        """Evaluate everything with all runtimes that are installed."""
        yield
        with open_runtimes(self.workspace, self.options.runtimes) as (workspaces, missing):
            return replace(self._compared(workspaces), missing=missing)

    @abstractmethod
    def _compared(self, workspaces: Sequence[Workspace]) -> Compared:
        """The comparison over the runtimes of ``workspaces``."""

    def result(self, prediction: None, observation: Compared | None) -> Compared:
        """The observed comparison."""
        assert observation is not None, "it is always observed"
        return observation


class OperatorStudy(RuntimesStudy[OperatorComparisonOptions, OperatorComparison]):
    """Operators over runtimes: latency, rates relative to the peaks, and accuracy."""

    def _compared(self, workspaces: Sequence[Workspace]) -> OperatorComparison:
        # Each of the named operators once.
        zoo = self._zoo() if ZOO in self.options.what else None
        named: dict[str, OperatorCase] = {}
        unread: list[str] = []
        for word in self.options.what:
            try:
                named |= {operator.name: operator for operator in operators_named(word, zoo)}
            except UsageError:
                raise
            except BricksError as error:
                unread.append(str(error))
        if not named:
            return OperatorComparison(self.target.system, (), (), unread=tuple(unread))
        comparison = compare_operators(named.values(), workspaces, repeats=self.options.repeats)
        return replace(comparison, unread=tuple(unread))

    def _zoo(self) -> ZooSource | None:
        """The measurements of the zoo: of the named system, this host, or a published system."""
        workspace, options = self.workspace, self.options
        cut, known = str(workspace.granularity), workspace.known
        if options.system is not None:
            named = target_called(workspace, options.system)
            return ZooSource(known, named, cut, options.top)
        every = {target.key: target for target in known.systems.targets()}
        here = filter(None, [every.get(workspace.target.key)])
        for target in (*here, *workspace.published.systems.targets()):
            if known.plans.usage(target.key, cut):
                return ZooSource(known, target, cut, options.top)
        return None


class NetworkStudy(RuntimesStudy[NetworkComparisonOptions, NetworkComparison]):
    """The accuracy of whole models over runtimes, and the first operator where it is lost."""

    def _compared(self, workspaces: Sequence[Workspace]) -> NetworkComparison:
        options = self.options
        results = compare_networks(
            [model for model in options.models if not isinstance(model, Unread)],
            workspaces,
            repeats=options.repeats,
            tolerance=options.tolerance,
        )
        return NetworkComparison(
            self.target.system,
            tuple(workspace.runtime for workspace in workspaces),
            tuple(results),
            unread=tuple(model.error for model in options.models if isinstance(model, Unread)),
        )
