"""Simpler ways to predict bricks, for comparison: a roofline alone, and the nearest brick.

Used by prediction.py.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bricks.predict.features import BrickFeatures
from bricks.predict.prediction import Prediction
from bricks.predict.roofline import Roofline

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class RooflineOnly:
    """Rates of each kernel, and one error for all bricks."""

    roofline: Roofline
    log_sd: float
    bias: float = 0.0

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick."""
        found = self.roofline.seconds([*features.values()]) if features else ()
        return {k: Prediction(float(s), self.log_sd) for k, s in zip(features, found, strict=True)}


def roofline(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
) -> RooflineOnly:
    """Fitted to all measured bricks."""
    keys = sorted(features)
    known, seconds = [features[key] for key in keys], np.array([latency_s[key] for key in keys])
    fitted = Roofline.fit(known, seconds)
    return RooflineOnly(fitted, _sd(np.log(seconds / fitted.seconds(known))))


@dataclass(frozen=True, slots=True)
class Nearest:
    """The most similar measured brick: first by operator, then tags, then sizes."""

    places: Array
    names: Array
    logs: Array
    log_sd: float
    bias: float = 0.0

    def predict(self, features: Mapping[str, BrickFeatures]) -> dict[str, Prediction]:
        """The latency of each brick."""
        if not features:
            return {}
        own = _nearest(self.places, self.names, *_places([*features.values()]))
        return {
            key: Prediction(math.exp(self.logs[i]), self.log_sd)
            for key, i in zip(features, own, strict=True)
        }


def nearest(
    features: Mapping[str, BrickFeatures],
    latency_s: Mapping[str, float],
    groups: Mapping[str, Collection[str]],
) -> Nearest:
    """Its error is that of every tenth measured brick, predicted from the others."""
    keys = sorted(features)
    logs = np.log([latency_s[key] for key in keys])
    places, names = _places([features[key] for key in keys])
    tenth = np.arange(0, len(keys), 10)
    own = _nearest(places, names, places[tenth], names[tenth], tenth)
    return Nearest(places, names, logs, _sd(logs[own] - logs[tenth]))


def _places(features: Sequence[BrickFeatures]) -> tuple[Array, Array]:
    places = np.zeros((len(features), 10))
    for row, t in zip(places, features, strict=True):
        row[: len(t.sizes)] = t.sizes
        row[-2:] = np.log2([t.flops + 1, t.moved_bytes + 1])
    names = np.array([[t.kind, t.operator, *t.tags, *[""] * (6 - len(t.tags))] for t in features])
    return places, names


def _nearest(
    places: Array, names: Array, at: Array, called: Array, themselves: Array | None = None
) -> Array:
    found = np.zeros(len(at), int)
    for i, (place, name) in enumerate(zip(at, called, strict=True)):
        differ = (names != name) @ np.array([1e6, 1e4, *[10] * (names.shape[1] - 2)])
        distance = differ + np.abs(places - place).sum(axis=1)
        if themselves is not None:
            distance[themselves[i]] = math.inf
        found[i] = int(np.argmin(distance))
    return found


def _sd(errors: Array) -> float:
    """A standard deviation that a few outliers do not decide."""
    return float(np.quantile(np.abs(errors), 0.683))
