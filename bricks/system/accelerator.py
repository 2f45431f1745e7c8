"""An accelerator of a host: the facts of a GPU that determine how fast its kernels run.

A system with an accelerator has these facts in its identity. Must not know any runtime.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# The name of the fact in a system's identity.
ACCELERATOR = "accelerator"

# The devices that may run a model: the processor, or the accelerator.
CPU, CUDA = DEVICES = "cpu", "cuda"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU called ``name``, as its driver calls it.

    ``capability`` is its compute capability (``9.0``), ``l2_bytes`` the size of its last cache,
    ``clock_hz`` the highest clock of its multiprocessors. Facts that are not known are None.
    """

    name: str
    memory_bytes: int
    l2_bytes: int
    multiprocessors: int
    capability: str
    clock_hz: float | None = None
    memory_clock_hz: float | None = None
    power_limit_w: float | None = None

    @property
    def slug(self) -> str:
        """Its name as one word: ``nvidia-h100-80gb-hbm3``."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    def to_json(self) -> dict[str, Any]:
        """All facts."""
        return asdict(self)

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Accelerator:
        """The inverse of :meth:`to_json`; TypeError for other facts."""
        return cls(**facts)
