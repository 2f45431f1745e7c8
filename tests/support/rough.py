"""Measuring in few rounds, which take most of the time of tests that look at no latency."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from bricks import Conditions, StopRule
from bricks.measure import campaign, conditions
from bricks.measure.conditions import PRECISION

ROUGH = Conditions(rule=StopRule(precision=0.5))


@contextmanager
def measuring_calls_roughly() -> Iterator[None]:
    """Calls of a runtime are measured in some rounds, not dozens, which takes most of little."""

    def replaced(rule: StopRule, **fields: Any) -> StopRule:
        few = {"min_rounds": 6, "max_rounds": 12} if fields.get("min_rounds", 0) > 6 else {}
        return replace(rule, **fields | few)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(campaign, "replace", replaced)
        yield


@contextmanager
def measuring_roughly() -> Iterator[None]:
    """Commands of this process measure like ``ROUGH``, where they are not told how precisely."""

    def rule(*, precision: float = PRECISION, **fields: Any) -> StopRule:
        return StopRule(precision=0.5 if precision == PRECISION else precision, **fields)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conditions, "StopRule", rule)
        yield
