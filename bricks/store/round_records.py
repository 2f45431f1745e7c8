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
from bricks.units.sample import Kernel, Sample


def samples_of(round_: Round) -> list[Any]:
    """The samples of a round as JSON."""
    if not round_.kernels:
        return list(round_.host_s)
    return [sample.to_json() for sample in round_.samples]


def round_of_samples(
    samples: Sequence[Any],
    reference_s: float | None = None,
    waited_share: float | None = None,
    reference_end_s: float | None = None,
    device_state: Sequence[Any] | None = None,
) -> Round:
    """The inverse of :func:`samples_of`, with the conditions of a record; not checked."""
    conditions = reference_s, waited_share, reference_end_s
    state = None if device_state is None else AcceleratorState.from_json(device_state)
    if list in map(type, samples):  # of JSON; published files have 300,000 rounds
        return Round.of([*map(Sample.from_json, samples)], *conditions, state)
    return Round(tuple(samples), *conditions, device_state=state)


def round_record(round_: Round) -> list[Any]:
    """A round as in a record of a results file."""
    state = [] if round_.device_state is None else [round_.device_state.to_json()]
    conditions = round_.reference_s, round_.waited_share, round_.reference_end_s
    return [samples_of(round_), *conditions, *state]


def round_of_record(record: Sequence[Any]) -> Round:
    """The inverse of :func:`round_record`; not checked."""
    samples, *conditions = record
    return round_of_samples(samples, *conditions)


def checked_round(round_: Round) -> Round:
    """``round_`` itself; ValueError for impossible numbers."""
    for reference_s in (round_.reference_s, round_.reference_end_s):
        if reference_s is not None and not (math.isfinite(reference_s) and reference_s > 0):
            raise ValueError(f"the reference's latency {reference_s!r} is not a positive number")
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
