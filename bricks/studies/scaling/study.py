"""Scales a program's training over ranks: its step and copies from bricks, a network between them.

Bricks of ranks that share one host are measured while as many copies run at once. To compare, real
steps of the program itself run under DDP, over ranks on this host. Must not know how a step on
several ranks follows from that, nor how results are shown.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from bricks.errors import BricksError, UsageError
from bricks.measure.distributed_steps import RULE, measure_steps
from bricks.network.times import (
    CardsThenHosts,
    MeasuredNetwork,
    Network,
    StatedNetwork,
    linked_cards,
)
from bricks.session import networks
from bricks.session.defaults import PROGRAMS_RUNTIME
from bricks.session.networks import CHECKED_SIZES, NetworkRequest, network_called, rank_locations_of
from bricks.sources import function_of
from bricks.studies.scaling.options import (
    ASSUMED_BANDWIDTH,
    ASSUMED_LATENCY_S,
    COLLECTIVES,
    ScalingOptions,
)
from bricks.studies.scaling.result import (
    ASSUMED,
    LOOPBACK,
    MEASURED,
    PUBLISHED,
    STATED,
    CheckedStep,
    RankNetwork,
    ScaleFailure,
    ScalePoint,
    ScaleResult,
    ScalingResult,
)
from bricks.studies.scaling.scaling import DataParallelTraining, RankTimes, Scaling
from bricks.studies.scaling.steps import (
    RankModels,
    copy_bricks,
    copy_rule,
    copy_times,
    ddp_bricks,
    rank_models,
    rank_step,
    rank_steps,
)
from bricks.studies.study import Needs, Study, ask, target_asked

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.measure.conditions import StopRule
    from bricks.session.workspace import Workspace
    from bricks.system import Target

# Beyond this, only the requested numbers of ranks are compared.
_MAX_COMPARED = 128

Prediction = tuple[ScaleResult, ...]
# The real step on the ranks to check, or why there is none.
Observed = CheckedStep | ScaleFailure


def scale_training(
    workspace: Workspace, options: ScalingOptions, *, measure: bool = True
) -> ScalingResult:
    """Predict a training on several numbers of ranks, as ``options`` say.

    With ``measure``, missing bricks are measured first, unless another system is asked about.
    Raises :class:`~bricks.errors.UsageError` for a program that is no training step, and
    :class:`~bricks.errors.BricksError` if no step can be predicted.
    """
    return ask(ScalingStudy(options, workspace), measure=measure)


class ScalingStudy(Study[ScalingOptions, Prediction, Observed, ScalingResult]):
    """A training on several numbers of ranks."""

    # The stop rule of real steps.
    real_rule: ClassVar[StopRule] = RULE

    _scalings: Sequence[Scaling]

    @cached_property
    def target(self) -> Target:
        """The host and runtime of each rank."""
        return target_asked(self.workspace, self.options.system)

    @property
    def observes(self) -> bool:
        """Real steps are run if a number of ranks is to be checked."""
        return self.options.check is not None

    def needs(self) -> Needs:
        """The bricks of a rank's steps, copies of gradients, and the loopback to check on."""
        others: list[Callable[[], object]] = []
        if self.options.loopback:
            others.append(partial(self._loopback, self._announce_loopback))
        if not others:  # an unknown network is refused before anything is run
            _ = self._network
        models = list(self._models.models.values())
        if self.target.key != self.workspace.target.key:
            return Needs(others=others)
        if self._one_host is not None:
            others.append(partial(self._one_host.measure, self.workspace))
        bricks = [*copy_bricks(), *ddp_bricks()]
        return Needs(models, bricks, copy_rule(self.workspace), others)

    def predict(self) -> Prediction:
        """Each number of ranks, by each strategy."""
        steps = rank_steps(self.workspace, self._models, self.target)
        copies = copy_times(self.workspace, self.target)
        at_once: Mapping[int, RankTimes] = {}
        problems = dict(steps.problems)
        if self._one_host is not None:
            at_once, crowded = self._one_host.times(self.workspace, steps.whole)
            problems |= crowded
        price = self.target.system.price_per_hour
        self._scalings = [
            Scaling(
                DataParallelTraining(
                    strategy, self._network, steps.whole, self.options.step, price
                ),
                steps.steps,
                copies,
                at_once,
            )
            for strategy in self.options.strategies.strategies()
        ]
        return tuple(self._scaled(scaling, problems) for scaling in self._scalings)

    def observe(self) -> Generator[None, Prediction, Observed]:
        """Run real steps of DDP on the ranks to check."""
        assert self.options.check is not None
        ranks, batch = self.options.check, self.options.batch
        here, target = self.workspace.target, self.target
        if here.runtime.backend != PROGRAMS_RUNTIME:
            raise UsageError(
                f"--check runs real steps with {PROGRAMS_RUNTIME}, not {here.runtime.backend}:"
                " leave out --runtime"
            )
        if target.key != here.key:
            raise UsageError(
                f"--check runs real steps on this host, not on {target.system.name}: leave out --on"
            )
        if target.runtime.threads != 1:
            raise UsageError("--check gives each rank one thread: give --threads 1")
        given = self.options.network.given
        if given is not None and not isinstance(given, MeasuredNetwork):
            raise UsageError(f"network {given.name} cannot be set up here: give a measured one")
        yield
        scaling, network = self._scalings[0], self._network
        assert isinstance(network, MeasuredNetwork), "others are refused"
        try:
            return real_step(
                self.workspace,
                self.options,
                network,
                batch=None if batch is None else scaling.training.share(ranks),
                computing_s=scaling.computing_s(ranks),
                rule=self.real_rule,
            )
        except BricksError as error:
            return self._failure(scaling, ranks, error)

    def result(self, prediction: Prediction, observation: Observed | None) -> ScalingResult:
        """Predictions, the first strategy's with the real step on the ranks to check."""
        first, *others = prediction
        if observation is not None:
            points = tuple(_checked(point, observation) for point in first.points)
            first = replace(first, points=points)
        options = self.options
        return ScalingResult(
            options.workload, self.target, self._described_as(self._network), options.step,
            (first, *others),
            here=self.target.system.key == self.workspace.target.system.key,
        )  # fmt: skip

    @cached_property
    def _models(self) -> RankModels:
        options = self.options
        ranks = options.all_ranks if options.step.strong else ()
        return rank_models(self.workspace, options.workload, options.batch, ranks)

    @cached_property
    def _one_host(self) -> RanksOfHost | None:
        """The ranks if they share one host; None if each has a host or a GPU of its own."""
        network = None if self.options.loopback else self._network
        of_one = network is None or (isinstance(network, MeasuredNetwork) and network.same_host)
        if not of_one or self.target.system.accelerator is not None:
            return None
        options = self.options
        return RanksOfHost(self.target, self._models, options.all_ranks, options.step.strong)

    def _scaled(self, scaling: Scaling, problems: Mapping[int, str]) -> ScaleResult:
        name = scaling.training.strategy.name
        points: list[ScalePoint | ScaleFailure] = []
        for n in self.options.all_ranks:
            try:
                failed = n in problems
                points.append(ScaleFailure(n, name, problems[n]) if failed else scaling.point(n))
            except BricksError as error:
                points.append(self._failure(scaling, n, error))
        # If no number of ranks can be predicted, none between can.
        predicted = [point.ranks for point in points if isinstance(point, ScalePoint)]
        # Each share of a batch needs a recording with strong scaling, and ranks that run at once on
        # one host are measured: then no others are compared in the search for the last that pays.
        most = max(predicted, default=1)
        only = scaling.training.step.strong or scaling.at_once
        between = () if only else range(1, min(most, _MAX_COMPARED) + 1)
        compared = sorted({1, *predicted, *between})
        pays_up_to = scaling.last_that_pays(compared)
        return ScaleResult(name, tuple(points), pays_up_to, compared[-1])

    def _failure(self, scaling: Scaling, ranks: int, error: BricksError) -> ScaleFailure:
        text = f"{self.options.workload} on {ranks} ranks: {error}"
        return ScaleFailure(ranks, scaling.training.strategy.name, text)

    @cached_property
    def _network(self) -> Network:
        of = self.options.network
        if of.given is not None:
            return of.given
        if of.bandwidth is not None and of.latency is not None:
            return StatedNetwork(of.bandwidth, of.latency)
        if of.network is not None:
            return network_called(self.workspace.store, of.network)
        if self.options.loopback:
            return self._loopback(self._refuse_unknown_loopback)
        hosts = StatedNetwork(ASSUMED_BANDWIDTH, ASSUMED_LATENCY_S, name=ASSUMED)
        linked = linked_cards(self.target.system.accelerator)
        return hosts if linked is None else CardsThenHosts(linked, hosts)

    def _described_as(self, network: Network) -> RankNetwork:
        if isinstance(network, StatedNetwork):
            origin = ASSUMED if self.options.network.unnamed else STATED
            return RankNetwork(network.name, origin, network.bandwidth, network.latency_s)
        if isinstance(network, CardsThenHosts):
            nvlink = network.cards.nvlink
            more = max(self.options.all_ranks) > nvlink.cards
            return RankNetwork(
                network.name, PUBLISHED, nvlink.one_way_bytes_per_s, most_ranks=nvlink.cards,
                beyond=self._described_as(network.hosts) if more else None,
            )  # fmt: skip
        origin = LOOPBACK if self.options.loopback else MEASURED
        return RankNetwork(network.name, origin, one_host=self._one_host is not None)

    def _loopback(self, announce: Callable[[str], None]) -> MeasuredNetwork:
        """This host's loopback between the ranks to check; unmeasured messages are measured."""
        operations = {of for name in self.options.strategies.names for of in COLLECTIVES[name]}
        loopback = NetworkRequest(
            "loopback",
            self.options.check or 1,
            operations=sorted(operations),
            sizes=CHECKED_SIZES,
            python=self.workspace.options.python,
        )
        return networks.loopback_network(
            self.workspace.store, loopback, announce=announce, progress=self.workspace.progress
        )

    def _announce_loopback(self, name: str) -> None:
        self.notice(
            f"no network is given: measuring this host's loopback between {self.options.check}"
            f" ranks first, once, as network {name!r}"
        )

    def _refuse_unknown_loopback(self, name: str) -> None:
        raise UsageError(
            f"this host's loopback between {self.options.check} ranks is not measured yet: leave"
            " out --no-measure"
        )


def _checked(point: ScalePoint | ScaleFailure, observed: Observed) -> ScalePoint | ScaleFailure:
    if isinstance(point, ScaleFailure) or point.ranks != observed.ranks:
        return point
    return observed if isinstance(observed, ScaleFailure) else replace(point, checked=observed)


def real_step(
    workspace: Workspace,
    options: ScalingOptions,
    network: MeasuredNetwork,
    *,
    batch: int | None,
    computing_s: float,
    rule: StopRule,
) -> CheckedStep:
    """Run real steps on ``options.check`` ranks of ``network`` until ``rule`` is met.

    Each rank has one thread and ``batch`` samples (None: the program's own number). The ranks share
    this host, so unlike predicted ones they also share its memory and its last level of cache. A
    straggler is delayed in proportion to ``computing_s``, the seconds that a rank computes. Raises
    :class:`~bricks.errors.BricksError` if the network cannot be set up here, and if a rank fails.
    """
    assert options.check is not None
    step, ranks = options.step, options.check
    program = function_of(options.workload).request(batch)
    with rank_locations_of(network, ranks) as locations:
        times = measure_steps(
            program,
            locations,
            bucket_cap_mb=options.strategies.bucket_cap_mb,
            accumulation=step.accumulate,
            delays_s=[(step.straggler - 1) * computing_s],
            seed=workspace.options.seed,
            rule=rule,
            python=workspace.options.python,
            progress=workspace.progress,
        )
    return CheckedStep(ranks, times.synchronised.value, times.solo.value)


@dataclass(frozen=True, slots=True)
class RanksOfHost:
    """Each number of ``ranks`` on the host of ``target``, with the ``models`` of their steps.

    ``whole`` is the batch of one rank by itself; ranks divide it if ``strong``. As many ranks run
    at once as have cores of their own: where there are more, they take turns.
    """

    target: Target
    models: RankModels
    ranks: Sequence[int]
    strong: bool

    def copies(self, ranks: int) -> int:
        """The number of ``ranks`` that run at the same time."""
        return max(1, min(ranks, int(self.target.system.processors // self.target.runtime.threads)))

    def measure(self, workspace: Workspace) -> None:
        """Measure missing bricks of ranks that run at once, on the host of ``workspace``."""
        from bricks.session import measuring

        by_copies: dict[int, list[Model]] = {}
        for _, model, copies in self._several():
            models = by_copies.setdefault(copies, [])
            if model not in models:
                models.append(model)
        for copies, models in by_copies.items():
            threads = self.target.runtime.threads
            with workspace.with_options(copies=copies, threads=threads) as shared:
                measuring.measure(shared, models)
                bricks = [*copy_bricks(), *ddp_bricks()]
                measuring.measure_isolated(shared, bricks, rule=copy_rule(shared))

    def times(
        self, workspace: Workspace, whole: int
    ) -> tuple[Mapping[int, RankTimes], Mapping[int, str]]:
        """Times of a rank by the number of ranks, and why others have none.

        ``whole`` is the number of samples of one rank by itself. From stored measurements.
        """
        times, problems = dict[int, RankTimes](), dict[int, str]()
        for ranks, model, copies in self._several():
            runtime = replace(self.target.runtime, copies=copies)
            target = replace(self.target, runtime=runtime)
            share = whole // ranks if self.strong else whole
            try:
                step = rank_step(workspace, model, target, share)
                times[ranks] = RankTimes(step, copy_times(workspace, target))
            except BricksError as error:
                problems[ranks] = f"{copies} ranks at once: {error}"
        return times, problems

    def _several(self) -> Iterator[tuple[int, Model, int]]:
        """Numbers of ranks of which several run at once, with a rank's model and how many."""
        for ranks in self.ranks:
            copies, whole = self.copies(ranks), self.models.whole
            share = whole if whole is None or not self.strong else whole // ranks
            if copies > 1 and ranks not in self.models.problems:
                yield ranks, self.models.models[share], copies
