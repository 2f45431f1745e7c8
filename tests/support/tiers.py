"""Which tests `make test` leaves to `make test-all`: those that are marked as slow.

A test is slow if it takes seconds and others hold the same law in less: kills by the dozen, all of
a zoo, pages whose commands really measure. CONTRIBUTING lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

# Whether this run is `make test`: set when it begins.
quick = False

# How many examples Hypothesis draws for a law in `make test`; `make test-all` draws 100.
QUICK_EXAMPLES = 20


def slow_but(fast: Callable[[Any], bool], values: Iterable[Any]) -> list[Any]:
    """Parameters of which only those that are ``fast`` run each time."""

    def param(value: Any) -> Any:
        several = value if isinstance(value, tuple) else (value,)
        return pytest.param(*several, marks=() if fast(value) else pytest.mark.slow)

    return [param(value) for value in values]


def one_in(count: int, values: Iterable[Any]) -> list[Any]:
    """Parameters of which the first runs each time, and then every so many."""
    every = list(values)
    fast = {id(value) for value in every[::count]}
    return slow_but(lambda value: id(value) in fast, every)
