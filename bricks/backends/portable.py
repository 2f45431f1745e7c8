"""What a runtime does for portable suites: it describes bricks, and measures them elsewhere.

There bricks are steps of walks: in order, warmed up, sampled, and observed. Imported where nothing
of this package is, in Python 3.9 or later. Must not know any runtime.
"""

from __future__ import annotations

import gc
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.errors import first_line
from bricks.system.accelerator import Accelerator, AcceleratorState, joined
from bricks.system.fingerprint import ROOT
from bricks.system.load import ProcessorWait
from bricks.system.processor import read_processor
from bricks.units.sample import Sample, weighted_mean

if TYPE_CHECKING:
    import onnx

    from bricks.backends.heating import StateReader

# Passes before the timed ones, unless they take so long.
_WARM_UPS, _ENOUGH_S = 10, 0.03
# Samples of a round.
_PASSES = 2
# Runs of the reference workload, the first of them to wake threads.
_REFERENCE_WARM_UPS, _REFERENCE_RUNS = 2, 5


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


class PortableStep(ABC):
    """A step that runs the brick ``key``; a timed one stands for ``weight`` occurrences."""

    key: str
    timed: bool
    weight: float

    @abstractmethod
    def prepare(self) -> None:
        """Do what comes before a run, untimed."""

    @abstractmethod
    def run(self) -> Sample:
        """Run once, after :meth:`prepare`."""


class RoundConditions:
    """Observes rounds: on the processor by the latency of a ``reference`` workload.

    ``reference`` is None where a GPU runs the calls, which tells its ``state`` itself.
    """

    def __init__(
        self,
        reference: Callable[[], Sample] | None,
        state: StateReader = lambda: None,
    ) -> None:
        self._reference, self._state = reference, state
        self._state_before: AcceleratorState | None = None
        self._waiting: ProcessorWait | None = None
        self._before_s: float | None = None

    def begin(self, warm_up: Callable[[], None] = lambda: None) -> None:
        """Observe the beginning of a round, whose samples follow ``warm_up``."""
        self._before_s = self._reference_s()
        warm_up()
        self._waiting = None if self._reference is None else ProcessorWait()
        self._state_before = self._state()

    def end(self) -> Sequence[Any]:
        """Return the conditions since :meth:`begin`, as a record of results has them.

        They are the reference before, the share waited, the reference after, each None if unknown,
        and the state of the GPU as JSON where it is known.
        """
        waited_share = None if self._waiting is None else self._waiting.share()
        state = joined([self._state_before, self._state()])
        known = [] if state is None else [state.to_json()]
        return [self._before_s, waited_share, self._reference_s(), *known]

    def _reference_s(self) -> float | None:
        if self._reference is None:
            return None
        for _ in range(_REFERENCE_WARM_UPS):
            self._reference()
        return min(self._reference().host_s for _ in range(_REFERENCE_RUNS))


class PortableWalk(GroupWalk):
    """Steps on one device; ``memory_errors`` are exceptions of one that is full."""

    memory_errors: tuple[type[BaseException], ...] = (MemoryError,)

    def __init__(self, steps: Sequence[PortableStep], conditions: RoundConditions) -> None:
        self.steps, self.conditions = steps, conditions

    def wait(self) -> None:
        """Wait until the device has no work; a processor never has."""

    def evict(self) -> None:
        """Read memory in place of what a pass leaves out; by default nothing."""

    def end(self) -> None:
        """Free what the steps of a pass have made."""

    def rehearse(self, begun: Callable[[str], None]) -> Mapping[str, str]:
        """Run each step once, and leave out bricks that cannot run."""
        failed: dict[str, str] = {}
        known: set[str] = set()
        for step in self.steps:
            if step.key not in known:
                known.add(step.key)
                begun(step.key)
            if step.key in failed:
                continue
            try:
                step.prepare()
                step.run()
                self.wait()
            except self.memory_errors as exc:
                # No name outlives ``exc``, which holds the tensors of its frames.
                text = first_line(exc if isinstance(exc, Exception) else Exception(str(exc)), 120)
                failed[step.key] = f"out of memory: {text}"
            except Exception as exc:  # the errors of runtimes have no common class
                failed[step.key] = first_line(exc, 200)
        self.end()
        self.steps = [step for step in self.steps if step.key not in failed]
        return failed

    def rounds(self) -> Iterator[SampledRound]:
        """A round of each brick."""
        timed = [step for step in self.steps if step.timed]
        if not timed:
            return
        gc.disable()  # until the end of the round
        try:
            self.conditions.begin(self.warm_up)
            passes = [self.sampled() for _ in range(_PASSES)]
            observed = self.conditions.end()
        finally:
            gc.enable()
        yield from by_key(timed, passes, observed)

    def warm_up(self) -> None:
        """Make passes until the contents of the caches no longer change from pass to pass."""
        started = time.perf_counter()
        for _ in range(_WARM_UPS):
            self.one_pass()
            self.wait()
            if time.perf_counter() - started > _ENOUGH_S:
                break

    def one_pass(self) -> list[Sample]:
        """Run all steps in order; a sample of each."""
        self.evict()
        samples = []
        for step in self.steps:
            step.prepare()
            samples.append(step.run())
        self.end()
        return samples

    def sampled(self) -> list[Sample]:
        """Run all steps in order; a sample of each timed one."""
        samples = zip(self.steps, self.one_pass(), strict=True)
        return [sample for step, sample in samples if step.timed]


def by_key(
    timed: Sequence[PortableStep],
    passes: Sequence[Sequence[Sample]],
    observed: Sequence[Any],
) -> Iterator[SampledRound]:
    """A round of each brick: of each pass the mean over the steps that stand for it."""
    numbers: dict[str, list[int]] = {}
    for number, step in enumerate(timed):
        numbers.setdefault(step.key, []).append(number)
    for key, own in numbers.items():
        weights = [timed[n].weight for n in own]
        samples = [weighted_mean([one[n] for n in own], weights) for one in passes]
        yield SampledRound(key, samples, observed)


def most_evicted_bytes() -> int:
    """Twice the size of all caches, beyond which reading other memory makes no difference."""
    sizes = dict(read_processor(ROOT).cache_bytes).values()
    return 2 * sum(size for size in sizes if size is not None)
