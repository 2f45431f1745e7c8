"""What a runtime does for portable suites: it describes bricks, and measures them elsewhere.

Imported where nothing of this package is, in Python 3.9 or later. Must not know any runtime.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import onnx

    from bricks.system.accelerator import Accelerator
    from bricks.units.sample import Sample


@dataclass(frozen=True, slots=True)
class SampledRound:
    """Samples of the brick or model ``key``; ``conditions`` as in a record of results."""

    key: str
    samples: Sequence[Sample]
    conditions: Sequence[Any] = (None, None, None)


@dataclass(frozen=True, slots=True)
class HostRuntime:
    """The fields of ``system.target.Runtime`` that this host decides.

    ``accelerator`` runs the calls; None: the processor. ``notes`` are lines for the user.
    """

    version: str
    provider: str
    threads: int
    accelerator: Accelerator | None = None
    notes: tuple[str, ...] = ()


class OutOfMemory(Exception):
    """The device has too little memory for a brick; all that was measured stays."""


class GroupWalk(ABC):
    """A loaded group of bricks: the steps of a walk with their neighbours."""

    @abstractmethod
    def rehearse(self, begun: Callable[[str], None]) -> Mapping[str, str]:
        """Run each step once; ``begun`` gets the key of each brick right before its first run.

        Returns reasons of those that cannot run, by key; the group goes on without them.
        """

    @abstractmethod
    def rounds(self) -> Iterator[SampledRound]:
        """A round of each brick of the group, in each state."""


class Portable(ABC):
    """An optional interface of offers: bricks that are measured where nothing is installed."""

    # The class (``module:class``) that measures there, a :class:`PortableRuntime`; the modules that
    # it needs beyond those that it imports at its top level; further providers that it may find.
    runner: ClassVar[str]
    modules: ClassVar[Sequence[str]] = ()
    providers: ClassVar[Sequence[str]] = ()

    @abstractmethod
    def piece(self, proto: onnx.ModelProto) -> Mapping[str, Any]:
        """Return a brick as JSON; :class:`~bricks.errors.BackendError` if it cannot travel."""

    def instruments(self, chains: Mapping[str, int]) -> Mapping[str, Any]:
        """Return further work for the runner as JSON, such as ``chains`` of so many trivial nodes.

        By default there is none.
        """
        return {}


class PortableRuntime(ABC):
    """A runtime on one ``device``, made with ``threads``."""

    @abstractmethod
    def facts(self) -> HostRuntime:
        """Return its facts on this host."""

    @abstractmethod
    def group(self, group: Mapping[str, Any], pieces: Mapping[str, Any]) -> GroupWalk:
        """Load a group; ``pieces`` are by key, as the runtime wrote them into the suite.

        Raises :class:`OutOfMemory`.
        """

    @abstractmethod
    def real_steps(self, program: Mapping[str, Any], folder: str) -> Iterator[SampledRound]:
        """Run real steps of a program whose code is in ``folder``; raises any exception of it."""

    def probes(self) -> Iterator[SampledRound]:
        """A round of each probe of the cost of calls; by default there are none."""
        return iter(())
