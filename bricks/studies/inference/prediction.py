"""Predictions of whole models: latency, where it comes from, and memory; plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from bricks.compose.device.times import device_facts
from bricks.compose.estimate import (
    Estimate,
    Gap,
    IncompleteEstimate,
    PhaseShare,
    Share,
    provenance_facts,
)
from bricks.session.defaults import RUNTIME
from bricks.studies.inference.settings import Setting

if TYPE_CHECKING:
    from bricks.compose.memory.peak import PeakMemory, UnknownMemory
    from bricks.session.agreement import Agreement
    from bricks.system import Target
    from bricks.units.interval import Interval

_MEMORY_PARTS = (
    "weight_bytes", "activation_bytes", "workspace_bytes", "runtime_bytes", "loading_bytes",
    "gradient_bytes", "optimizer_bytes", "temporary_bytes",
)  # fmt: skip

# The facts of the setting in which a model was predicted.
SETTING_FACTS = (
    ("setting.system_name", "system"), ("setting.runtime", "runtime"),
    ("setting.threads", "threads"), ("setting.copies", "copies"), ("setting.batch", "batch"),
    ("setting.quantize", "quantize"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SingleRuns:
    """Percentiles of single runs at any time, in seconds.

    From how the rounds of all bricks vary, and the conditions of the host.
    """

    p50_s: float
    p90_s: float
    p99_s: float


# The setting of models that are asked about in no particular one.
_UNKNOWN = Setting(runtime=RUNTIME)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedModel:
    """A model's latency and peak memory in a ``setting``; each is None, or incomplete, if unknown.

    ``single_runs`` is None unless requested. ``usual_s`` is the latency at other times, where
    ``estimate`` is for the present conditions of the host. ``failure`` is the reason if both are
    None, ``hint`` the remedy for an incomplete estimate. ``advice`` is a sentence on how to narrow
    a wide interval, None unless requested.
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
        *((f"single_runs.{name}", name) for name in ("p50_s", "p90_s", "p99_s")),
    )  # fmt: skip

    model: str
    estimate: Estimate | IncompleteEstimate | None = None
    memory: PeakMemory | UnknownMemory | None = None
    failure: str | None = None
    hint: str = ""
    advice: str | None = None
    setting: Setting = _UNKNOWN
    usual_s: Interval | None = None
    single_runs: SingleRuns | None = None

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
        return self.setting.batch or 1

    @property
    def sample_s(self) -> Interval:
        """The latency for each sample of the batch, of a model that has a whole estimate."""
        return self.latency_s.scaled(1 / self.batch)

    @property
    def samples_per_s(self) -> Interval:
        """Samples a second of all copies together, of a model that has a whole estimate."""
        samples = self.setting.copies * self.batch
        return self.latency_s.map(lambda seconds: samples / seconds if seconds else math.inf)

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
class ModelPredictions:
    """Models in one setting, or in several that differ in ``dimensions``.

    The settings of each model follow one another. ``target`` is the only target, None if there are
    several. ``agreements`` say whether runtimes of this host compute the same.
    """

    FACTS: ClassVar = (
        ("target.system", "system"), ("target.runtime", "runtime"), "granularity", "workers",
        "models", "agreements",
    )  # fmt: skip

    target: Target | None
    granularity: str
    workers: int
    models: tuple[PredictedModel, ...]
    dimensions: tuple[str, ...] = ()
    agreements: tuple[Agreement, ...] = ()

    @property
    def disagreements(self) -> tuple[Agreement, ...]:
        """The models for which two runtimes compute different results."""
        return tuple(of for of in self.agreements if of.verdict.agree is False)

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
        reasons = (model.reason for model in self.models if model.reason is not None)
        return list(dict.fromkeys(reasons))
