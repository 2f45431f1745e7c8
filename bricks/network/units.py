"""Bandwidths as people write them: ``10Gbit``. Must not know what they are of."""

from __future__ import annotations

_BITS = {"bit": 1.0, "kbit": 1e3, "Mbit": 1e6, "Gbit": 1e9, "Tbit": 1e12}


def written_bits(bits: float) -> str:
    """Bits a second in the largest unit that they fill, with up to three digits."""
    unit = max((u for u in _BITS if _BITS[u] <= bits), key=lambda u: _BITS[u], default="bit")
    return f"{bits / _BITS[unit]:.3g}{unit}"
