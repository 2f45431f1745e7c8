"""Rounds as JSON, in the table of rounds and in results files, and the checks of their numbers.

Samples are a list: of seconds, and where kernels ran on a device of ``[host_s, [[kernel,
device_s], …]]``, with the displaced bytes if they are known. A record of a round whose device was
observed ends with its state. Must not know where the JSON lies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bricks.samples.measurement import Round
from bricks.system.accelerator_state import THROTTLES, AcceleratorState
from bricks.system.host_conditions import HostConditions
from bricks.units.sample import Kernel, Sample


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
        known_s = [_positive(end) for end in ends if end is not None]
        exchange_s = sum(known_s) / len(known_s) if known_s else None
        host = None if exchange_s is None else HostConditions.of_exchange(exchange_s).to_json()
    return round_of_samples(samples, host, waited_share, *device)


def _positive(reference_s: object) -> float:
    known = isinstance(reference_s, (int, float)) and not isinstance(reference_s, bool)
    if not known or not (math.isfinite(reference_s) and reference_s > 0):  # type: ignore[arg-type, operator]  # known
        raise ValueError(f"the reference's latency {reference_s!r} is not a positive number")
    return float(reference_s)  # type: ignore[arg-type]  # known


def checked_round(round_: Round) -> Round:
    """``round_`` itself; ValueError for impossible numbers."""
    if round_.host is not None:
        HostConditions.from_json(round_.host.to_json())
    waited_share = round_.waited_share
    if waited_share is not None and not (math.isfinite(waited_share) and waited_share >= 0):
        raise ValueError(f"the share waited, {waited_share!r}, is no share")
    if round_.device_state is not None:
        _check_state(round_.device_state)
    kernels = tuple(tuple(map(_checked_kernel, of)) for of in round_.kernels)
    displaced = round_.displaced_bytes
    if displaced is not None and not (type(displaced) is int and displaced >= 0):
        raise ValueError(f"{displaced!r} displaced bytes are no number of bytes")
    return replace(round_, host_s=_checked_seconds(round_.host_s), kernels=kernels)


def _check_state(state: AcceleratorState) -> None:
    for number in (state.clock_hz, state.power_w):
        known = isinstance(number, (int, float)) and not isinstance(number, bool)
        if number is not None and not (known and math.isfinite(number) and number >= 0):
            raise ValueError(f"the clock or power {number!r} of a device is no positive number")
    if not set(state.throttled_by) <= {*THROTTLES}:
        raise ValueError(f"a device is throttled by {state.throttled_by}, which no device is")


def _checked_seconds(samples: Iterable[object]) -> tuple[float, ...]:
    """``samples`` in seconds; ValueError unless all are finite positive numbers."""
    checked: list[float] = []
    for value in samples:
        number = float(value) if isinstance(value, (int, float)) else math.nan
        if isinstance(value, bool) or not math.isfinite(number) or number <= 0:
            raise ValueError(f"the sample {value!r} is not a finite positive number of seconds")
        checked.append(number)
    return tuple(checked)


def _checked_kernel(kernel: Kernel) -> Kernel:
    name, value = kernel.name, kernel.device_s
    number = float(value) if isinstance(value, (int, float)) else math.nan
    if isinstance(value, bool) or not math.isfinite(number) or number < 0:
        raise ValueError(f"the kernel {name!r} takes {value!r}, which is no number of seconds")
    if not isinstance(name, str):
        raise ValueError(f"the kernel {name!r} has no name")
    return Kernel(name, number)
