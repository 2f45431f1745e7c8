"""A study of another package: the energy of runs, at the power that the user says it draws."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from bricks.compose.estimate import Estimate
from bricks.errors import UsageError
from bricks.graph.model import Model
from bricks.samples.measurement import Measurement
from bricks.session.measuring import measure_whole
from bricks.session.predicting import predict
from bricks.studies.options import argument, option
from bricks.studies.study import Checked, Needs, Study, StudyOffer, StudyPage
from bricks.units.interval import Interval

JOULES_PER_WH = 3600.0


def positive_watts(flag: str, text: str) -> float:
    """A power such as ``65W``."""
    if not text.endswith("W") or not text[:-1].isdecimal() or int(text[:-1]) == 0:
        raise UsageError(f"{flag} {text!r} is no power: write it like 65W")
    return float(text[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """What the host draws."""

    watts: float = option(
        "What the host draws while it computes.",
        default=65.0, metavar="65W", read=positive_watts, shown="65W",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyOptions:
    """Whose energy is asked for."""

    models: list[str] = argument("Models.", metavar="MODEL…")
    meter: Meter = field(default_factory=Meter)
    runs: int = option("Runs of each.", default=1, least=1, metavar="N")


@dataclass(frozen=True, slots=True)
class ModelEnergy:
    """A model's latency, and the energy of all its runs, in watt-hours."""

    FACTS: ClassVar = (
        "model", ("latency_s", "latency_s", "low_s", "high_s"), "energy_wh", "observed_wh", "ratio",
        "error",
    )  # fmt: skip

    model: str
    latency_s: Interval
    energy_wh: Interval
    observed_wh: float | None = None

    @property
    def ratio(self) -> float | None:
        """Predicted over observed."""
        if self.observed_wh is None:
            return None
        return Checked(self.energy_wh, self.observed_wh).ratio


@dataclass(frozen=True, slots=True)
class Unknown:
    """A model of which nothing is known."""

    LIKE: ClassVar = ModelEnergy

    model: str
    error: str


@dataclass(frozen=True, slots=True)
class Energy:
    """The energy of several models."""

    watts: float
    runs: int
    models: tuple[ModelEnergy | Unknown, ...]

    @property
    def errors(self) -> Sequence[str]:
        """Why some are unknown."""
        return [each.error for each in self.models if isinstance(each, Unknown)]


class EnergyStudy(
    Study[EnergyOptions, tuple[ModelEnergy | Unknown, ...], dict[str, float], Energy]
):
    """Energy is power times time, so whatever predicts the one predicts the other."""

    def needs(self) -> Needs:
        """The bricks of all models."""
        self.models: list[Model] = [self.workspace.read(name) for name in self.options.models]
        return Needs(models=self.models)

    def predict(self) -> tuple[ModelEnergy | Unknown, ...]:
        """Each model's energy."""
        return tuple(map(self._of, self.models))

    def _of(self, model: Model) -> ModelEnergy | Unknown:
        estimate = predict(self.workspace, model, measure=False)
        if not isinstance(estimate, Estimate):
            return Unknown(model.name, f"{model.name}: {estimate.gaps[0].reason}")
        latency_s = estimate.latency_s
        return ModelEnergy(model.name, latency_s, latency_s.scaled(self._wh_per_s))

    @property
    def _wh_per_s(self) -> float:
        return self.options.meter.watts * self.options.runs / JOULES_PER_WH

    def observe(
        self,
    ) -> Generator[None, tuple[ModelEnergy | Unknown, ...], dict[str, float]]:
        """Whole models are run."""
        yield
        measure_whole(self.workspace, self.models)
        target, keys = self.workspace.target.key, [each.digest for each in self.models]
        results = self.workspace.store.measurements.results(target, keys)
        return {
            model.name: run.latency_s * self._wh_per_s
            for model in self.models
            if isinstance(run := results.get(model.digest), Measurement)
        }

    def result(
        self,
        prediction: tuple[ModelEnergy | Unknown, ...],
        observation: dict[str, float] | None,
    ) -> Energy:
        """Predicted next to observed."""
        seen = observation or {}
        return Energy(
            self.options.meter.watts,
            self.options.runs,
            tuple(
                replace(each, observed_wh=seen.get(each.model))
                if isinstance(each, ModelEnergy)
                else each
                for each in prediction
            ),
        )


OFFER = StudyOffer(
    name="energy",
    help="""Predict the energy of models, at a power that is stated.

    Example: bricks energy squeezenet --watts 65W
    """,
    options=EnergyOptions,
    load=lambda: EnergyStudy,
    checks=True,
    page=StudyPage(
        path="/energy",
        question="How much energy does a model take?",
        fields={"models": "Model", "watts": "Power", "runs": "Runs"},
        subjects=lambda: ["squeezenet", "vgg19"],
    ),
)
