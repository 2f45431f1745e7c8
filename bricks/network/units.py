"""Bandwidths and latencies as people write them: ``10Gbit``, ``50us``.

Must not know what they are of.
"""

from __future__ import annotations

import re

from bricks.errors import UsageError

_WRITTEN = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+) ?([A-Za-zµ/]+)")

_BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def bits_per_s(text: str) -> float:
    """A bandwidth in bits a second, from words like ``1Gbit`` or ``100Mbit/s``."""
    found = _number(text, {**_BITS, **{f"{unit}/s": bits for unit, bits in _BITS.items()}})
    if found is None or found <= 0:
        raise UsageError(f"{text!r} is no bandwidth: write it like 1Gbit or 100Mbit")
    return found


def seconds(text: str) -> float:
    """A latency in seconds, from words like ``50us``."""
    found = _number(text, _SECONDS)
    if found is None:
        raise UsageError(f"{text!r} is no latency: write it like 50us or 1ms")
    return found


def written_bits(bits: float) -> str:
    """The inverse of :func:`bits_per_s`, with up to three digits."""
    unit = max((u for u in _BITS if _BITS[u] <= bits), key=lambda u: _BITS[u], default="bit")
    return f"{bits / _BITS[unit]:.3g}{unit}"


def _number(text: str, units: dict[str, float]) -> float | None:
    parts = _WRITTEN.fullmatch(text.strip())
    if parts is None:
        return None
    unit = {name.lower(): factor for name, factor in units.items()}.get(parts[2].lower())
    return None if unit is None else float(parts[1]) * unit
