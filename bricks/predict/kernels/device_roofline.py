"""Roofline of calls on a GPU: a floor, operations and bytes at the published peaks of a card.

Factors are shares of the peaks, fitted to measured calls in ever smaller groups: all, those in a
state of the cache, those of an operator, and those with its tags. Each group is the prior of the
next.

Matrix products take the seconds of their tiles, in waves over the multiprocessors.

A product is cut into tiles of its result, and each multiprocessor computes one at a time: the last
tiles of a row and the last wave are paid for in full, however little of them is used. Where tiles
are few, their terms are cut too, and the partial sums are added up by another kernel. A tile takes
what its operations take, or what it takes to load its rows and columns from the L2 cache.

Source: NVIDIA, *Matrix Multiplication Background User's Guide* (tile sizes of cuBLAS, tile and wave
quantization) and *Convolutional Layers User's Guide* (quantization effects). Must not know how
residuals are used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bricks.predict.roofline import fitted_factors, summed_s

if TYPE_CHECKING:
    from bricks.predict.kernels.work import CallWork, KernelFeatures
    from bricks.system.cards import Card

Array = np.ndarray

# Factors of the parts before anything is measured, as logarithms: a floor of 2 µs, and two thirds
# of the peaks.
_START: Array = np.log([2.0, 1.4, 1.3, 1.3])
_FLOOR_S = 1e-6
# The prior width of factors: of all calls, of a state, of an operator, and of one with its tags.
_FREEDOMS = (2.0, 1.0, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class StatedCall:
    """The features of a call, and the state of the cache when it runs (``walk``)."""

    features: KernelFeatures
    state: str

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups that it is in, the smallest last."""
        operator = f"{self.state} {self.features.operator}"
        return "", self.state, operator, f"{operator} {' '.join(self.features.work.tags)}"


@dataclass(frozen=True, slots=True)
class DeviceRoofline:
    """Log-factors of the parts, by the name of a group of calls; the empty name is of all."""

    by_group: Mapping[str, Array]

    @classmethod
    def fit(cls, calls: Sequence[StatedCall], device_s: Array, card: Card) -> DeviceRoofline:
        """Fit to calls that took ``device_s`` on ``card``."""
        parts, known = card_parts(calls, card), cls({})
        for depth, freedom in enumerate(_FREEDOMS):
            fitted = {
                group: fitted_factors(parts[rows], device_s[rows], prior, freedom)
                for group, (rows, prior) in _members(calls, depth, known).items()
            }
            known = cls({**known.by_group, **fitted})
        return known

    def factors(self, call: StatedCall) -> Array:
        """The factors of the smallest known group of a call."""
        known = (self.by_group[name] for name in reversed(call.groups) if name in self.by_group)
        return next(known, _START)

    def seconds(self, calls: Sequence[StatedCall], card: Card) -> Array:
        """Return the seconds of each call on ``card``, by its published peaks."""
        factors = np.array([self.factors(call) for call in calls])
        return summed_s(card_parts(calls, card), factors.reshape(-1, len(_START)))


def _members(
    calls: Sequence[StatedCall], depth: int, known: DeviceRoofline
) -> dict[str, tuple[list[int], Array]]:
    """The calls of each group of one depth, and the factors of the group around it."""
    rows: dict[str, list[int]] = {}
    for at, call in enumerate(calls):
        rows.setdefault(call.groups[depth], []).append(at)
    return {name: (own, known.factors(calls[own[0]])) for name, own in sorted(rows.items())}


def card_parts(calls: Sequence[StatedCall], card: Card) -> Array:
    """The parts of each call in seconds at the card's peaks: floor, operations, read, written."""
    bandwidth, works = card.bandwidth_bytes_per_s, [call.features.work for call in calls]
    moved = np.array([(work.read_bytes, work.written_bytes) for work in works]).reshape(-1, 2)
    floors = _FLOOR_S * np.array([work.kernels for work in works], float)
    return np.column_stack([floors, products_s(works, card), moved / bandwidth])


# Rows and columns of tiles, and into how many parts the terms are cut.
_TILES = (
    (256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64),
    (32, 32),
)  # fmt: skip
_SPLITS = (1, 2, 4, 8, 16, 32, 64, 128)
# Bytes of an element in each precision; sums are in 4.
_ITEM_BYTES = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1}
_SUM_BYTES = 4
# Bytes that the L2 gives a multiprocessor in a cycle: 5120 for 108 of them (A100 whitepaper).
_L2_BYTES = 5120 / 108
_SPLIT_S = 1e-6
# Cycles of a term that small tiles do not hide: a load from shared memory without tensor cores; a
# sixteenth of an instruction of tensor cores (Luo et al., 2024, tables of latencies).
_TERM_CYCLES, _TENSOR_CYCLES = {"fp32": 30}, 2


def products_s(works: Sequence[CallWork], card: Card) -> Array:
    """Seconds of the products of each call at the peaks of ``card``."""
    at = [place for place, work in enumerate(works) for _ in work.products]
    if not at:
        return np.zeros(len(works))
    products = [product for work in works for product in work.products]
    sizes = np.array([(p.batch, p.m, p.n, p.k) for p in products], float)
    rates = np.array([_rates(works[place], card) for place in at])
    whole_s = np.array([p.flops for p in products]) / rates[:, 0] / _count(card)
    tiled_s = _fastest_s(sizes, rates, card) * [p.times for p in products]
    each = np.where([p.tiled for p in products], tiled_s, whole_s)
    return np.bincount(at, each, len(works))


def _count(card: Card) -> int:
    return card.accelerator.multiprocessors


def _rates(work: CallWork, card: Card) -> tuple[float, float, float]:
    """Operations a second of a multiprocessor, elements that it loads in one, and least seconds.

    The last is what a term takes in the smallest tile.
    """
    peaks = card.flops_per_s
    clock_hz = card.accelerator.clock_hz or 1e9
    of_one = peaks.get(work.precision, peaks["fp32"]) / _count(card)
    cycles = _TERM_CYCLES.get(work.precision, _TENSOR_CYCLES)
    return of_one, _L2_BYTES * clock_hz / _ITEM_BYTES[work.precision], cycles / clock_hz


def _fastest_s(rows: Array, rates: Array, card: Card) -> Array:
    """Seconds with the tile and the number of parts that take least."""
    batch, m, n, k = rows.T
    flops_per_s, loads_per_s, least_s = rates.T
    best = np.full(len(rows), np.inf)
    for high, wide in _TILES:
        tiles = batch * np.ceil(m / high) * np.ceil(n / wide)
        loads = np.minimum(m, high) + np.minimum(n, wide)
        term_s = np.maximum(2 * high * wide / flops_per_s, loads / loads_per_s)
        term_s = np.maximum(term_s, least_s)
        for parts in _SPLITS:
            waves = np.ceil(tiles * parts / _count(card))
            own = waves * np.ceil(k / parts) * term_s
            if parts > 1:
                moved = 2 * parts * batch * m * n * _SUM_BYTES
                own = own + _SPLIT_S + moved / card.bandwidth_bytes_per_s
            best = np.minimum(best, own)
    return best
