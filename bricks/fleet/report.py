"""The result of measuring on many hosts: frozen data, by target and by host.

Must not know how it came about, nor how it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from bricks.samples.measurement import Sampling

if TYPE_CHECKING:
    from bricks.samples.measurement import Failure
    from bricks.system import Target


@dataclass(frozen=True, slots=True)
class HostReport(Sampling):
    """The work of one host. ``left`` says why it no longer takes part; None if it still does.

    ``portions`` counts the batches that it measured. ``changed`` are lines about facts of its
    fingerprint that changed during measurements, and about lack of memory: both make its latencies
    less certain.
    """

    FACTS: ClassVar = (
        "name", "address", "system", "left", "new_bricks", "foreign_cores", "rounds",
        "disturbed_rounds", "changed",
    )  # fmt: skip

    name: str
    address: str
    system: str | None
    left: str | None
    new_bricks: int
    portions: int
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetReport:
    """The progress on one target; ``bricks`` counts all bricks of the models there.

    ``errors`` are lines by the names of models that cannot be decomposed there; ``given_up`` are
    lines about batches that failed too often.
    """

    FACTS: ClassVar = (
        ("target.system", "system"), ("target.runtime", "runtime"), "bricks", "new_bricks",
        "predicted_bricks", "unfinished", "failures", "errors", "given_up",
    )  # fmt: skip

    target: Target
    bricks: int
    new_bricks: int
    predicted_bricks: int
    unfinished: int
    failures: tuple[Failure, ...]
    errors: Mapping[str, str]
    given_up: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetMeasured:
    """The result of measuring on a fleet, by target and by host."""

    targets: tuple[TargetReport, ...]
    hosts: tuple[HostReport, ...]
    wall_s: float
