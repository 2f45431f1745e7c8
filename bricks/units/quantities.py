"""Parsing and writing of quantities: durations, bandwidths, lists of whole numbers.

An invalid text is a :class:`~bricks.errors.UsageError` that shows how to write it.
"""

from __future__ import annotations

import re

from bricks.errors import UsageError

_NUMBER = r"([0-9]*\.?[0-9]+)\s*"
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_DURATION = re.compile(_NUMBER + r"(us|µs|ms|s)")
# Networks are sold by decimal bits. A single b is a bit to some and a byte to others.
_PREFIXES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_BANDWIDTH = re.compile(_NUMBER + r"([kmgt]?)(bits?|bps|bytes?)(?:/s)?", re.IGNORECASE)

_BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


def seconds_of(option: str, text: str, what: str = "latency") -> float:
    """Parse a duration such as ``20ms`` to seconds; ``option`` and ``what`` are for the message."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(f"{option} {text!r} is no {what}: write it like 20ms, 500us or 1.5s")
    return float(match[1]) * _SECONDS[match[2]]


def bytes_per_s_of(option: str, text: str) -> float:
    """Parse a bandwidth such as ``10Gbit`` to bytes per second."""
    match = _BANDWIDTH.fullmatch(text.strip())
    if match is None or float(match[1]) <= 0:
        raise UsageError(
            f"{option} {text!r} is no bandwidth: write it like 10Gbit, 100Mbit or 1.25Gbyte"
        )
    per_unit = 1.0 if match[3].lower().startswith("byte") else 1 / 8
    return float(match[1]) * _PREFIXES[match[2].lower()] * per_unit


def whole_numbers_of(option: str, text: str, most: int, what: str) -> list[int]:
    """Parse distinct whole numbers from 1 to ``most`` such as ``1,4,8``, in their order."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 1 <= int(part) <= most for part in parts):
        raise UsageError(f"{option} {text!r} are no {what}: write them like 1,4,8")
    return [int(part) for part in dict.fromkeys(parts)]


def written_bits(bits: float) -> str:
    """Bits per second in the largest unit that they fill, with up to three digits."""
    unit = max((u for u in _BITS if _BITS[u] <= bits), key=lambda u: _BITS[u], default="bit")
    return f"{bits / _BITS[unit]:.3g}{unit}"
