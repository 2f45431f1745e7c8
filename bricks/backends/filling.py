"""Bytes that are ordinary numbers in every floating-point type that reads them.

Values of many types share the activation region, so its contents cannot be drawn for one type. Must
not know these values.
"""

from __future__ import annotations

import numpy as np

# The pattern repeats after this many bytes. It is four times a prime, so that rows of a matrix
# differ, and longer than a branch predictor can learn: MXNet's Clip takes several times as long
# when the processor cannot predict which elements are clipped.
PERIOD = 4 * 1_048_583


def filled(size_bytes: int, seed: int, *, signed: bool = False) -> np.ndarray:
    """Return random bytes that form no zero, denormal, infinity or NaN of 8 bits or more.

    Read as float16, values lie between 0.5 and 1; as bfloat16 or float32, between 3e-5 and 4e-3; as
    float64, between 2e-38 and 2e-22. Each byte is a normal float8. With ``signed``, float32 values
    have both signs and magnitudes between 0.01 and 0.9 (then float16 is up to 2, and float64
    between 1e-17 and 1e-3).
    """
    random = np.random.default_rng(seed)
    pairs = random.integers(0x38, 0x3C, PERIOD // 2) << 8 | random.integers(0x20, 0x60, PERIOD // 2)
    if signed:
        pairs[1::2] += 0x400 + (random.integers(0, 2, pairs[1::2].size) << 15)
    return np.resize(pairs.astype("<u2").view(np.uint8), size_bytes)
