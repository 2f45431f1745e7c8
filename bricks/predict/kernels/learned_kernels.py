"""What was learned of the calls of targets, on device and host, in a file beside measurements.

A file is NumPy's archive of arrays (``.npz``): ``about`` is JSON in UTF-8; each target has the
factors of its roofline, and each of its families three arrays, all named by the target's number in
``about``, which also has the host's times for calls. Nothing is pickled.

The host's seconds for calls that nobody measured follow from those of measured calls: calls of an
operator take about as long whatever the shapes; each tensor of a list adds a little. Must not know
where files are stored, nor how calls follow each other in a step.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.predict.kernels.call_tensors import TensorCall, single_call
from bricks.predict.kernels.device_roofline import DeviceRoofline
from bricks.predict.kernels.kernel_predictor import KernelPredictor
from bricks.predict.kernels.kernel_process import PARAMS, KernelProcess
from bricks.system.cards import card_with_peaks
from bricks.units.interval import Interval

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.samples.measurement import Measurement
    from bricks.system.accelerator import Accelerator

# The version of the format and of learning: features, covariances, rooflines and peaks. A change
# of any of them needs a new version: stored files are ignored until they are learned again.
FORMAT, VERSION = "bricks-learned-kernels", 2

Array = np.ndarray

_ARRAYS = ("at", "noise", "residuals")


@dataclass(frozen=True, slots=True)
class LearnedKernels:
    """A predictor of kernels, and the host's times for calls."""

    predictor: KernelPredictor
    host: HostTimes


def written(learned: Mapping[str, LearnedKernels]) -> bytes:
    """Return the content of a file of ``learned``, by target key."""
    arrays: dict[str, Array] = {}
    targets = {}
    for place, (target_key, entry) in enumerate(sorted(learned.items())):
        factors = [*entry.predictor.roofline.by_group.values()]
        arrays[_name(place, "roofline", "factors")] = np.array(factors)
        for family, process in entry.predictor.processes.items():
            for name in _ARRAYS:
                arrays[_name(place, family, name)] = getattr(process, name)
        targets[target_key] = {
            "place": place,
            "host": entry.host.to_json(),
            "counts": dict(entry.predictor.counts),
            "groups": [*entry.predictor.roofline.by_group],
            "families": [*entry.predictor.processes],
        }
    about = {"format": {"name": FORMAT, "version": VERSION}, "targets": targets}
    text = json.dumps(about, allow_nan=False).encode()
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, about=np.frombuffer(text, np.uint8), **arrays)
    return file.getvalue()


def read(content: bytes, target_key: str, accelerator: Accelerator) -> LearnedKernels | None:
    """Return what was learned of a target with an ``accelerator``; None where the file has nothing.

    The file may be of another format or version. Raises :class:`UsageError` where the card's peaks
    are not known.
    """
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != {"name": FORMAT, "version": VERSION}:
            return None
        data = about["targets"].get(target_key)
        if data is None:
            return None
        place = data["place"]
        factors = arrays[_name(place, "roofline", "factors")]
        roofline = DeviceRoofline(dict(zip(data["groups"], factors, strict=True)))
        processes = {
            family: KernelProcess(
                PARAMS[family], *(arrays[_name(place, family, name)] for name in _ARRAYS)
            )
            for family in data["families"]
        }
    card = card_with_peaks(accelerator)
    predictor = KernelPredictor(card, roofline, processes, data["counts"])
    return LearnedKernels(predictor, HostTimes.from_json(data["host"]))


def _name(place: int, family: str, name: str) -> str:
    return f"{place}.{family}.{name}"


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
            call = single_call(bricks[key])
            own_s = measured[key].latency_s / _weight(call)
            by_operator.setdefault(_operator_name(call), []).append(own_s)
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
        call = single_call(brick)
        known_s = self.by_operator.get(_operator_name(call))
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


def _operator_name(call: TensorCall) -> str:
    """The operator with its overload; reading a number of the host waits for no device."""
    return f"{call.call.operator} on the host" if call.call.on_host else call.call.operator


def _weight(call: TensorCall) -> float:
    return 1.0 + _TENSOR_SHARE * sum(tensor is not None for tensor in call.inputs)


def _factor(ratios: Iterable[float]) -> float:
    """The factor within which most ratios are of 1; 1 where there are none."""
    logs = [abs(math.log(ratio)) for ratio in ratios]
    return math.exp(float(np.quantile(logs, _COVERED))) if logs else 1.0
