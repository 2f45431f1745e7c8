"""Predictions of whole models: latency, where it comes from, memory, and mixes of sizes.

Plain data. Must not know how a model is measured, nor how a prediction is shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.compose.estimate import (
    Estimate,
    Gap,
    IncompleteEstimate,
    PhaseShare,
    Share,
    device_facts,
    provenance_facts,
)
from bricks.samples.whole_models import SizeTimes
from bricks.session.defaults import RUNTIME
from bricks.studies.inference.settings import Setting, Shapes
from bricks.units.facts import Missing, with_ends
from bricks.units.interval import Interval, common_sum, independent_sum

if TYPE_CHECKING:
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory
    from bricks.session.agreement import Agreement
    from bricks.studies.inference.branches import OtherBranch
    from bricks.studies.inference.changing import ChangingInputs
    from bricks.studies.inference.settings import MixedSize
    from bricks.system import Target
    from bricks.system.limits import LoopedRuns, Quota

_MEMORY_PARTS = (
    "weight_bytes", "activation_bytes", "workspace_bytes", "runtime_bytes", "loading_bytes",
    "gradient_bytes", "optimizer_bytes", "temporary_bytes",
)  # fmt: skip

# The facts of the setting in which a model was predicted.
SETTING_FACTS = (
    ("setting.system_name", "system"), ("setting.runtime", "runtime"),
    ("setting.threads", "threads"), ("setting.copies", "copies"), ("setting.shapes", "shapes"),
    ("setting.batch", "batch"), ("setting.quantize", "quantize"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SingleRuns:
    """Percentiles of single runs at any time, in seconds.

    From how the rounds of all bricks vary, and the conditions of the host. ``quantiles_s`` are the
    middles of as many equal shares of all runs, in order.
    """

    p50_s: float
    p90_s: float
    p99_s: float
    quantiles_s: tuple[float, ...] = field(repr=False)


# Why a mix has no real runs.
_UNASKED = "runs are measured on this host, without --no-measure"

# The setting of models that are asked about in no particular one.
_UNKNOWN = Setting(runtime=RUNTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedModel:
    """A model's latency and peak memory in a ``setting``; each is None, or incomplete, if unknown.

    ``single_runs`` is None unless requested. ``usual_s`` is the latency at other times, where
    ``estimate`` is for the present conditions of the host; the last rounds of ``old_bricks`` of its
    bricks are of other times all the same. ``failure`` is the reason if both are
    None, ``hint`` the remedy for an incomplete estimate. ``advice`` is a sentence on how to narrow
    a wide interval, None unless requested. ``branches`` are those that synthetic data did not
    choose, ``changing_inputs`` those that change from run to run; None if none matters.
    ``size_times`` are runs of this size among others; None unless requested.
    """

    FACTS: ClassVar = (
        "model", *SETTING_FACTS, ("estimate.latency_s", "estimate_s", "low_s", "high_s"),
        *(
            (f"estimate.{name}", name)
            for name in ("critical_path_s", "call_overhead_s")
        ),
        *device_facts("estimate.device"), *provenance_facts("estimate.provenance"),
        ("memory.peak_bytes", "peak_bytes"), ("memory_parts", "memory"), ("gaps", "missing"),
        ("shares", "bricks"), "phases", ("reason", "error"),
        ("estimate.uncertainty", "uncertainty"), "advice", ("estimate.watched_s", "watched_s"),
        ("estimate.own_runs", "own_runs"), ("usual_s", "usual_s", "usual_low_s", "usual_high_s"),
        "old_bricks",
        *((f"single_runs.{name}", name) for name in ("p50_s", "p90_s", "p99_s")), "branches",
        "changing_inputs",
        *((f"loop.{name}", f"loop_{name}") for name in ("p50_s", "p99_s", "runs_per_s")),
    )  # fmt: skip

    model: str
    estimate: Estimate | IncompleteEstimate | None = None
    memory: PeakMemory | UnknownMemory | None = None
    failure: str | None = None
    hint: str = ""
    advice: str | None = None
    setting: Setting = _UNKNOWN
    usual_s: Interval | None = None
    old_bricks: int = 0
    single_runs: SingleRuns | None = None
    branches: Sequence[OtherBranch] = ()
    changing_inputs: ChangingInputs | None = None
    size_times: SizeTimes | Missing | None = None

    @property
    def LIKE(self) -> type:
        """The class whose facts JSON has: with an incomplete estimate, the measured part too."""
        return IncompleteModel if isinstance(self.estimate, IncompleteEstimate) else type(self)

    @property
    def interval(self) -> Interval | None:
        """The latency in seconds; None without a whole estimate."""
        return self.estimate.latency_s if isinstance(self.estimate, Estimate) else None

    @property
    def latency_s(self) -> Interval:
        """The latency in seconds of a model that has a whole estimate."""
        assert isinstance(self.estimate, Estimate), f"{self.model} has no estimate"
        return self.estimate.latency_s

    @property
    def comparable_s(self) -> Interval:
        """The latency in seconds, to compare it with other models in the same setting."""
        assert isinstance(self.estimate, Estimate), f"{self.model} has no estimate"
        return self.estimate.comparable_s

    @property
    def batch(self) -> int:
        """The number of samples in one run."""
        return 1 if self.setting.batch is None else self.setting.batch

    @property
    def sample_s(self) -> Interval:
        """The latency for each sample of the batch, of a model that has a whole estimate.

        That of the run for a batch without samples.
        """
        return self.latency_s.scaled(1 / max(1, self.batch))

    @property
    def samples_per_s(self) -> Interval:
        """Samples a second of all copies together, of a model that has a whole estimate."""
        share = 1.0 if self._quota is None else self._quota.share
        samples = share * self.setting.copies * self.batch
        return self.latency_s.map(lambda seconds: samples / seconds if seconds else math.inf)

    @property
    def _quota(self) -> Quota | None:
        target = self.setting.target
        return None if target is None else target.system.quota

    @property
    def loop(self) -> LoopedRuns | None:
        """Runs in a loop where a quota below one processor stops them; None elsewhere."""
        interval, quota = self.interval, self._quota
        return None if interval is None or quota is None else quota.loop(interval.value)

    @property
    def gaps(self) -> Sequence[Gap]:
        """The bricks without a latency."""
        return self.estimate.gaps if isinstance(self.estimate, IncompleteEstimate) else ()

    @property
    def shares(self) -> Sequence[Share]:
        """The part of each brick that has one."""
        return () if self.estimate is None else self.estimate.shares

    @property
    def phases(self) -> Sequence[PhaseShare]:
        """The phases of a recorded program."""
        return self.estimate.phases if isinstance(self.estimate, Estimate) else ()

    @property
    def memory_parts(self) -> Mapping[str, Any]:
        """Bytes by part; ``unknown`` names parts left out, ``reason`` says why there are none."""
        of = self.memory
        parts = {name: getattr(of, name, None) for name in _MEMORY_PARTS}
        unknown, reason = getattr(of, "unknown", ()), getattr(of, "reason", None)
        return {**parts, "unknown": unknown, "reason": reason}

    @property
    def reason(self) -> str | None:
        """Why there is no estimate; None where there is one."""
        if not isinstance(self.estimate, IncompleteEstimate):
            return self.failure
        return f"{without(self.estimate)}{self.hint}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IncompleteModel(PredictedModel):
    """A model of which some bricks have no latency."""

    FACTS: ClassVar = (*PredictedModel.FACTS, ("estimate.measured_s", "measured_s"))


def without(estimate: IncompleteEstimate) -> str:
    """A line that names the bricks for which there is no estimate."""
    return f"{estimate.model}: no estimate without {estimate.lacks}"


@dataclass(frozen=True, slots=True)
class SizeInMix:
    """One size of a mix: its ``share`` of requests and its prediction.

    ``times`` are real runs with changing sizes, or the reason why there are none.
    """

    FACTS: ClassVar = (
        "shapes", "batch", "share", ("latency_s", "estimate_s", "low_s", "high_s"),
        ("runs.p50_s", "p50_s"), ("runs.p99_s", "p99_s"), with_ends("times.change_s", "change_s"),
        ("times.new_s", "new_s"), ("times.open_ratio", "open_ratio"),
    )  # fmt: skip

    share: float
    of: PredictedModel
    times: SizeTimes | Missing

    @property
    def shapes(self) -> Shapes:
        """Shapes of inputs as texts."""
        return self.of.setting.shapes

    @property
    def batch(self) -> int | None:
        """The batch of the size."""
        return self.of.setting.batch

    @property
    def latency_s(self) -> Interval:
        """Seconds of a run of this size, of a model fixed to it."""
        return self.of.latency_s

    @property
    def runs(self) -> SingleRuns | None:
        """Percentiles of single runs of this size."""
        return self.of.single_runs


@dataclass(frozen=True, slots=True)
class Mix:
    """A model over a mix of sizes, in a ``setting`` without one.

    Latencies are those of models fixed to each size. Real runs of one session with open dimensions
    tell what a change of size costs; ``unknown`` says why there are none. ``sizes`` is empty where
    one of them has no estimate.
    """

    FACTS: ClassVar = (
        "model", *(fact for fact in SETTING_FACTS if fact[1] not in ("shapes", "batch")),
        "mean_s", "p50_s", "p90_s", "p99_s", "change_s", "shuffled_s", "open_ratio",
        ("unknown", "change_unknown"), "sizes", "error",
    )  # fmt: skip

    model: str
    setting: Setting
    sizes: tuple[SizeInMix, ...]
    error: str | None = None

    @property
    def mean_s(self) -> Interval | None:
        """Seconds of the mean run; errors of sizes are common, as they share bricks."""
        if not self.sizes:
            return None
        return common_sum(of.latency_s.scaled(of.share) for of in self.sizes)

    @property
    def p50_s(self) -> float | None:
        """Seconds that half of the single runs take at most."""
        return self._percentile(0.5)

    @property
    def p90_s(self) -> float | None:
        """Seconds that 90 % of the single runs take at most."""
        return self._percentile(0.9)

    @property
    def p99_s(self) -> float | None:
        """Seconds that 99 % of the single runs take at most."""
        return self._percentile(0.99)

    def _percentile(self, rank: float) -> float | None:
        """A percentile of the runs of all sizes together, each as often as its share."""
        spread: list[tuple[float, float]] = []
        for of in self.sizes:
            if of.runs is None:
                return None
            spread += [(s, of.share / len(of.runs.quantiles_s)) for s in of.runs.quantiles_s]
        reached = 0.0
        for latency_s, share in sorted(spread):
            reached += share
            if reached >= rank - 1e-9:
                return latency_s
        return None

    @property
    def unknown(self) -> str | None:
        """Why no change of size was measured; None where they were."""
        return next((of.times.reason for of in self.sizes if isinstance(of.times, Missing)), None)

    @property
    def change_s(self) -> Interval | None:
        """How many seconds longer a run takes that follows one of another size, on average.

        Sizes come in random order. None where it was not measured.
        """
        extra_s, changes = self._extra_s, sum(of.share * (1 - of.share) for of in self.sizes)
        return None if extra_s is None or not changes else extra_s.scaled(1 / changes)

    @property
    def shuffled_s(self) -> Interval | None:
        """The mean where sizes come in random order, with the costs of their changes."""
        mean_s, extra_s = self.mean_s, self._extra_s
        return None if mean_s is None or extra_s is None else independent_sum((mean_s, extra_s))

    @property
    def _extra_s(self) -> Interval | None:
        """Seconds that changes of size add to the mean run, where they come in random order."""
        known = [(of.share, of.times) for of in self.sizes if isinstance(of.times, SizeTimes)]
        if not known or len(known) < len(self.sizes):
            return None
        return independent_sum([of.change_s.scaled(share * (1 - share)) for share, of in known])

    @property
    def open_ratio(self) -> float | None:
        """How many times as long as sessions for one size each one for all sizes takes, on average.

        Without changes of size. None where it was not measured.
        """
        parts = [
            (of.share * of.latency_s.value, of.times.open_ratio)
            for of in self.sizes if isinstance(of.times, SizeTimes)
        ]  # fmt: skip
        total_s = sum(part_s for part_s, _ in parts)
        if len(parts) < len(self.sizes) or not total_s:
            return None
        return sum(part_s * ratio for part_s, ratio in parts) / total_s


def mixes_of(models: Iterable[PredictedModel], sizes: Sequence[MixedSize]) -> Iterator[Mix]:
    """The mix of each model in each setting; ``models`` have all sizes of one after another."""
    cells = list(models)
    for begin in range(0, len(cells), len(sizes)):
        mixed = cells[begin : begin + len(sizes)]
        first = mixed[0]
        setting = replace(first.setting, shapes=(), batch=None)
        lacking = [of.reason for of in mixed if of.interval is None]
        parts = () if lacking else tuple(
            SizeInMix(size.share, of, of.size_times or Missing(_UNASKED))
            for size, of in zip(sizes, mixed, strict=True)
        )  # fmt: skip
        error = f"{first.model}: no mix without {len(lacking)} of its {len(sizes)} sizes"
        yield Mix(first.model, setting, parts, error if lacking else None)


@dataclass(frozen=True, slots=True)
class ModelPredictions:
    """Models in one setting, or in several that differ in ``dimensions``.

    The settings of each model follow one another. ``target`` is the only target, None if there are
    several. ``mixes`` are over all sizes of each model, where shares of sizes were given.
    ``agreements`` say whether runtimes of this host compute the same.
    """

    FACTS: ClassVar = (
        ("target.system", "system"), ("target.runtime", "runtime"), "granularity", "workers",
        "models", "mixes", "agreements",
    )  # fmt: skip

    target: Target | None
    granularity: str
    workers: int
    models: tuple[PredictedModel, ...]
    dimensions: tuple[str, ...] = ()
    mixes: tuple[Mix, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def swept(self) -> bool:
        """Whether there are several settings."""
        return bool(self.dimensions)

    @property
    def estimated(self) -> tuple[PredictedModel, ...]:
        """The models with an estimate."""
        return tuple(model for model in self.models if model.interval is not None)

    def on_known(self) -> ModelPredictions:
        """Without settings for which no system has measurements."""
        models = [model for model in self.models if model.setting.target is not None]
        return replace(self, models=tuple(models))

    @property
    def errors(self) -> Sequence[str]:
        """A line for each reason why a model has no estimate, each once."""
        reasons = [of.reason for of in self.models] + [of.error for of in self.mixes]
        return list(dict.fromkeys(reason for reason in reasons if reason is not None))
