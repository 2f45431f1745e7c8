"""Quantities as people write them: durations, bandwidths, lists of whole numbers.

What is wrong is a :class:`~bricks.errors.UsageError` that shows how to write it.
"""

from __future__ import annotations

import re

from bricks.errors import UsageError

_NUMBER = r"([0-9]*\.?[0-9]+)\s*"
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = re.compile(_NUMBER + r"(us|µs|ms|s)")
# Networks are sold by decimal bits. A lone b is a bit to some and a byte to others.
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BANDWIDTH = re.compile(_NUMBER + r"([kmgt]?)(bits?|bps|bytes?)(?:/s)?", re.IGNORECASE)


def seconds_of(option: str, text: str, what: str = "latency") -> float:
    """A duration such as ``20ms``, in seconds; ``option`` and ``what`` are for the message."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"{option} {text!r} is no {what}: write it like 20ms, 500us or 1.5s")
    return float(found[1]) * _SECONDS[found[2]]


def bytes_per_s_of(option: str, text: str) -> float:
    """A bandwidth such as ``10Gbit``, in bytes per second."""
    found = _BANDWIDTH.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(
            f"{option} {text!r} is no bandwidth: write it like 10Gbit, 100Mbit or 1.25Gbyte"
        )
    per_unit = 1.0 if found[3].lower().startswith("byte") else 1 / 8
    return float(found[1]) * _PREFIXES[found[2].lower()] * per_unit


def whole_numbers_of(option: str, text: str, most: int, what: str) -> list[int]:
    """Whole numbers from 1 to ``most`` such as ``1,4,8``, each once, in the order given."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise UsageError(f"{option} {text!r} are no {what}: write them like 1,4,8")
    return [int(part) for part in dict.fromkeys(parts)]
