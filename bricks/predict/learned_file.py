"""Predictors learned from the measurements of targets, in a file next to the measurements.

Learning takes seconds for each target, and its result depends only on the measurements. A file is
NumPy's archive of arrays (``.npz``): ``about`` is JSON in UTF-8; each kind of brick of each target
has three arrays, named by the target's number in ``about``; each target has its latencies. Means
follow from ``weights``; the covariance matrix is far larger and is left out, see
:mod:`bricks.predict.covariance`. Nothing is pickled. Must not know where files are stored.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bricks.predict.covariance import COVARIANCE_PARAMS, Interpolation
from bricks.predict.predictor import Field, Predictor
from bricks.predict.roofline import Roofline, RooflineLimits

# The version of the format and of learning: features, covariances, rooflines and scales. A change
# of any of them needs a new version: stored files are ignored until they are learned again.
FORMAT, VERSION = "bricks-learned", 4

Array = np.ndarray

# The largest slowness in factors of two: larger ones were outliers.
_MAX_SLOWNESS = 2.0

_KEY = "b1-"  # before the digest in the key of a brick


@dataclass(frozen=True, slots=True)
class Learned:
    """A predictor, and the slowness of the host that predictions are for.

    ``latency_s`` are the latencies in seconds by brick, for predictions of other targets.
    """

    predictor: Predictor
    slowness: float
    latency_s: Mapping[str, float]


def written(learned: Mapping[str, Learned], granularity: str) -> bytes:
    """Return the content of a file of ``learned``, by target key, for bricks of ``granularity``."""
    arrays: dict[str, Array] = {}
    targets = {}
    for index, (target_key, entry) in enumerate(sorted(learned.items())):
        fields = {}
        for kind, field in entry.predictor.fields.items():
            process = field.process
            for name in ("at", "noise", "weights"):
                arrays[_name(index, kind, name)] = getattr(process, name)
            fields[kind] = {
                "roofline": _roofline_json(field.roofline),
                "scales": dict(field.scales),
                "kernels": sorted(field.kernels),
            }
        keys = sorted(entry.latency_s)
        digests = b"".join(bytes.fromhex(key.removeprefix(_KEY)) for key in keys)
        arrays[_name(index, "latencies", "keys")] = np.frombuffer(digests, np.uint8)
        seconds = [entry.latency_s[key] for key in keys]
        arrays[_name(index, "latencies", "seconds")] = np.array(seconds, np.float32)
        limits = entry.predictor.limits
        rates = limits.flops_per_s, limits.bytes_per_s
        targets[target_key] = {
            "place": index,
            "learned_from": entry.predictor.learned_from,
            "bias": entry.predictor.bias,
            "general": _roofline_json(entry.predictor.general),
            # JSON lacks infinite rates.
            "limits": [rate if math.isfinite(rate) else None for rate in rates],
            "fields": fields,
            "slowness": entry.slowness,
        }
    about = {
        "format": {"name": FORMAT, "version": VERSION},
        "granularity": granularity,
        "targets": targets,
    }
    text = json.dumps(about, allow_nan=False).encode()
    arrays["about"] = np.frombuffer(text, np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **arrays)
    return file.getvalue()


def read(content: bytes, target_key: str, granularity: str) -> Learned | None:
    """Return the predictor of a target; None if the file has none, or is of another version."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != {"name": FORMAT, "version": VERSION}:
            return None
        data = about["targets"].get(target_key)
        if data is None or about["granularity"] != granularity:
            return None
        fields = {
            kind: _field(kind, field, arrays, data["place"])
            for kind, field in data["fields"].items()
        }
        keys, seconds = (
            arrays[_name(data["place"], "latencies", name)] for name in ("keys", "seconds")
        )
    general = _roofline(data["general"])
    limits = RooflineLimits(*(math.inf if rate is None else rate for rate in data["limits"]))
    predictor = Predictor(data["learned_from"], data["bias"], fields, general, limits)
    text = keys.tobytes().hex()
    names = (_KEY + text[i : i + 32] for i in range(0, len(text), 32))
    latency_s = dict(zip(names, seconds.tolist(), strict=True))
    return Learned(predictor, _slowness(data), latency_s)


def _slowness(data: Mapping[str, Any]) -> float:
    """The slowness that predictions are for: earlier files have the references that they saw."""
    if "slowness" in data:
        return float(data["slowness"])
    seen_s, usual_s = [s for s, _ in data["seen"] if s is not None], data["state_s"]
    if usual_s is None or not seen_s:
        return 0.0
    return min(_MAX_SLOWNESS, max(0.0, math.log2(usual_s / min(seen_s))))


def _name(index: int, kind: str, name: str) -> str:
    return f"{index}.{kind}.{name}"


def _field(kind: str, data: Mapping[str, Any], arrays: Mapping[str, Array], index: int) -> Field:
    params = COVARIANCE_PARAMS[kind]
    at, noise, weights = (arrays[_name(index, kind, n)] for n in ("at", "noise", "weights"))
    return Field(
        params,
        _roofline(data["roofline"]),
        Interpolation(params, at, noise, weights, None),
        data["scales"],
        frozenset(data["kernels"]),
    )


def _roofline_json(roofline: Roofline) -> dict[str, Any]:
    by_kernel = {name: factors.tolist() for name, factors in roofline.by_kernel.items()}
    return {"factors": roofline.factors.tolist(), "own": by_kernel}


def _roofline(data: Mapping[str, Any]) -> Roofline:
    """A roofline without the bricks that it was fitted to, which yields seconds only."""
    by_kernel = {name: np.array(factors) for name, factors in data["own"].items()}
    return Roofline.known(np.array(data["factors"]), by_kernel)
