"""Bytes that are ordinary numbers for whatever floating-point type reads them.

Memory that many values of many types share cannot hold what each would like. Must not know what
lies in it.
"""

from __future__ import annotations

import numpy as np

# After so many bytes all begins again. Four times a prime, so that rows of a matrix are not equal;
# and more than a branch predictor can learn: MXNet's Clip takes several times as long where the
# processor cannot foresee what is cut off.
PERIOD = 4 * 1_048_583


def filled(size_bytes: int, seed: int, *, signed: bool = False) -> np.ndarray:
    """Random bytes, none of which makes a zero, denormal, infinite or NaN of 8 bits or more.

    Each pair of bytes is a float16 between 0.5 and 1 and a bfloat16 between 3e-5 and 4e-3, which
    float32 is too; float64 is between 2e-38 and 2e-22. Each byte is a normal float8. ``signed``
    makes float32 of both signs instead, of magnitudes between 0.01 and 0.9 (then float16 is up to
    2, and float64 between 1e-17 and 1e-3).
    """
    random = np.random.default_rng(seed)
    pairs = random.integers(0x38, 0x3C, PERIOD // 2) << 8 | random.integers(0x20, 0x60, PERIOD // 2)
    if signed:
        pairs[1::2] += 0x400 + (random.integers(0, 2, pairs[1::2].size) << 15)
    return np.resize(pairs.astype("<u2").view(np.uint8), size_bytes)
