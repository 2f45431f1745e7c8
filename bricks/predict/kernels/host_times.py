"""The host's seconds for calls that nobody measured, from those of measured calls.

Calls of an operator take about as long whatever the shapes; each tensor of a list adds a little.
Must not know kernels, nor how calls follow each other in a step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.predict.kernels.call_tensors import TensorCall, tensor_call
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.samples.measurement import Measurement

# Each tensor adds this share of a call without any: optimisers' lists of 3 to 500 tensors on two
# hosts took 15 µs, and 0.4 to 1 µs a tensor.
_TENSOR_SHARE = 0.05
_COVERED = 0.95


@dataclass(frozen=True, slots=True)
class HostTimes:
    """What is known of the host's time for calls; seconds are those of calls without any tensor.

    ``by_operator`` are the medians of measured calls; an operator that nobody measured takes
    ``any_s``, the median of all. 95 % of measured calls are within ``own_factor`` of their
    operator's time, and within ``any_factor`` of that of all.
    """

    by_operator: Mapping[str, float]
    any_s: float
    own_factor: float
    any_factor: float

    @classmethod
    def learn(cls, bricks: Mapping[str, Brick], measured: Mapping[str, Measurement]) -> HostTimes:
        """Learn from the bricks that are in both, of which there must be one."""
        by_operator: dict[str, list[float]] = {}
        for key in sorted(bricks.keys() & measured.keys()):
            call = _call(bricks[key])
            own_s = measured[key].latency_s / _weight(call)
            by_operator.setdefault(_name(call), []).append(own_s)
        medians = {operator: median(own) for operator, own in by_operator.items()}
        any_s = median(own_s for own in by_operator.values() for own_s in own)
        return cls(
            medians,
            any_s,
            # The only call of an operator tells nothing of their variation.
            _factor(s / medians[o] for o, own in by_operator.items() if len(own) > 1 for s in own),
            _factor(own_s / any_s for own in by_operator.values() for own_s in own),
        )

    def of(self, brick: Brick) -> Interval:
        """The seconds of a call; ValueError for a brick that is no single call."""
        call = _call(brick)
        known_s = self.by_operator.get(_name(call))
        if known_s is None:
            return Interval.within_factor(_weight(call) * self.any_s, self.any_factor)
        return Interval.within_factor(_weight(call) * known_s, self.own_factor)

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object; the inverse is :meth:`from_json`."""
        return {
            "by_operator": dict(self.by_operator), "any_s": self.any_s,
            "own_factor": self.own_factor, "any_factor": self.any_factor,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> HostTimes:
        """The inverse of :meth:`to_json`."""
        return cls(**data)


def _call(brick: Brick) -> TensorCall:
    call = tensor_call(brick)
    if call is None:
        raise ValueError(f"brick {brick.key} is no call of a recorded program")
    return call


def _name(call: TensorCall) -> str:
    """The operator with its overload; reading a number of the host waits for no device."""
    return f"{call.call.operator} on the host" if call.call.on_host else call.call.operator


def _weight(call: TensorCall) -> float:
    return 1.0 + _TENSOR_SHARE * sum(tensor is not None for tensor in call.inputs)


def _factor(ratios: Iterable[float]) -> float:
    """The factor within which most ratios are of 1; 1 where there are none."""
    logs = [abs(math.log(ratio)) for ratio in ratios]
    return math.exp(float(np.quantile(logs, _COVERED))) if logs else 1.0
