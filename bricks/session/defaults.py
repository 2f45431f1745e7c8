"""The defaults of a bench, and the limits of its options, such as the processors of this host.

Here so that the command line can show them without importing the measuring code. Must not know how
they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bricks.backends import default
from bricks.errors import UsageError
from bricks.graph.form import ModelForm
from bricks.measure.conditions import PRECISION, TIMEOUT_S
from bricks.predict.effort import MIN as MIN_PROBE_BRICKS
from bricks.sources.source import GRANULARITY, PROGRAMS_RUNTIME

if TYPE_CHECKING:
    from bricks.system import Target

__all__ = [
    "CACHE",
    "EFFORT",
    "GRANULARITY",
    "MAX_COPIES",
    "MAX_PROBE_BRICKS",
    "MAX_THREADS",
    "MAX_WORKERS",
    "MIN_PROBE_BRICKS",
    "OPTIMIZATION",
    "PRECISION",
    "PROBE_BRICKS",
    "PROBING_S",
    "PROGRAMS_RUNTIME",
    "RUNTIME",
    "TIMEOUT_S",
    "refuse_crowding",
]

CACHE = "cache"
RUNTIME = default(ModelForm.MODELS)  # of models, unless another one is named
OPTIMIZATION = "all"
EFFORT = "full"

MAX_THREADS = 1024  # more than any host has cores; starting them would take minutes
MAX_COPIES = 1024  # each has a core at least
MAX_WORKERS = 64  # no model has so many branches

# Bricks that probing a target measures, and the seconds that it takes at most.
PROBE_BRICKS, PROBING_S = 96, 60.0
MAX_PROBE_BRICKS = 1000


def refuse_crowding(target: Target) -> None:
    """Raise :class:`UsageError` for more threads, of all copies, than this host has processors.

    The threads would take turns, and a latency would be that of taking turns. One thread is never
    refused: under a quota below one processor it stops, and runs in between as fast as without.
    """
    from bricks.backends import describe_elsewhere  # commands import this to show their help

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
