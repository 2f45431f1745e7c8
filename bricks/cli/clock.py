"""The time at which the command began, from which a budget counts. Must not know commands."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class _Clock:
    """The time at which a command began.

    The first command of a process began when this module was imported, others begin later.
    """

    began_s: float = field(default_factory=time.monotonic)
    first: bool = True


_clock = _Clock()


def begin() -> None:
    """Note that a command begins now."""
    if not _clock.first:
        _clock.began_s = time.monotonic()
    _clock.first = False


def began_s() -> float:
    """The time at which the command began, in seconds of ``time.monotonic()``."""
    return _clock.began_s
