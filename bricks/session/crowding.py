"""Refuses to measure with more threads than this host has processors.

Must not know what is measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.errors import UsageError

if TYPE_CHECKING:
    from bricks.system import Target


def refuse_crowding(target: Target) -> None:
    """Raise :class:`UsageError` for more threads, of all copies, than this host has processors.

    The threads would take turns, and a latency would be that of taking turns. One thread is never
    refused: under a quota below one processor it stops, and runs in between as fast as without.
    """
    from bricks.backends import (
        describe_elsewhere,
    )  # here, since commands import this to show their help

    threads, copies = target.runtime.threads, target.runtime.copies
    there, most = target.system.processors, target.system.most_threads
    if threads * copies <= most or not describe_elsewhere(target.runtime.backend).timed:
        return
    if copies > 1:
        raise UsageError(
            f"{copies} copies with --threads {threads} need {copies * threads} processors, and this"
            f" host has {there:.3g}: give --copies {max(1, most // threads)}"
        )
    raise UsageError(
        f"--threads {threads} is more than the {there:.3g} processors of this host, on which"
        f" threads would take turns: give --threads {most}{'' if most == 1 else ' or fewer'}"
    )
