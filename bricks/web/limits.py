"""The limits of a server: what anybody may ask of it, and what it keeps.

Here because all of them are stated on a page. Must not know how they are kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Keep(Enum):
    """What is kept of an uploaded model: the model without weights, its plan, or nothing."""

    MODEL = "model"
    PLAN = "plan"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server takes. Sizes are in bytes, times in seconds.

    ``queue`` is how many models may wait, ``per_client`` how many of one client may wait, arrive or
    be decomposed, ``arriving`` how many uploads may arrive at the same time. ``decomposers`` work
    side by side, each with a process of its own. ``answer_s`` is how long an answer is given again
    before it is made anew, from what was measured since.
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
    jobs: int = 512
    # A workspace remembers all that it has decomposed: after so many, a fresh one replaces it.
    renew_after: int = 256
    measure_s: float = 60.0
