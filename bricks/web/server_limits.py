"""Limits of a server on its clients, and what it keeps of uploads.

Here because a page shows all of them. Must not know how they are enforced.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Keep(Enum):
    """The part of an uploaded model that is kept: the model without weights, its plan, or none."""

    MODEL = "model"
    PLAN = "plan"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits of a server; sizes are in bytes, times in seconds.

    ``queue`` is the number of models that may wait, ``per_client`` that of models of one client
    that may wait, arrive or be decomposed, ``arriving`` that of uploads at the same time.
    ``decomposers`` is the number of parallel decomposers, each with a process of its own.
    ``answer_s`` is the lifetime of an answer before it is computed again. ``held_bytes`` of uploads
    without weights are held in memory. A page waits ``wait_s`` for an answer before it says that it
    is being made.
    """

    upload_bytes: int = 32 << 20
    upload_s: float = 60.0
    form_bytes: int = 4096
    queue: int = 16
    per_client: int = 2
    arriving: int = 6
    decomposers: int = 2
    decompose_s: float = 120.0
    answer_s: float = 600.0
    answers: int = 256
    held_bytes: int = 128 << 20
    wait_s: float = 1.0
    jobs: int = 512
    # A workspace remembers all that it has decomposed: after so many, a fresh one replaces it.
    renew_after: int = 256
    measure_s: float = 60.0
