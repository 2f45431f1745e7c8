"""Decodes records of results files into frozen data, for merging and reading.

Each record is validated in isolation. Must not know how records are used.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bricks.decompose.occurrence import Occurrence, usage_of
from bricks.decompose.plan import Brick
from bricks.errors import first_line
from bricks.store.round_records import checked_round, round_of_record
from bricks.system.network import NetworkFingerprint
from bricks.system.target import Runtime, System, Target, checked_price

if TYPE_CHECKING:
    from bricks.samples.measurement import Round
    from bricks.store.reading import ModelUsage


def system_of(data: Mapping[str, Any]) -> System:
    """A system; ValueError where its key stands for another."""
    price = data.get("price_per_hour")
    system = System(
        str(data["name"]),
        dict(data["identity"]),
        dict(data["recorded"]),
        None if price is None else checked_price(price),
    )
    if system.key != data["key"]:
        raise ValueError(f"the system {data['name']} is not the one that its key stands for")
    return system


def network_of(data: Mapping[str, Any]) -> NetworkFingerprint:
    """A network; ValueError where its key stands for another."""
    network = NetworkFingerprint(str(data["name"]), dict(data["identity"]), dict(data["recorded"]))
    if network.key != data["key"]:
        raise ValueError(f"the network {network.name} is not the one that its key stands for")
    return network


def target_of(data: Mapping[str, Any], system: System) -> Target:
    """A target on ``system``; ValueError where its key stands for another."""
    target = Target(system, Runtime(**data["runtime"]))
    if target.key != data["key"]:
        raise ValueError(f"the target {data['key']} is not the one that its key stands for")
    return target


def brick_of(data: Mapping[str, Any]) -> Brick:
    """A brick; whether its key is that of its content is not checked."""
    return Brick.from_json(str(data["key"]), b64decode(data["model"], validate=True), data)


def usage_of_plan(data: Mapping[str, Any]) -> ModelUsage:
    """The model's name and the usage of its bricks in a plan's JSON; faster than the plan."""
    return str(data["model"]), usage_of([*map(Occurrence.from_json, data["occurrences"])])


@dataclass(frozen=True, slots=True)
class SettledMeasurement:
    """A measurement: its rounds, or why there are none."""

    key: str
    wall_s: float
    rounds: tuple[Round, ...]
    reason: str | None

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> SettledMeasurement:
        """The measurement in a record; ValueError for impossible numbers."""
        key, wall_s, reason = str(data["brick"]), float(data["wall_s"]), data.get("reason")
        if not (math.isfinite(wall_s) and wall_s >= 0):
            raise ValueError(f"the measurement of {key} took {wall_s} s")
        rounds = tuple(checked_round(round_of_record(record)) for record in data.get("rounds", ()))
        if (reason is None) != bool(rounds) or not all(round_.host_s for round_ in rounds):
            raise ValueError(f"the measurement of {key} has neither samples nor a reason")
        line = None if reason is None else first_line(Exception(str(reason)))
        return cls(key, wall_s, rounds, line)
