"""Sketches: rounded facts about the values of a tensor on which the time of an operator depends.

Most operators take the same time for all values. Some branch on the sign of each element, sort,
search, select, or do work for each distinct value. A brick that is measured outside its model must
read values of the same distribution as in the model. A sketch holds the facts about a distribution
on which an operator's time depends, rounded so that equal work has one brick. Must not know
operators.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bricks.graph.distributions import (
    CHANGES_STEP,
    column_quantiles,
    draw_boxes,
    log_size,
    mask_shares,
    one_digit,
    quantiles_of,
    rounded_count,
    set_marked_count,
    sign_pattern,
    slow_share,
    stepped,
    three_digits,
    values_at_shares,
    with_distinct,
)  # fmt: skip

# Facts of a sketch. SIGNS: the share of negative elements, and of changes of sign from one element
# to the next. SIZE: the mean of absolute values. ZEROS: as SIGNS, of zeros.
# DISTINCT: the number of distinct values. ORDER: the share of elements greater than the one before.
# QUANTILES: the distribution. COLUMNS: the distribution in each column of the last axis.
SIGNS, SIZE, ZEROS, DISTINCT = "signs", "size", "zeros", "distinct"
# LARGE: the distribution, if numbers are large. SELECTED: as ZEROS, but exact, because other values
# depend on the number of selected elements. DENSITY: as ZEROS, in orders of magnitude. DENORMALS:
# the share of denormal elements.
ORDER, QUANTILES, COLUMNS, LARGE = "order", "quantiles", "columns", "large"
SELECTED, DENSITY, DENORMALS = "selected", "density", "denormals"

# The fields of a sketch for each fact.
_FIELDS = {
    SIGNS: ("negative", "changes"),
    SIZE: ("log_size",),
    ZEROS: ("zeros", "changes"),
    SELECTED: ("zeros", "changes"),
    DENSITY: ("zeros", "changes"),
    DISTINCT: ("distinct", "nan"),
    ORDER: ("rises",),
    QUANTILES: ("quantiles", "nan"),
    COLUMNS: ("columns", "quantiles", "nan"),
    LARGE: ("quantiles",),
    DENORMALS: ("denormals",),
}

# More columns than these share one distribution.
MOST_COLUMNS = 256
# Number of elements that are examined; more make no difference.
_SAMPLE = 1 << 20

# Functions take longer beyond this magnitude: their results saturate or underflow.
_LARGE = 8
# Fields that a sketch of signs only lacks.
_BEYOND_SIGNS = (
    "zeros", "nan", "distinct", "rises", "quantiles", "columns", "places", "denormals",
)  # fmt: skip
# Quantiles within this share of the range of random ones, plus sampling noise, count as random.
_TOLERANCE, _NOISE = 0.1, 2.5


@dataclass(frozen=True, slots=True)
class Sketch:
    """Distribution of one tensor's values; facts whose fields are None are as in synthetic values.

    ``negative`` and ``zeros`` are shares of elements. ``changes`` is the share of elements whose
    sign (or being zero, if only ``zeros`` is known) differs from that of the element before, in the
    order of memory. ``log_size`` is log2 of the mean of absolute values. ``distinct`` is a number
    of values, ``rises`` the share of elements greater than the one before, among elements that
    differ from it. ``quantiles`` are at ``SHARES``, ``columns`` the same for each column of the
    last axis. ``nan`` and ``denormals`` are shares of elements. Boxes lie at a number of
    ``places``, and boxes at one place are equal. Their columns are centres and sizes, with rank
    correlations ``ties``; boxes are stored as centres and sizes if ``centred``, else as two
    corners.
    """

    negative: float | None = None
    changes: float | None = None
    log_size: float | None = None
    zeros: float | None = None
    nan: float | None = None
    distinct: int | None = None
    rises: float | None = None
    quantiles: tuple[float, ...] | None = None
    columns: tuple[tuple[float, ...], ...] | None = None
    ties: tuple[float, ...] | None = None
    places: int | None = None
    centred: bool | None = None
    denormals: float | None = None

    @classmethod
    def of(cls, values: np.ndarray, facts: Collection[str]) -> Sketch:
        """Return the rounded ``facts`` of ``values``, numbers or booleans of any shape."""
        flat = np.ravel(values)[:_SAMPLE]
        if flat.dtype == bool:
            flat = flat.astype(np.int8)
        fields: dict[str, Any] = {}
        if SELECTED in facts or ZEROS in facts:
            fields |= mask_shares(flat == 0, "zeros", three_digits)
        elif DENSITY in facts:
            fields |= {k: one_digit(v) for k, v in mask_shares(flat == 0, "zeros").items()}
        if SELECTED in facts:
            fields["zeros"] = 1 - np.count_nonzero(values) / max(1, values.size)
        if SIGNS in facts:
            fields |= mask_shares(flat < 0, "negative", stepped)
        if SIZE in facts:
            fields["log_size"] = log_size(flat)
        finite = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
        if {QUANTILES, COLUMNS, DISTINCT}.intersection(facts) and finite.size < flat.size:
            fields["nan"] = three_digits(1 - finite.size / flat.size)
        if DENORMALS in facts and flat.dtype.kind == "f":
            tiny = (flat != 0) & (np.abs(flat) < np.finfo(flat.dtype).smallest_normal)
            fields["denormals"] = slow_share(tiny.mean()) or None if tiny.size else None
        if DISTINCT in facts:
            fields["distinct"] = rounded_count(np.unique(finite).size, flat.size)
        if ORDER in facts and flat.size > 1:
            steps = np.sign(np.diff(finite.astype(np.float64)))
            rises = (steps > 0).sum() / max(1, np.count_nonzero(steps)) if steps.any() else 0.5
            fields["rises"] = round(float(rises) / CHANGES_STEP) * CHANGES_STEP
        tabular = values.ndim > 1 and 1 < values.shape[-1] <= MOST_COLUMNS
        if COLUMNS in facts and tabular:
            rows = values.reshape(-1, values.shape[-1])[:_SAMPLE]
            fields["columns"] = column_quantiles(rows)
        elif QUANTILES in facts or COLUMNS in facts:
            fields["quantiles"] = quantiles_of(finite)
        elif LARGE in facts:
            tails = quantiles_of(finite)
            if max(-tails[2], tails[-3]) > _LARGE:  # of five per cent on either side
                fields["quantiles"] = tails
        return cls(**fields)

    @property
    def signs_only(self) -> bool:
        """Whether the sketch holds signs, perhaps sizes, and no other fact."""
        return self.negative is not None and all(
            getattr(self, name) is None for name in _BEYOND_SIGNS
        )

    @property
    def is_constant(self) -> bool:
        """Whether all values that are drawn are equal, or those of each column."""
        columns = self.columns or (() if self.quantiles is None else (self.quantiles,))
        return bool(columns) and all(column[0] == column[-1] for column in columns)

    def with_facts(self, facts: Collection[str]) -> Sketch | None:
        """Return a sketch of only ``facts``; None if this one has none of them."""
        fields = {field for fact in facts for field in _FIELDS[fact]}
        kept = {name: value for name, value in asdict(self).items() if name in fields}
        if kept.get("negative") is None and kept.get("zeros") is None:
            kept["changes"] = None  # of the elements that another fact marks
        reduced = Sketch(**kept)
        return None if reduced == Sketch() else reduced

    def differing_from(self, random: np.ndarray) -> Sketch | None:
        """Return a sketch of the facts that differ from ``random`` values; None if none does.

        Bricks read random values by default. Signs and sizes are always kept, because they depend
        on the bricks before.
        """
        flat = np.ravel(random)[:_SAMPLE]
        # Sampling noise of shares of few random values.
        noise = _NOISE / math.sqrt(max(1, flat.size))
        kept = {name: value for name, value in asdict(self).items() if value is not None}
        if self.zeros is not None and self.zeros == three_digits(np.mean(flat == 0)):
            del kept["zeros"]
            if self.negative is None:
                del kept["changes"]
        if self.rises is not None and abs(self.rises - 0.5) <= CHANGES_STEP + noise:
            kept.pop("rises")
        if self.distinct is not None:
            expected = np.unique(flat).size
            if abs(self.distinct - expected) <= _TOLERANCE * expected:
                kept.pop("distinct")
        if self.quantiles is not None and _is_random(self.quantiles, quantiles_of(flat), noise):
            kept.pop("quantiles")
        if self.columns is not None:
            rows = random.reshape(-1, random.shape[-1])[:_SAMPLE]
            column_noise = _NOISE / math.sqrt(max(1, len(rows)))
            columns = zip(self.columns, rows.T, strict=True)
            if all(_is_random(own, quantiles_of(column), column_noise) for own, column in columns):
                kept.pop("columns")
        return Sketch(**kept) if kept else None

    def drawn(self, random: np.ndarray, seed: int) -> np.ndarray:
        """Draw values of this sketch, with the type and shape of ``random``.

        Facts that the sketch lacks are as in ``random``. Another ``seed`` gives other values.
        """
        rng = np.random.default_rng((seed, 1))
        if self.signs_only:
            return self._signed(random, rng, seed)
        count = random.size
        if self.places is not None and self.columns is not None:
            boxes = draw_boxes(self.columns, self.ties or (), self.places, count // 4, rng)
            if not self.centred:
                half = boxes[:, 2:] / 2
                boxes = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)
            return boxes.astype(random.dtype).reshape(random.shape)
        if self.columns is not None:
            rows = count // random.shape[-1]
            columns = [
                rng.permutation(values_at_shares((np.arange(rows) + rng.random()) / rows, column))
                for column in self.columns
            ]
            flat = np.stack(columns, axis=1).reshape(-1)
        elif {self.quantiles, self.distinct, self.rises} != {None}:
            flat = self._ordered(random, rng)
        else:
            flat = np.ravel(random).astype(np.float64)
        if self.zeros is not None:
            zero = sign_pattern(count, self.zeros, self.changes or 0.0, seed) < 0
            set_marked_count(zero, round(count * self.zeros), rng)
            flat = np.where(zero, 0, np.where(flat == 0, 1, flat))
        if random.dtype.kind in "iu":
            limits = np.iinfo(random.dtype)
            flat = np.clip(np.rint(flat), limits.min, limits.max)
        values = flat.astype(random.dtype)
        if self.denormals:
            smallest = np.finfo(values.dtype).smallest_normal
            tiny = rng.random(count) < self.denormals
            values[tiny] = rng.uniform(-0.9, 0.9, tiny.sum()).astype(values.dtype) * smallest
        if self.nan:
            values[rng.random(count) < self.nan] = np.nan
        return values.reshape(random.shape)

    def _signed(self, random: np.ndarray, rng: np.random.Generator, seed: int) -> np.ndarray:
        assert self.negative is not None
        signs = sign_pattern(random.size, self.negative, self.changes or 0.0, seed)
        if self.log_size is None:
            sizes = np.abs(np.ravel(random))
        else:
            # A normal distribution's mean absolute value is less than its standard deviation.
            deviation = np.float32(2**self.log_size * np.sqrt(np.pi / 2))
            sizes = np.abs(rng.standard_normal(random.size, np.float32)) * deviation
        values: np.ndarray = (signs * sizes).astype(random.dtype)
        return values.reshape(random.shape)

    def _ordered(self, random: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """As many values of the distribution as ``random`` has, with the sketch's share of rises.

        They are in sorted runs, or at random.
        """
        if self.quantiles is None:
            ascending = np.sort(np.ravel(random)).astype(np.float64)
        else:
            ascending = values_at_shares(np.linspace(0, 1, random.size), self.quantiles)
        whole_numbers = random.dtype.kind in "iu"
        if whole_numbers:
            ascending = np.rint(ascending)
        if self.distinct is not None:
            ascending = with_distinct(ascending, self.distinct, whole_numbers)
        count = ascending.size
        rises = 0.5 if self.rises is None else self.rises
        falling, share = rises < 0.5, max(rises, 1 - rises)
        if share < 0.5 + CHANGES_STEP:
            return rng.permutation(ascending)
        # Values rise within a run, and rarely from run to run: the share of rises sets the length.
        length = count if share == 1 else max(2, round(1 / (1 - share)))
        shuffled = rng.permutation(ascending) if share < 1 else ascending
        whole = count // length * length
        ordered = np.concatenate(
            [np.sort(shuffled[:whole].reshape(-1, length)).reshape(-1), np.sort(shuffled[whole:])]
        )
        return ordered[::-1] if falling else ordered

    def to_json(self) -> dict[str, Any]:
        """The fields that are not None, by name."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sketch:
        """Read the fields of :meth:`to_json`."""
        fields = dict(data)
        if "quantiles" in fields:
            fields["quantiles"] = tuple(fields["quantiles"])
        if "ties" in fields:
            fields["ties"] = tuple(fields["ties"])
        if "columns" in fields:
            fields["columns"] = tuple(map(tuple, fields["columns"]))
        return cls(**fields)


def _is_random(quantiles: tuple[float, ...], random: tuple[float, ...], noise: float) -> bool:
    tolerance = (_TOLERANCE / 2 + noise) * (random[-1] - random[0])
    return all(abs(a - b) <= tolerance for a, b in zip(quantiles, random, strict=True))
