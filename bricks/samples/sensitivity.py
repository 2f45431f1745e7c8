"""How the latency of a brick follows the reference kernels, from what limits the brick.

A brick that computes slows down as the kernels of arithmetic do, one that moves memory as that of
memory, a tiny one as that of calls. The limits follow from the brick's work and from the speeds
that the kernels themselves show on this host. The sum of its parts answers a change of all kernels
by one factor with a little less than that factor, since every kernel has been chosen for swinging.
Must not know how latencies were measured, nor how work is derived from a brick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bricks.samples.call_overhead import PROBES
from bricks.system.host_conditions import (
    CALLS,
    CONVOLUTION,
    KERNELS,
    PRODUCT,
    STREAM,
    HostConditions,
)

# The floating-point operations and the bytes of the kernels.
_CONVOLUTION_FLOPS = 2.0 * 9 * CONVOLUTION[0] ** 2 * CONVOLUTION[1] ** 2
_PRODUCT_FLOPS = 2.0 * PRODUCT[0] * PRODUCT[1] * PRODUCT[2]
_STREAM_BYTES = 2.0 * 4 * STREAM[0] * STREAM[1] * STREAM[2]

# The kernels that each limit of a brick follows, in the order of KERNELS, and the part of a change
# of all kernels that a brick follows. Chosen on an Intel Xeon whose speed flips
# (research/conditions.md): several kernels average over more time than the most similar one.
_FOLLOWED = {
    "convolution": (0.6, 0.2, 0.0, 0.0, 0.2),
    "product": (0.25, 0.55, 0.0, 0.0, 0.2),
    "stream": (0.1, 0.2, 0.7, 0.0, 0.0),
    "calls": (0.1, 0.0, 0.0, 0.5, 0.4),
}
_RESPONSE = 0.9

# Errors of sensitivities, as shares of the change that a brick follows: common to all bricks, and
# of a brick's own; and the part of a change that kernels do not show.
SHARED_SD, INDEPENDENT_SD, UNSEEN_SD = 0.08, 0.15, 0.15

# Values up to this size are read from the caches of a core.
_CACHED_BYTES = 1 << 18

# The speeds of a host whose kernels were not timed: a core of 2024.
_USUAL_S = {"convolution": 7e-4, "product": 1.5e-3, "stream": 1.5e-3, "calls": 4.5e-5}

# With several threads, a byte exchanged costs this share of the kernel of exchange, up to as many
# bytes as caches exchange, and waiting for each other so many of it. A brick follows that kernel
# with these parts of the shares that such costs have in its latency (two EPYC cores of 2024).
_EXCHANGE_PER_BYTE, _MAX_EXCHANGED_BYTES, _WAITING = 1.35e-6, 1.5e6, 0.75
_EXCHANGE_PART, _WAITING_PART, _USUAL_EXCHANGE_S = 0.4, 0.1, 1e-4


@dataclass(frozen=True, slots=True)
class BrickWork:
    """The work of a brick: ``calls`` are its nodes, ``value_bytes`` those read and written.

    ``weight_bytes`` are read in addition. ``convolves`` says whether most operations are of
    convolutions.
    """

    flops: float
    value_bytes: float
    weight_bytes: float
    calls: int
    convolves: bool


# Chains of tiny nodes, whose latencies show the cost of a call.
_PROBES = {key: BrickWork(0.0, 0.0, 0.0, length, convolves=False) for length, key in PROBES.items()}


class Sensitivities:
    """The sensitivities of bricks with known ``work`` by key, on ``threads`` threads.

    ``usual`` are conditions that show the speeds of this host; None: those of a usual host.
    """

    def __init__(
        self, work: Mapping[str, BrickWork], threads: int, usual: HostConditions | None = None
    ) -> None:
        self._work, self._threads = {**_PROBES, **work}, threads
        self._speed_s = {**_USUAL_S, **({} if usual is None else usual.by_kernel)}

    def of(self, key: str, latency_s: float) -> NDArray[np.float64]:
        """The change of the logarithm of a latency for one of each kernel's: shape ``(5,)``.

        A brick whose work is not known follows all kernels.
        """
        work = self._work.get(key)
        if work is None:
            return np.full(len(KERNELS), _RESPONSE / len(KERNELS))
        exchange = self._exchange(work, latency_s)
        limits = self._limits_s(work)
        total_s = sum(limits.values())
        shares = np.array([*limits.values()]) / total_s
        parts = shares @ np.array([_FOLLOWED[name] for name in limits])
        followed: NDArray[np.float64] = _RESPONSE * (1.0 - exchange) * parts
        followed[-1] += _RESPONSE * exchange
        return followed

    def limits(self, key: str) -> tuple[float, float, float]:
        """The shares of a brick's time that arithmetic, memory and calls limit.

        All of it is arithmetic where its work is not known.
        """
        if (work := self._work.get(key)) is None:
            return 1.0, 0.0, 0.0
        arithmetic_s, stream_s, calls_s = self._limits_s(work).values()
        total_s = arithmetic_s + stream_s + calls_s
        return arithmetic_s / total_s, stream_s / total_s, calls_s / total_s

    def _limits_s(self, work: BrickWork) -> dict[str, float]:
        """Seconds that the work takes by what limits it."""
        speed_s = self._speed_s
        beyond = max(0.0, work.value_bytes - _CACHED_BYTES) + work.weight_bytes
        arithmetic = "convolution" if work.convolves else "product"
        flops = _CONVOLUTION_FLOPS if work.convolves else _PRODUCT_FLOPS
        return {
            arithmetic: work.flops / flops * speed_s[arithmetic],
            "stream": beyond / _STREAM_BYTES * speed_s["stream"],
            "calls": max(1, work.calls) / CALLS * speed_s["calls"],
        }

    def _exchange(self, work: BrickWork, latency_s: float) -> float:
        """The part in which a brick on several threads follows the kernel of exchange."""
        if self._threads == 1:
            return 0.0
        kernel_s = self._speed_s.get("exchange", _USUAL_EXCHANGE_S)
        moved = min(work.value_bytes, _MAX_EXCHANGED_BYTES)
        exchanged_s, waited_s = _EXCHANGE_PER_BYTE * moved * kernel_s, _WAITING * kernel_s
        return _EXCHANGE_PART * exchanged_s / (exchanged_s + latency_s) + (
            _WAITING_PART * waited_s / (waited_s + latency_s)
        )


def changes(before: HostConditions | None, after: HostConditions | None) -> NDArray[np.float64]:
    """The logarithms of the changes of all kernels; zeros where one of the two is unknown."""
    if before is None or after is None:
        return np.zeros(len(KERNELS))
    return np.array(before.changes_to(after))


def mean_sensitivity(
    parts: Sequence[tuple[NDArray[np.float64], float]],
) -> NDArray[np.float64]:
    """The sensitivity of a sum whose parts have these sensitivities, and these seconds."""
    total_s = sum(abs(part_s) for _, part_s in parts)
    if not total_s:
        return np.full(len(KERNELS), _RESPONSE / len(KERNELS))
    return np.asarray(sum(of * (part_s / total_s) for of, part_s in parts))
