"""Records of results files to frozen data, for merging and reading; rounds to JSON and back.

Each record is validated in isolation. Rounds look the same in the table of rounds and in results
files: samples are a list of seconds, and where kernels ran on a device of ``[host_s, [[kernel,
device_s], …]]``, with the displaced bytes if they are known. A record of a round whose device was
observed ends with its state. Must not know how records are used.
"""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from bricks.decompose.occurrence import Occurrence, usage_of
from bricks.decompose.plan import Brick
from bricks.errors import first_line
from bricks.samples.measurement import Round
from bricks.system.accelerator import THROTTLES, AcceleratorState
from bricks.system.host_conditions import HostConditions
from bricks.system.network import NetworkFingerprint
from bricks.system.target import Runtime, System, Target, checked_price
from bricks.units.sample import Kernel, Sample

if TYPE_CHECKING:
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


def samples_of(round_: Round) -> list[Any]:
    """The samples of a round as JSON."""
    if not round_.kernels:
        return list(round_.host_s)
    return [sample.to_json() for sample in round_.samples]


def round_of_samples(
    samples: Sequence[Any],
    host: Sequence[Any] | None = None,
    waited_share: float | None = None,
    device_state: Sequence[Any] | None = None,
) -> Round:
    """The inverse of :func:`samples_of`, with the conditions of a record; samples not checked."""
    conditions = None if host is None else HostConditions.from_json(host)
    state = None if device_state is None else AcceleratorState.from_json(device_state)
    if list in map(type, samples):  # of JSON; published files have 300,000 rounds
        return Round.of([*map(Sample.from_json, samples)], conditions, waited_share, state)
    return Round(tuple(samples), conditions, waited_share, device_state=state)


def round_record(round_: Round) -> list[Any]:
    """A round as in a record of a results file: samples, conditions, share waited, and device."""
    host = None if round_.host is None else round_.host.to_json()
    state = [] if round_.device_state is None else [round_.device_state.to_json()]
    return [samples_of(round_), host, round_.waited_share, *state]


def round_of_record(record: Sequence[Any]) -> Round:
    """The inverse of :func:`round_record`; samples not checked.

    Records of earlier versions have numbers in place of conditions: seconds of the kernel of
    exchange before the round, and after the share waited those after it.
    """
    samples, host, waited_share, *others = record
    device = [other for other in others if isinstance(other, list)]
    if not isinstance(host, list):
        ends = [host, *(other for other in others if not isinstance(other, list))]
        known_s = [_number(end) for end in ends if end is not None]
        for reference_s in ends:
            if reference_s is not None and not _number(reference_s) > 0:
                raise ValueError(
                    f"the reference's latency {reference_s!r} is not a positive number"
                )
        exchange_s = sum(known_s) / len(known_s) if known_s else None
        host = None if exchange_s is None else HostConditions.of_exchange(exchange_s).to_json()
    return round_of_samples(samples, host, waited_share, *device)


def _number(value: object) -> float:
    """``value`` if it is a finite number; else NaN, which no comparison holds for."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else math.nan  # type: ignore[arg-type]  # known


def checked_round(round_: Round) -> Round:
    """``round_`` itself; ValueError for impossible numbers."""
    if round_.host is not None:
        HostConditions.from_json(round_.host.to_json())
    waited_share = round_.waited_share
    if waited_share is not None and not (math.isfinite(waited_share) and waited_share >= 0):
        raise ValueError(f"the share waited, {waited_share!r}, is no share")
    if (state := round_.device_state) is not None:
        for number in (state.clock_hz, state.power_w):
            if number is not None and not _number(number) >= 0:
                raise ValueError(f"the clock or power {number!r} of a device is no positive number")
        if not set(state.throttled_by) <= {*THROTTLES}:
            raise ValueError(f"a device is throttled by {state.throttled_by}, which no device is")
    for kernel in (kernel for of in round_.kernels for kernel in of):
        name, value = kernel.name, kernel.device_s
        if not _number(value) >= 0:
            raise ValueError(f"the kernel {name!r} takes {value!r}, which is no number of seconds")
        if not isinstance(name, str):
            raise ValueError(f"the kernel {name!r} has no name")
    kernels = tuple(
        tuple(Kernel(kernel.name, float(kernel.device_s)) for kernel in of) for of in round_.kernels
    )
    displaced = round_.displaced_bytes
    if displaced is not None and not (type(displaced) is int and displaced >= 0):
        raise ValueError(f"{displaced!r} displaced bytes are no number of bytes")
    for value in round_.host_s:
        if not _number(value) > 0:
            raise ValueError(f"the sample {value!r} is not a finite positive number of seconds")
    return replace(round_, host_s=tuple(map(float, round_.host_s)), kernels=kernels)
