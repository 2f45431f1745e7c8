"""What was learned of the kernels of targets, in a file next to their measurements.

A file is NumPy's archive of arrays (``.npz``): ``about`` is JSON in UTF-8; each target has the
factors of its roofline, and each of its families three arrays, all named by the target's number in
``about``, which also has the host's times for calls. Nothing is pickled. Must not know where files
are stored.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bricks.predict.kernels.device_roofline import DeviceRoofline
from bricks.predict.kernels.host_times import HostTimes
from bricks.predict.kernels.kernel_predictor import KernelPredictor
from bricks.predict.kernels.kernel_process import KernelProcess
from bricks.predict.kernels.parameters import PARAMS
from bricks.system.cards import card_with_peaks

if TYPE_CHECKING:
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
        arrays |= _arrays(place, entry.predictor)
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


def _arrays(place: int, predictor: KernelPredictor) -> dict[str, Array]:
    factors = [*predictor.roofline.by_group.values()]
    families = {
        _name(place, family, name): getattr(process, name)
        for family, process in predictor.processes.items()
        for name in _ARRAYS
    }
    return {_name(place, "roofline", "factors"): np.array(factors), **families}


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
        return None if data is None else _learned(data, arrays, accelerator)


def _learned(
    data: Mapping[str, Any], arrays: Mapping[str, Array], accelerator: Accelerator
) -> LearnedKernels:
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
