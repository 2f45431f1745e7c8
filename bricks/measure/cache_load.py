"""How a brick loads the caches of a core, as far as a walk depends on it.

Must not know how walks are made.
"""

from __future__ import annotations

from bricks.decompose.plan import Brick, work_of
from bricks.decompose.stretches import SHORTEST

# A brick with more work than this (see ``work_of``; it takes about a millisecond) touches more
# memory than the caches hold.
_LONG_WORK = 8e6

# Weights of fewer bytes stay in the caches anyway.
HEAVY_BYTES = 1 << 16

# About what a session keeps of a node: a core's cache of 1 MiB holds a thousand of them, and not
# six thousand.
_NODE_BYTES = 192

# A brick with fewer bytes of weights than that, and of activations than these, has its data in the
# caches in any case; but its session has left them where it runs once in a pass.
_LIGHT_BYTES = 1 << 18


def is_long(brick: Brick) -> bool:
    """Whether it evicts what was in the caches before it."""
    return work_of(brick) > _LONG_WORK


def is_heavy(brick: Brick) -> bool:
    """Whether it finds its weights, or its session, in the caches only if it has just run."""
    return brick.numeric_weight_bytes >= HEAVY_BYTES or len(brick.operators) >= SHORTEST


def is_light(brick: Brick) -> bool:
    """Whether its data are in the caches in any case."""
    weights = brick.numeric_weight_bytes
    if len(brick.operators) >= SHORTEST:
        return False
    return weights < HEAVY_BYTES and brick.bytes_moved - weights < _LIGHT_BYTES


def session_bytes(brick: Brick) -> int:
    """What a session reads of its own in a run of a stretch, which of thousands of nodes is cold.

    Other bricks are light, and run twice, or so heavy that it does not count.
    """
    return _NODE_BYTES * len(brick.operators) if len(brick.operators) >= SHORTEST else 0


def read_once_bytes(brick: Brick) -> int:
    """Bytes that a run reads and none before it has: weights, and what its session keeps."""
    return brick.numeric_weight_bytes + session_bytes(brick)
