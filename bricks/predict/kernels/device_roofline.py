"""Roofline of calls on a GPU: a floor, operations and bytes at the published peaks of a card.

Factors are shares of the peaks, fitted to measured calls: for each operator in each state of the
cache, with those of all calls as a prior. Must not know how residuals are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bricks.predict.factors import fitted_factors, summed_s
from bricks.predict.kernels.features import KernelFeatures
from bricks.system.cards import Card

Array = np.ndarray

# Factors of the parts before anything is measured, as logarithms: a floor of 2 µs, and two thirds
# of the peaks.
_START: Array = np.log([2.0, 1.4, 1.3, 1.3])
_FLOOR_S = 1e-6
# The prior width of factors: of all calls, of a state, and of an operator in a state.
_FREEDOM, _STATE_FREEDOM, _OPERATOR_FREEDOM = 2.0, 1.0, 0.5


@dataclass(frozen=True, slots=True)
class StatedCall:
    """The features of a call, and the state of the cache when it runs (``walk``)."""

    features: KernelFeatures
    state: str

    @property
    def kind(self) -> str:
        """Its operator in its state."""
        return f"{self.features.operator} {self.state}"


@dataclass(frozen=True, slots=True)
class DeviceRoofline:
    """Log-factors of the parts: of all calls, by state, and by operator in a state."""

    factors: Array
    by_state: Mapping[str, Array]
    by_kind: Mapping[str, Array]

    @classmethod
    def fit(cls, calls: Sequence[StatedCall], device_s: Array, card: Card) -> DeviceRoofline:
        """Fit to calls that took ``device_s`` on ``card``."""
        parts = card_parts(calls, card)
        every = fitted_factors(parts, device_s, _START, _FREEDOM)
        states = np.array([call.state for call in calls])
        kinds = np.array([call.kind for call in calls])
        by_state = {
            state: fitted_factors(parts[rows], device_s[rows], every, _STATE_FREEDOM)
            for state in sorted(set(states))
            if (rows := states == state).any()
        }
        by_kind = {
            kind: fitted_factors(
                parts[rows], device_s[rows], by_state[states[rows][0]], _OPERATOR_FREEDOM
            )
            for kind in sorted(set(kinds))
            if (rows := kinds == kind).any()
        }
        return cls(every, by_state, by_kind)

    def seconds(self, calls: Sequence[StatedCall], card: Card) -> Array:
        """Return the seconds of each call on ``card``, by its published peaks."""
        factors = [
            self.by_kind.get(call.kind, self.by_state.get(call.state, self.factors))
            for call in calls
        ]
        return summed_s(card_parts(calls, card), np.array(factors).reshape(-1, len(_START)))


def card_parts(calls: Sequence[StatedCall], card: Card) -> Array:
    """The parts of each call in seconds at the card's peaks: floor, operations, read, written."""
    peaks, bandwidth = card.flops_per_s, card.bandwidth_bytes_per_s
    works = [call.features.work for call in calls]
    rows = [
        (
            _FLOOR_S,
            work.flops / peaks.get(work.precision, peaks["fp32"]),
            work.read_bytes / bandwidth,
            work.written_bytes / bandwidth,
        )
        for work in works
    ]
    return np.array(rows).reshape(-1, len(_START))
