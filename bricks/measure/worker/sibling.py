"""Detects a busy sibling hyperthread of a core, which on a cloud host may run another tenant.

This host has no counter of its work, but while it is busy, the core issues fewer of our
instructions. Calls and branches take 1.6 times as long, products 1.1 times (measured on an EPYC of
2024), and both may change within a tenth of a second. So the latency of a chain of trivial nodes
shows it, as long as the reference workload, which is mostly products and communication, shows an
unchanged machine state. Must not know which bricks are measured meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from bricks.backends.base import BoundModel
from bricks.samples.machine_state import same_state

# Runs of the chain.
_WARM_UPS, _RUNS = 2, 5

# A chain that takes longer than the fastest by this factor had a busy sibling. Without one, it
# varies by a few per cent.
_BUSY_FACTOR = 1.2


class SiblingWatch:
    """The chain, and its lowest latency in each machine state that this process encountered."""

    def __init__(self, load: Callable[[], BoundModel]) -> None:
        self._load = load
        self._chain: BoundModel | None = None
        self._fastest_s: dict[float, float] = {}  # by the reference's latency

    def busy_share(self, reference_s: float) -> float:
        """The share of the core that its sibling takes now; 0 if it may be noise.

        ``reference_s`` is the latency of the reference workload now, in seconds.
        """
        if self._chain is None:
            self._chain = self._load()
        for _ in range(_WARM_UPS):
            self._chain.sample()
        now_s = min(self._chain.sample().host_s for _ in range(_RUNS))
        state_s = next((s for s in self._fastest_s if same_state(s, reference_s)), reference_s)
        fastest_s = self._fastest_s[state_s] = min(now_s, self._fastest_s.get(state_s, now_s))
        return 1 - fastest_s / now_s if now_s > _BUSY_FACTOR * fastest_s else 0.0
