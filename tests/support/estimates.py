"""Estimates that tests make up."""

from bricks.compose.estimate import Estimate, Uncertainty
from bricks.studies.inference.prediction import ModelPredictions, PredictedModel
from bricks.studies.inference.settings import Setting, varying
from bricks.units.interval import Interval


def estimate_of(latency_s: Interval, model: str = "m") -> Estimate:
    ends = (latency_s.value, latency_s.low, latency_s.high)
    return Estimate(model, "executed", *ends, 0.0, 0.0, 0.0, 1.0, (), Uncertainty())


def predicted(model: str, latency_s: Interval, **setting: object) -> PredictedModel:
    """A model in a setting: of the fake runtime with one thread on this host by default."""
    asked = Setting(**{"runtime": "fake", "threads": 1, "batch": 1, **setting})  # type: ignore[arg-type]  # fields of mixed types
    return PredictedModel(model=model, estimate=estimate_of(latency_s, model), setting=asked)


def predictions(*models: PredictedModel, swept: bool = True) -> ModelPredictions:
    dimensions = varying(of.setting for of in models) if swept else ()
    return ModelPredictions(None, "executed", 1, models, dimensions)
