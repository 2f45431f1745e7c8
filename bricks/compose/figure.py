"""A figure with its interval, as results of simulations have them. Plain data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """A predicted figure, with the ends of an interval that is meant to hold it with 95 %."""

    value: float
    low: float
    high: float
