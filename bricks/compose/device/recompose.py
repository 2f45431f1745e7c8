"""A model's latency on a device, recomposed on two lanes from its bricks' calls and kernels.

The latency is that of a step that is issued call by call and waited for.

The host waits for some calls: the kernels of a measured call say that it copies to the host, those
of a predicted one may not. Calls on the host wait for nothing. Must not know how measurements came
about.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from bricks.compose.basis import gap
from bricks.compose.device.host_lane import HostLane, host_lane
from bricks.compose.device.kernels import StepKernels, step_kernels
from bricks.compose.device.launching import (
    DeviceRun,
    LaunchCosts,
    RunMode,
    copies_to_host,
    device_run,
)
from bricks.compose.estimate import (
    LAUNCHING_ASSUMED,
    LAUNCHING_MEASURED,
    DeviceTimes,
    ErrorSource,
    Estimate,
    Gap,
    IncompleteEstimate,
    PhaseShare,
    Share,
    Uncertainty,
)
from bricks.compose.lanes import DEVICE
from bricks.compose.recomposition_error import OTHER_HOST_CALLS_SHARE
from bricks.graph.form import operator_title
from bricks.operators.registry import returns_to_host, selects_by_masks
from bricks.predict.kernels.call_tensors import tensor_call
from bricks.samples.measurement import Measurement
from bricks.system.accelerator import joined
from bricks.units.interval import Interval
from bricks.units.sample import COPY_TO_HOST, Kernel

if TYPE_CHECKING:
    from bricks.compose.basis import Basis, DeviceBasis, PredictedKernels
    from bricks.compose.lanes import Timeline
    from bricks.decompose.plan import Brick, Plan

# Half the widths, relative to their sums, of errors that intervals include beside that of the state
# of caches and clocks: of kernels that another card of the same kind ran, and of calls.
OTHER_CARD_SHARE, HOST_SHARE = 0.02, 0.1

# The same for kernels that no card ran, and for those that another card ran: about the 95th
# percentiles of the errors of whole steps of such calls (research/gpu.md).
PREDICTED_SHARE, CARRIED_SHARE = 0.7, 0.2

# Why a known brick has no predicted kernels.
_UNLIKE = "no known GPU ran such calls: measure on one, --device cuda"


def recompose_on_device(basis: Basis, device: DeviceBasis) -> Estimate | IncompleteEstimate:
    """The latency of a model's plan on ``device``, with a 95 % interval and its sources.

    Incomplete where a brick was neither measured nor predicted.
    """
    step = _Step(basis, device)
    if gaps := tuple(step.gaps()):
        plan = basis.plan
        return IncompleteEstimate(plan.model, plan.granularity, 0.0, step.coverage, gaps, ())
    return step.estimate()


@dataclass(frozen=True)  # without slots, for cached properties
class _Step:
    """One step of the plan of ``basis`` on ``device``."""

    basis: Basis
    device: DeviceBasis

    @cached_property
    def measured(self) -> Mapping[str, Measurement]:
        results = self.basis.results
        return {
            key: of
            for key in self.basis.plan.keys
            if isinstance(of := results.get(key), Measurement)
        }

    @cached_property
    def known(self) -> Mapping[str, Measurement]:
        """Measurements of all bricks, with predicted kernels in the form of measurements."""
        predicted = {key: of.kernels for key, of in self.device.predicted.items()}
        return predicted | dict(self.measured)

    def gaps(self) -> Iterator[Gap]:
        for key, count in self.basis.plan.counts.items():
            if key in self.known:
                continue
            if key in self.device.bricks and key not in self.basis.results:
                operators = "+".join(map(operator_title, self.device.bricks[key].operators))
                yield Gap(key, count, _UNLIKE, operators)
            elif missing := gap(key, count, self.basis.results):
                yield missing

    @property
    def coverage(self) -> float:
        covered = [of.brick in self.measured for of in self.basis.plan.occurrences]
        return sum(covered) / len(covered) if covered else 1.0

    @cached_property
    def called_s(self) -> Mapping[str, float]:
        """The host's seconds for a call of each brick, one by one."""
        return {key: self.known[key].latency_s for key in self.basis.plan.counts}

    @cached_property
    def host(self) -> HostLane:
        called_s = [self.called_s[of.brick] for of in self.basis.plan.occurrences]
        return host_lane(self.basis.plan, called_s, self.basis.results)

    @property
    def host_s(self) -> Sequence[float]:
        return self.host.calls_s

    @cached_property
    def step(self) -> StepKernels:
        device = self.device
        return step_kernels(self.basis.plan, self.known, device.accelerator, device.bricks)

    @cached_property
    def kernels(self) -> Sequence[Sequence[Kernel]]:
        return with_copies(self.basis.plan, self.step.kernels, self.device.bricks)

    @cached_property
    def eager(self) -> DeviceRun:
        return self._run(RunMode.EAGER)

    def _run(
        self,
        mode: RunMode,
        host: float = 1.0,
        device: float = 1.0,
        costs: LaunchCosts | None = None,
    ) -> DeviceRun:
        """A run in which host and device take so many times as long."""
        host_s = [host * of for of in self.host_s]
        kernels = [[Kernel(k.name, device * k.device_s) for k in of] for of in self.kernels]
        return device_run(self.basis.plan, host_s, kernels, costs or self.device.costs, mode)

    def _launching_half_s(self, mode: RunMode) -> float:
        """Half the seconds of a step that the costs of launching leave open."""
        low, high = (self._run(mode, costs=of).step_s for of in self.device.costs.ends)
        return abs(high - low) / 2

    @cached_property
    def launching_half_s(self) -> float:
        return self._launching_half_s(RunMode.EAGER)

    def estimate(self) -> Estimate:
        plan, shares, seconds = self.basis.plan, self.shares, self.latency_s
        return Estimate(
            model=plan.model,
            granularity=plan.granularity,
            estimate_s=seconds.value,
            low_s=seconds.low,
            high_s=seconds.high,
            critical_path_s=seconds.value,
            call_overhead_s=0.0,
            predicted_share=_part(shares, [share for share in shares if share.predicted]),
            published_share=_part(shares, [share for share in shares if share.published]),
            coverage=self.coverage,
            shares=shares,
            uncertainty=self.uncertainty(seconds.half_width),
            phases=phases_of(plan, self.eager.timeline, self.kernels),
            device=self.times,
        )

    @cached_property
    def latency_s(self) -> Interval:
        ends_s = [
            self._run(
                RunMode.EAGER, 1 + sign * self.host_error, 1 + sign * self.device_error
            ).step_s
            for sign in (-1, 1)
        ]
        value_s, own_s = self.eager.step_s, self.launching_half_s
        below_s, above_s = value_s - min(value_s, *ends_s), max(value_s, *ends_s) - value_s
        return Interval(
            value_s, value_s - math.hypot(below_s, own_s), value_s + math.hypot(above_s, own_s)
        ).positive()

    @cached_property
    def times(self) -> DeviceTimes:
        eager, seconds, total_s = self.eager, self._kernels_s, self.step.device_s
        limiting = self.device_error if eager.limited_by == DEVICE else self.host_error
        captured = not any(map(copies_to_host, self.kernels))
        # The rounds in use whose clock was lowered.
        throttled_s = sum(seconds[key] for key, of in self.measured.items() if of.throttled)
        return DeviceTimes(
            device_s=_around(eager.device_s, self.device_error),
            host_s=_around(eager.host_s, self.host_error),
            limited_by=eager.limited_by,
            pipelined_s=self._step_s(RunMode.PIPELINED, limiting),
            graph_s=self._step_s(RunMode.GRAPH, self.device_error) if captured else None,
            kernels=sum(map(len, self.kernels)),
            throttled_share=throttled_s / total_s if total_s else 0.0,
            throttled=joined(of.throttled for of in self.measured.values()),
            launching=LAUNCHING_ASSUMED if self.device.costs.assumed else LAUNCHING_MEASURED,
        )

    def _step_s(self, mode: RunMode, error: float) -> Interval:
        """A step with the relative ``error`` of its lanes and that of launching."""
        step_s = self._run(mode).step_s
        half_s = math.hypot(error * step_s, self._launching_half_s(mode))
        return Interval.around(step_s, half_s).positive()

    @cached_property
    def errors(self) -> Mapping[ErrorSource, float]:
        """Half widths relative to the device's seconds, by source; independent of each other."""
        return {
            ErrorSource.RECOMPOSITION: self.step.error,
            ErrorSource.PREDICTED: self._predicted_error,
            ErrorSource.OTHER_HOST: OTHER_CARD_SHARE * self._published,
        }

    @property
    def device_error(self) -> float:
        """Half the width of the interval of the device's seconds, relative to them."""
        return min(0.95, math.hypot(*self.errors.values()))

    @property
    def host_error(self) -> float:
        """Half the width of the interval of the host's seconds, relative to them."""
        own = self.host.error, HOST_SHARE, OTHER_HOST_CALLS_SHARE * self._other_host
        return min(0.95, math.hypot(*own, self._predicted_host_error))

    @property
    def _published(self) -> float:
        """1 where no brick was measured by the user, else 0."""
        return float(all(of.published for of in self.measured.values()))

    @property
    def _unmeasured(self) -> Mapping[str, PredictedKernels]:
        return {key: of for key, of in self.device.predicted.items() if key not in self.measured}

    @property
    def _other_host(self) -> float:
        """The share of the host's seconds that calls on another host tell."""
        if self._published:
            return 1.0
        counts, total_s = self.basis.plan.counts, self._all_called_s
        carried = [key for key, of in self._unmeasured.items() if of.carried]
        return sum(counts[key] * self.called_s[key] for key in carried) / total_s

    @property
    def _all_called_s(self) -> float:
        return sum(times * self.called_s[key] for key, times in self.basis.plan.counts.items())

    @property
    def _predicted_host_error(self) -> float:
        """The error of the host's seconds for calls that nobody measured, relative to all calls.

        Those of operators are independent.
        """
        counts, half_s = self.basis.plan.counts, dict[str, float]()
        for key, of in self._unmeasured.items():
            own_s = counts[key] * of.host_s.half_width
            half_s[of.operator] = half_s.get(of.operator, 0.0) + own_s
        return math.hypot(*half_s.values()) / self._all_called_s

    @property
    def _predicted_error(self) -> float:
        """The error of predicted kernels, relative to all.

        Those of operators are independent; what a family of programs has in common is not.
        """
        counts, total_s = self.basis.plan.counts, self.step.device_s
        half_s, common_s = dict[str, float](), 0.0
        for key, of in self._unmeasured.items():
            own_s = counts[key] * of.device_s.half_width
            half_s[of.operator] = half_s.get(of.operator, 0.0) + own_s
            share = CARRIED_SHARE if of.carried else PREDICTED_SHARE
            common_s += share * counts[key] * of.device_s.value
        both_s = math.hypot(common_s, *half_s.values())
        return math.hypot(both_s / total_s if total_s else 0.0, self.device.transfer_error)

    def uncertainty(self, half_s: float) -> Uncertainty:
        """Half the width by source, in proportion to squares; that of the host is of calls."""
        errors, eager = self.errors, self.eager
        if eager.limited_by != DEVICE:
            predicted = self._predicted_host_error
            calls = math.sqrt(max(0.0, self.host_error**2 - predicted**2))
            errors = {ErrorSource.CALLS: calls, ErrorSource.PREDICTED: predicted}
        lane_s = eager.device_s if eager.limited_by == DEVICE else eager.host_s
        squares = {source: (error * lane_s) ** 2 for source, error in errors.items()}
        squares[ErrorSource.LAUNCHING] = self.launching_half_s**2
        total = sum(squares.values()) or 1.0
        parts = dict.fromkeys(ErrorSource, 0.0)
        return Uncertainty.of(parts | {s: half_s * of / total for s, of in squares.items()})

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The share of each brick on the limiting lane, in the latency; the largest first."""
        counts, kernels_s = self.basis.plan.counts, self._kernels_s
        seconds = kernels_s if self.eager.limited_by == DEVICE else self._by_brick(self.host_s)
        total_s = sum(seconds.values()) or 1.0
        factor = self.eager.step_s / total_s
        return tuple(
            Share(
                key,
                counts[key],
                factor * seconds[key],
                seconds[key] / total_s,
                predicted=key not in self.measured,
                published=key in self.measured and self.measured[key].published,
                device_s=kernels_s[key],
            )
            for key in sorted(seconds, key=lambda key: -seconds[key])
        )

    @property
    def _kernels_s(self) -> dict[str, float]:
        """Seconds on the device of all occurrences of each brick."""
        return self._by_brick(sum(kernel.device_s for kernel in of) for of in self.kernels)

    def _by_brick(self, seconds: Iterable[float]) -> dict[str, float]:
        sums_s = dict.fromkeys(self.basis.plan.counts, 0.0)
        for of, own_s in zip(self.basis.plan.occurrences, seconds, strict=True):
            sums_s[of.brick] += own_s
        return sums_s


def _part(shares: Sequence[Share], some: Sequence[Share]) -> float:
    """The part of ``some`` in the seconds of all ``shares``; exactly 1 for all of them."""
    all_s = sum(share.latency_s for share in shares)
    return sum(share.latency_s for share in some) / all_s if all_s else 0.0


def _around(value_s: float, error: float) -> Interval:
    return Interval.around(value_s, error * value_s).positive()


def phases_of(
    plan: Plan, run: Timeline, kernels: Sequence[Sequence[Kernel]]
) -> tuple[PhaseShare, ...]:
    """The seconds of each phase of a recorded program in ``run``; empty for other plans.

    ``kernels`` are those of each occurrence. A phase ends once its calls have returned and its
    kernels have ended, and the next one begins; what follows the last belongs to it.
    """
    spans, ends_s = run.by_task, list[float]()
    kernel = len(plan.occurrences) + 1  # after the calls and the wait for the device
    for position, own in enumerate(kernels):
        tasks = [position, *range(kernel, kernel + len(own))]
        ends_s.append(max(spans[task].end_s for task in tasks))
        kernel += len(own)
    phases = [phase for _, phase in plan.memory.overheads]
    shares, position, begin_s = list[PhaseShare](), 0, 0.0
    for phase in phases:
        position += phase.occurrences
        last = phase is phases[-1]
        end_s = run.end_s if last else max([begin_s, *ends_s[:position]])
        shares.append(PhaseShare(phase.name, phase.calls, end_s - begin_s, 0.0))
        begin_s = end_s
    return tuple(shares)


# A copy of a scalar took 1.5 to 2 µs on an H200.
_COPY = Kernel(COPY_TO_HOST, 2e-6)


def with_copies(
    plan: Plan, kernels: Sequence[Sequence[Kernel]], bricks: Mapping[str, Brick]
) -> tuple[Sequence[Kernel], ...]:
    """The ``kernels`` of each occurrence of ``plan``, with the copies that it waits for.

    Bricks that are not among ``bricks``, by key, keep their kernels.
    """
    waiting = {key: _waits(brick) for key, brick in bricks.items()}
    return tuple(
        (*own, _COPY) if waiting.get(of.brick) and not copies_to_host(own) else own
        for of, own in zip(plan.occurrences, kernels, strict=True)
    )


def _waits(brick: Brick) -> bool:
    masks = any(getattr(of, "dtype", None) == "BOOL" for of in brick.inputs.values())
    names = map(operator_title, brick.operators)
    if not any(returns_to_host(name) or (masks and selects_by_masks(name)) for name in names):
        return False
    call = tensor_call(brick)
    return call is None or not call.call.on_host
