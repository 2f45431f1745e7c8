"""What measuring on many hosts came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bricks.samples.measurement import Failure
from bricks.system import Target


@dataclass(frozen=True, slots=True)
class HostReport:
    """What one host did. ``left`` says why it is no longer part of it; None: it still is.

    ``changed`` are facts of its fingerprint that became others while it measured, and what else
    makes its latencies worth less. ``foreign_cores``, ``rounds`` and ``disturbed_rounds`` are as in
    :class:`bricks.Measured`.
    """

    name: str
    address: str
    system: str | None
    left: str | None
    new_bricks: int
    portions: int
    foreign_cores: float | None
    rounds: int
    disturbed_rounds: int
    changed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TargetReport:
    """What is measured of one target. ``bricks`` are all that the models need there.

    ``errors`` are lines by the names of models that cannot be decomposed there; ``given_up`` are
    lines about bricks that no host could be made to measure.
    """

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
    """What measuring on a fleet did, by target and by host."""

    targets: tuple[TargetReport, ...]
    hosts: tuple[HostReport, ...]
    wall_s: float
