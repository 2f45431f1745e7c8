"""Classifies bricks by their use of a core's caches: long, heavy or light.

Must not know how walks are made.
"""

from __future__ import annotations

from bricks.decompose.plan import Brick, work_of
from bricks.decompose.stretches import SHORTEST

# A brick with more work than this (see ``work_of``; it takes about a millisecond) touches more
# memory than the caches hold.
_LONG_WORK = 8e6

# A brick with so much more work takes tens of milliseconds: what the caches held before makes no
# difference to it.
_VERY_LONG_WORK = 64 * _LONG_WORK

# Weights of fewer bytes stay in the caches in any case.
HEAVY_BYTES = 1 << 16

# Bytes that a session keeps for a node, about: a core's cache of 1 MiB holds a thousand nodes, and
# not six thousand.
_NODE_BYTES = 192

# A brick with fewer bytes of weights than HEAVY_BYTES, and of activations than these, has its data
# in the caches in any case; but its session is evicted if it runs once in a pass.
_LIGHT_BYTES = 1 << 18


def is_long(brick: Brick) -> bool:
    """Whether a brick evicts the contents of the caches before it."""
    return work_of(brick) > _LONG_WORK


def is_very_long(brick: Brick) -> bool:
    """Whether a brick takes so long that it does not matter what ran before it."""
    return work_of(brick) > _VERY_LONG_WORK


def is_heavy(brick: Brick) -> bool:
    """Whether a brick finds its weights, or its session, in the caches only if it has just run."""
    return brick.numeric_weight_bytes >= HEAVY_BYTES or len(brick.operators) >= SHORTEST


def is_light(brick: Brick) -> bool:
    """Whether a brick's data are in the caches in any case."""
    weights = brick.numeric_weight_bytes
    if len(brick.operators) >= SHORTEST:
        return False
    return weights < HEAVY_BYTES and brick.bytes_moved - weights < _LIGHT_BYTES


def session_bytes(brick: Brick) -> int:
    """Bytes of its own that a session reads in a run of a stretch; they are cold for many nodes.

    They are 0 for other bricks, which are light, and run twice, or much heavier than this.
    """
    return _NODE_BYTES * len(brick.operators) if len(brick.operators) >= SHORTEST else 0


def read_once_bytes(brick: Brick) -> int:
    """Bytes that one run reads and no run before it: weights, and data of its session."""
    return brick.numeric_weight_bytes + session_bytes(brick)
