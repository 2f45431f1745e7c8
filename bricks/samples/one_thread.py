"""Small matrices on one thread: more threads wait for each other longer than they compute.

On two busy cores, solving for a hundred bricks with two threads takes a hundred times as long. And
what one thread computes does not depend on how many there are. Must not know what is computed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """A context in which the library of linear algebra under NumPy uses one thread."""
    limits: AbstractContextManager[Any] = _controller().limit(limits=1, user_api="blas")
    return limits


@cache
def _controller() -> Any:
    import numpy  # noqa: F401  # the controller finds what is loaded

    return ThreadpoolController()
