"""What a step takes on each lane of a host with a device: plain data.

Must not know how it is composed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from bricks.system.accelerator import AcceleratorState
    from bricks.units.interval import Interval

# Origins of the costs of launching.
MEASURED, ASSUMED = "measured", "assumed"


@dataclass(frozen=True, slots=True)
class DeviceTimes:
    """Seconds of a step: of its kernels on the device, and of its calls on the host.

    ``limited_by`` is the lane that has more to do, ``host`` or ``device``. ``pipelined_s`` is a
    step of many that are not waited for, as in a loop of training steps; ``graph_s`` one whose
    kernels are launched together as a CUDA graph, None for a step that cannot be one: it waits for
    values. ``kernels`` is the number of kernels. ``throttled`` is the state of the device while
    ``throttled_share`` of the kernels' seconds was measured with its clock lowered; None: none was.
    ``launching`` says where the costs of launching kernels are from, ``MEASURED`` or ``ASSUMED`` as
    on other cards.
    """

    FACTS: ClassVar = (
        ("device_s", "device_s", "device_low_s", "device_high_s"),
        ("host_s", "host_s", "host_low_s", "host_high_s"), "limited_by",
        ("pipelined_s", "pipelined_s", "pipelined_low_s", "pipelined_high_s"),
        ("graph_s", "graph_s", "graph_low_s", "graph_high_s"), "kernels",
        "throttled_share", "throttled_by", "launching",
    )  # fmt: skip

    device_s: Interval
    host_s: Interval
    limited_by: str
    pipelined_s: Interval
    graph_s: Interval | None
    kernels: int
    throttled_share: float = 0.0
    throttled: AcceleratorState | None = None
    launching: str = MEASURED

    @property
    def throttled_by(self) -> tuple[str, ...]:
        """What lowered the clock."""
        return () if self.throttled is None else self.throttled.throttled_by


def device_facts(path: str) -> tuple[tuple[str, ...], ...]:
    """Entries of ``FACTS``: those of the :class:`DeviceTimes` at ``path``."""
    entries = ((of, of) if isinstance(of, str) else of for of in DeviceTimes.FACTS)
    return tuple((f"{path}.{name}", *keys) for name, *keys in entries)
