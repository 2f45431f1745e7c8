"""The conditions of measuring: when to stop, how long a step may take, how much is loaded at once.

They are chosen before a campaign, and hold for all its keys. They must not know which models are
measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bricks.measure.defaults import MAX_BRICKS, MAX_WEIGHT_BYTES, TIMEOUT_S
from bricks.measure.rounds import StopRule


@dataclass(frozen=True, slots=True)
class Conditions:
    """How to measure.

    ``rule`` says when a latency is known well enough. A step that takes longer than ``timeout_s``
    seconds fails. ``budget_s`` is the time for everything in seconds, from ``budget_began_s``
    of ``time.monotonic()`` on, or else from when measuring begins; None: no limit. With
    ``exclusive``, no two processes of a user on one host time at once.

    With ``again``, known keys get further rounds in addition to those that they have.

    At most ``max_eviction_bytes`` are read in place of the weights that a walk leaves out: to read
    more than the caches hold has no effect. Up to ``max_bricks`` bricks with ``max_weight_bytes``
    of weights are measured in turn: the more there are, the longer is the time over which the
    rounds of each are spread. Fewer bytes suit a host with little memory.

    Kernels on a device are also timed after so many ``displaced_bytes``, as in
    :class:`~bricks.units.sample.Sample`.
    """

    rule: StopRule = field(default_factory=StopRule)
    timeout_s: float = TIMEOUT_S
    budget_s: float | None = None
    budget_began_s: float | None = None
    again: bool = False
    exclusive: bool = True
    max_eviction_bytes: int = 1 << 28
    max_bricks: int = MAX_BRICKS
    max_weight_bytes: int = MAX_WEIGHT_BYTES
    displaced_bytes: Sequence[int] = ()

    @property
    def on_device(self) -> bool:
        """Whether kernels run on a device next to the host."""
        return bool(self.displaced_bytes)
