"""Refuses to measure with more threads than this host has processors.

Must not know what is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.system import Target


def refuse_crowding(target: Target) -> None:
    """Raise :class:`UsageError` for more threads than this host has processors.

    The threads would take turns, and a latency would be that of taking turns.
    """
    from bricks.backends import describe  # here, since commands import this to show their help

    threads, there = target.runtime.threads, target.system.processors
    if threads > there and describe(target.runtime.backend).timed:
        raise UsageError(
            f"--threads {threads} is more than the {there:.3g} processors of this host, on which"
            f" threads would take turns: give --threads {max(1, int(there))} or fewer"
        )
