"""Sketches of values: what the time of an operator depends on in the numbers that it reads.

Most operators take the same time whatever they read. Some branch on the sign of each element, sort,
search, select, or do something for each distinct value. A brick that is measured in another model's
place, or alone, must read values of the distribution that they have in its model; a sketch is as
much of it as an operator's time depends on (a subset of the traits below), rounded so that equal
work has one brick. Must not know operators.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

# Traits. SIGNS: how many elements are negative, and how often the sign changes from one to the
# next. SIZE: the mean of their absolute values. ZEROS: as SIGNS, of zeros. DISTINCT: how many
# distinct values there are. ORDER: how many elements are greater than that before. QUANTILES: the
# distribution. COLUMNS: the distribution in each column of the last axis.
SIGNS, SIZE, ZEROS, DISTINCT = "signs", "size", "zeros", "distinct"
# LARGE: the distribution, where numbers are large. SELECTED: as ZEROS, but exactly, since what is
# selected has to fit other values. DENSITY: as ZEROS, in orders of magnitude. DENORMALS: how many
# are denormal.
ORDER, QUANTILES, COLUMNS, LARGE = "order", "quantiles", "columns", "large"
SELECTED, DENSITY, DENORMALS = "selected", "density", "denormals"

# The fields of a sketch that tell of a trait.
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

# Shares at which quantiles are kept: the tails matter to thresholds.
SHARES = (0.0, 0.01, 0.05, *(n / 10 for n in range(1, 10)), 0.95, 0.99, 1.0)
# Of more columns than these, all have one distribution.
MOST_COLUMNS = 256
# Elements that are looked at; more tell no more.
_SAMPLE = 1 << 20

# Patterns are told apart in steps of these: a brick is measured for each pattern that it meets.
_SHARE_STEP, _CHANGES_STEP, _DIGITS = 1 / 8, 1 / 16, 3
# A share of zeros or of NaN decides how much an operator selects, and is kept more exactly.
_SELECTED_DIGITS = 3
# Of the logarithm of the size to the base of 2. Beyond these sizes one way is taken nearly always.
_SIZE_STEP, _SMALLEST, _LARGEST = 1 / 4, -8, 4
# From one quantile to the next: beyond this ratio, sizes are told apart by their orders.
_SEVERAL = math.log(4)
# Functions take longer beyond this size: their results round to another one, or to nothing.
_LARGE = 8
# What a sketch of signs alone does not tell.
_BEYOND_SIGNS = (
    "zeros", "nan", "distinct", "rises", "quantiles", "columns", "places", "denormals",
)  # fmt: skip
# How far values may be from random ones and still be called so.
_ALIKE, _CHANCE = 0.1, 2.5


@dataclass(frozen=True, slots=True)
class Sketch:
    """What is known of the values of one tensor; None: nothing, values are synthetic in that.

    ``negative`` and ``zeros`` are shares of elements, ``changes`` the share of those whose sign (or
    whether they are zero, if only ``zeros`` is known) differs from that of the element before, in
    the order in which they lie in memory. ``log_size`` is the logarithm to the base of 2 of the
    mean of absolute values. ``distinct`` is a number of values, ``rises`` the share of elements
    greater than the one before, of those that differ. ``quantiles`` are at ``SHARES``, ``columns``
    the same for each column of the last axis. ``nan`` is a share of elements. Boxes lie at a number
    of ``places``, those at one place being equal; their columns are those of centres and sizes,
    with rank correlations ``ties``, and they are written so, if they are ``centred``, or as two
    corners. ``denormals`` is a share of elements.
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
    def of(cls, values: np.ndarray, traits: Collection[str]) -> Sketch:
        """The sketch of ``values``, numbers or booleans of any shape, rounded."""
        flat = np.ravel(values)[:_SAMPLE]
        if flat.dtype == bool:
            flat = flat.astype(np.int8)
        found: dict[str, Any] = {}
        if SELECTED in traits or ZEROS in traits:
            found |= _pattern(flat == 0, "zeros", _selected)
        elif DENSITY in traits:
            found |= {k: _magnitude(v) for k, v in _pattern(flat == 0, "zeros").items()}
        if SELECTED in traits:
            found["zeros"] = 1 - np.count_nonzero(values) / max(1, values.size)
        if SIGNS in traits:
            found |= _pattern(flat < 0, "negative", _stepped)
        if SIZE in traits:
            found["log_size"] = _log_size(flat)
        plain = flat[np.isfinite(flat)] if flat.dtype.kind == "f" else flat
        if {QUANTILES, COLUMNS, DISTINCT}.intersection(traits) and plain.size < flat.size:
            found["nan"] = _selected(1 - plain.size / flat.size)
        if DENORMALS in traits and flat.dtype.kind == "f":
            tiny = (flat != 0) & (np.abs(flat) < np.finfo(flat.dtype).smallest_normal)
            found["denormals"] = _stepped(tiny.mean()) or None if tiny.size else None
        if DISTINCT in traits:
            found["distinct"] = _rounded_count(np.unique(plain).size, flat.size)
        if ORDER in traits and flat.size > 1:
            risen = np.sign(np.diff(plain.astype(np.float64)))
            rises = (risen > 0).sum() / max(1, np.count_nonzero(risen)) if risen.any() else 0.5
            found["rises"] = round(float(rises) / _CHANGES_STEP) * _CHANGES_STEP
        wide = values.ndim > 1 and 1 < values.shape[-1] <= MOST_COLUMNS
        if COLUMNS in traits and wide:
            rows = values.reshape(-1, values.shape[-1])[:_SAMPLE]
            found["columns"] = columns_of(rows)
        elif QUANTILES in traits or COLUMNS in traits:
            found["quantiles"] = _quantiles(plain)
        elif LARGE in traits:
            tails = _quantiles(plain)
            if max(-tails[2], tails[-3]) > _LARGE:  # of five per cent on either side
                found["quantiles"] = tails
        return cls(**found)

    @property
    def signs_alone(self) -> bool:
        """Whether it tells of signs, and at most of the size, and of nothing else."""
        return self.negative is not None and all(
            getattr(self, name) is None for name in _BEYOND_SIGNS
        )

    def with_facts(self, traits: Collection[str]) -> Sketch | None:
        """What of it tells of these traits; None: nothing."""
        fields = {field for trait in traits for field in _FIELDS[trait]}
        kept = {name: value for name, value in asdict(self).items() if name in fields}
        if kept.get("negative") is None and kept.get("zeros") is None:
            kept["changes"] = None  # of what another trait marks
        found = Sketch(**kept)
        return None if found == Sketch() else found

    def differing_from(self, random: np.ndarray) -> Sketch | None:
        """What of it differs from ``random`` values, which a brick reads anyway; None: nothing.

        Signs and sizes are always kept: those of what a brick reads depend on what ran before it.
        """
        flat = np.ravel(random)[:_SAMPLE]
        # Of few random values, the shares differ by chance.
        chance = _CHANCE / math.sqrt(max(1, flat.size))
        kept = {name: value for name, value in asdict(self).items() if value is not None}
        if self.zeros is not None and self.zeros == _selected(np.mean(flat == 0)):
            del kept["zeros"]
            if self.negative is None:
                del kept["changes"]
        if self.rises is not None and abs(self.rises - 0.5) <= _CHANGES_STEP + chance:
            kept.pop("rises")
        if self.distinct is not None:
            usual = np.unique(flat).size
            if abs(self.distinct - usual) <= _ALIKE * usual:
                kept.pop("distinct")
        if self.quantiles is not None and _alike(self.quantiles, _quantiles(flat), chance):
            kept.pop("quantiles")
        if self.columns is not None:
            rows = random.reshape(-1, random.shape[-1])[:_SAMPLE]
            by_chance = _CHANCE / math.sqrt(max(1, len(rows)))
            columns = zip(self.columns, rows.T, strict=True)
            if all(_alike(mine, _quantiles(column), by_chance) for mine, column in columns):
                kept.pop("columns")
        return Sketch(**kept) if kept else None

    def drawn(self, random: np.ndarray, seed: int) -> np.ndarray:
        """Values like ``random`` in type and shape, and in all that the sketch does not tell.

        Another ``seed`` gives other values of the same sketch.
        """
        rng = np.random.default_rng((seed, 1))
        if self.signs_alone:
            return self._signed(random, rng, seed)
        count = random.size
        if self.places is not None and self.columns is not None:
            made = boxes_at(self.columns, self.ties or (), self.places, count // 4, rng)
            if not self.centred:
                half = made[:, 2:] / 2
                made = np.concatenate([made[:, :2] - half, made[:, :2] + half], axis=1)
            return made.astype(random.dtype).reshape(random.shape)
        if self.columns is not None:
            rows = count // random.shape[-1]
            at = (np.arange(rows) + rng.random()) / rows
            drawn = np.stack([rng.permutation(_at(at, column)) for column in self.columns], axis=1)
            flat = drawn.reshape(-1)
        elif {self.quantiles, self.distinct, self.rises} != {None}:
            flat = self._ordered(self._ascending(random), rng)
        else:
            flat = np.ravel(random).astype(np.float64)
        if self.zeros is not None:
            zero = pattern(count, self.zeros, self.changes or 0.0, seed) < 0
            _mark(zero, round(count * self.zeros), rng)
            flat = np.where(zero, 0, np.where(flat == 0, 1, flat))
        if random.dtype.kind in "iu":
            limits = np.iinfo(random.dtype)
            flat = np.clip(np.rint(flat), limits.min, limits.max)
        made = flat.astype(random.dtype)
        if self.denormals:
            smallest = np.finfo(made.dtype).smallest_normal
            tiny = rng.random(count) < self.denormals
            made[tiny] = rng.uniform(-0.9, 0.9, tiny.sum()).astype(made.dtype) * smallest
        if self.nan:
            made[rng.random(count) < self.nan] = np.nan
        return made.reshape(random.shape)

    def _signed(self, random: np.ndarray, rng: np.random.Generator, seed: int) -> np.ndarray:
        assert self.negative is not None
        signs = pattern(random.size, self.negative, self.changes or 0.0, seed)
        if self.log_size is None:
            sizes = np.abs(np.ravel(random))
        else:
            # The mean of a normal distribution's absolute values is less than its deviation.
            deviation = np.float32(2**self.log_size * np.sqrt(np.pi / 2))
            sizes = np.abs(rng.standard_normal(random.size, np.float32)) * deviation
        made: np.ndarray = (signs * sizes).astype(random.dtype)
        return made.reshape(random.shape)

    def _ascending(self, random: np.ndarray) -> np.ndarray:
        """As many values as in ``random``, of the distribution and with as many distinct ones."""
        if self.quantiles is None:
            values = np.sort(np.ravel(random)).astype(np.float64)
        else:
            values = _at(np.linspace(0, 1, random.size), self.quantiles)
        whole = random.dtype.kind in "iu"
        if whole:
            values = np.rint(values)
        return values if self.distinct is None else _with_distinct(values, self.distinct, whole)

    def _ordered(self, ascending: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The values in an order of as many rises as there are: runs, or at random."""
        count = ascending.size
        rises = 0.5 if self.rises is None else self.rises
        falling, share = rises < 0.5, max(rises, 1 - rises)
        if share < 0.5 + _CHANGES_STEP:
            return rng.permutation(ascending)
        # Within a run all rise, from one to the next hardly any: so long are the runs.
        length = count if share == 1 else max(2, round(1 / (1 - share)))
        shuffled = rng.permutation(ascending) if share < 1 else ascending
        whole = count // length * length
        made = np.concatenate(
            [np.sort(shuffled[:whole].reshape(-1, length)).reshape(-1), np.sort(shuffled[whole:])]
        )
        return made[::-1] if falling else made

    def to_json(self) -> dict[str, Any]:
        """What is known, by the names of the fields."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Sketch:
        """The inverse of :meth:`to_json`."""
        known = dict(data)
        if "quantiles" in known:
            known["quantiles"] = tuple(known["quantiles"])
        if "ties" in known:
            known["ties"] = tuple(known["ties"])
        if "columns" in known:
            known["columns"] = tuple(map(tuple, known["columns"]))
        return cls(**known)


def pattern(count: int, negative: float, changes: float, seed: int) -> np.ndarray:
    """So many numbers, 1 and -1, float32, of which a share is ``negative``, in runs.

    ``changes`` is the share of those that differ from the number before; the lengths of the runs
    are random.
    """
    if not 0 < negative < 1 or not changes:
        # Rounding has removed one sign, or all changes: one run of each sign is left.
        border = round(count * (1 - negative))
        return np.repeat(np.array((1, -1), np.float32), (border, count - border))
    random = np.random.default_rng(seed)
    # A run of either sign ends with such a chance that its share, and that of changes, follow.
    ends = np.minimum(1.0, changes / 2 / np.array((1 - negative, negative)))
    pairs = int(count * changes) + 16
    lengths = np.empty(2 * pairs, np.int64)
    lengths[0::2], lengths[1::2] = (random.geometric(end, pairs) for end in ends)
    signs = np.repeat(np.resize(np.array((1, -1), np.float32), 2 * pairs), lengths)
    return np.resize(signs, count)


def _mark(marked: np.ndarray, wanted: int, rng: np.random.Generator) -> None:
    """Mark, or unmark, as few elements as may be, at random, so that ``wanted`` are marked."""
    surplus = int(marked.sum()) - wanted
    there = np.flatnonzero(marked if surplus > 0 else ~marked)
    marked[rng.choice(there, abs(surplus), replace=False)] = surplus < 0


def _pattern(marked: np.ndarray, name: str, rounded: Any = None) -> dict[str, float]:
    """The share of marked elements, ``rounded``, and that of changes; None: both as they are."""
    changed = marked[1:] != marked[:-1]
    share = float(marked.mean() if marked.size else 0.0)
    changes = float(changed.mean() if changed.size else 0.0)
    if rounded is None:
        return {name: share, "changes": changes}
    return {name: rounded(share), "changes": round(changes / _CHANGES_STEP) * _CHANGES_STEP}


def _magnitude(share: float) -> float:
    """A share to one digit."""
    return float(f"{share:.0e}")


def _stepped(share: float) -> float:
    return round(float(share) / _SHARE_STEP) * _SHARE_STEP


def _selected(share: float) -> float:
    """A share to three digits, of itself or of what is left of all, whichever is rarer."""
    rarer = min(float(share), 1 - float(share))
    kept = float(f"{rarer:.{_SELECTED_DIGITS - 1}e}")
    return kept if share <= 0.5 else 1 - kept


def _rounded_count(distinct: int, looked_at: int) -> int:
    """A number of distinct values to three digits, at most the number of elements."""
    return int(float(f"{min(distinct, looked_at):.{_DIGITS - 1}e}"))


def _quantiles(values: np.ndarray) -> tuple[float, ...]:
    plain = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    if not plain.size:
        return (0.0,) * len(SHARES)
    found = np.quantile(plain.astype(np.float64), SHARES)
    rounded = [float(f"{value:.{_DIGITS - 1}e}") for value in found]
    if values.dtype.kind in "iu":  # indices beyond the last one would be refused
        rounded[0], rounded[-1] = float(found[0]), float(found[-1])
        rounded[1:-1] = np.clip(rounded[1:-1], found[0], found[-1]).tolist()
    return tuple(rounded)


def _with_distinct(ascending: np.ndarray, wanted: int, whole: bool) -> np.ndarray:
    """About as many distinct values as ``wanted``, by as little change as may be; integers, maybe.

    Frequent values stay, rare ones become the nearest that stays.
    """
    values, counts = np.unique(ascending, return_counts=True)
    if values.size > wanted:
        counts[[0, -1]] = ascending.size  # the ends stay
        # Of values that are as frequent, every so manieth stays.
        spread = np.argsort(np.arange(values.size) * 0.6180339887498949 % 1.0)
        kept = np.sort(values[spread[np.argsort(-counts[spread], kind="stable")][:wanted]])
        after = np.clip(np.searchsorted(kept, ascending), 1, max(1, kept.size - 1))
        if kept.size == 1:
            return np.full_like(ascending, kept[0])
        low, high = kept[after - 1], kept[after]
        nearest: np.ndarray = np.where(ascending - low <= high - ascending, low, high)
        return nearest
    if whole and values.size < min(wanted, ascending.size):
        free = np.setdiff1d(np.arange(values[0], values[-1] + 1), values)
        missing = min(wanted - values.size, free.size)
        more = free[np.linspace(0, free.size - 1, missing).astype(int)] if missing else free[:0]
        repeated = np.flatnonzero(np.diff(ascending, prepend=np.nan) == 0)
        taken = repeated[np.linspace(0, repeated.size - 1, missing).astype(int)]
        ascending = ascending.copy()
        ascending[taken] = more
        ascending.sort()
    return ascending


def _alike(some: tuple[float, ...], others: tuple[float, ...], chance: float) -> bool:
    most = (_ALIKE / 2 + chance) * (others[-1] - others[0])
    return all(abs(a - b) <= most for a, b in zip(some, others, strict=True))


def _at(shares: np.ndarray, quantiles: tuple[float, ...]) -> np.ndarray:
    values: np.ndarray = np.interp(shares, SHARES, quantiles)
    for (left, low), (right, high) in pairwise(zip(SHARES, quantiles, strict=True)):
        # Between sizes of several orders, as many lie in each.
        if not low or not high or (low > 0) != (high > 0):
            continue
        if abs(math.log(abs(high)) - math.log(abs(low))) > _SEVERAL:
            inside = (shares > left) & (shares < right)
            part = (shares[inside] - left) / (right - left)
            logs = math.log(abs(low)) * (1 - part) + math.log(abs(high)) * part
            values[inside] = np.copysign(np.exp(logs), low)
    return values


def columns_of(rows: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """The quantiles of each column of ``rows``, rounded."""
    return tuple(_quantiles(column) for column in rows.T)


def ties_of(rows: np.ndarray) -> tuple[float, ...]:
    """The rank correlations of each two columns of ``rows``, in steps; 0 for a constant one."""
    ranks = np.argsort(np.argsort(rows, axis=0), axis=0) if len(rows) else np.zeros((1, 4))
    with np.errstate(invalid="ignore"):
        found = np.nan_to_num(np.corrcoef(ranks.T))
    return tuple(
        round(float(found[i, j]) / _CHANGES_STEP) * _CHANGES_STEP
        for i in range(rows.shape[-1])
        for j in range(i)
    )


def boxes_at(
    columns: tuple[tuple[float, ...], ...],
    ties: tuple[float, ...],
    places: int,
    count: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """``count`` boxes, centres and sizes from ``columns``, each at one of so many places.

    Boxes at one place are equal. ``ties`` are the rank correlations of the columns, which normal
    numbers of as much correlation give (a Gaussian copula).
    """
    held, width = min(places, count), len(columns)
    correlation = np.eye(width)
    correlation[np.tril_indices(width, -1)] = 2 * np.sin(np.pi / 6 * np.array(ties))
    values, vectors = np.linalg.eigh(np.tril(correlation) + np.tril(correlation, -1).T)
    normal = rng.standard_normal((held, width)) @ (vectors * np.sqrt(np.clip(values, 0, None))).T
    at = (np.argsort(np.argsort(normal, axis=0), axis=0) + 0.5) / held
    there = np.stack([_at(at[:, i], column) for i, column in enumerate(columns)], axis=1)
    place = rng.permutation(count) if places > count else rng.integers(places, size=count)
    return there[place % held]


def _log_size(values: np.ndarray) -> float:
    size = float(np.mean(np.abs(values), dtype=np.float64)) if values.size else 0.0
    smallest, largest = 2.0**_SMALLEST, 2.0**_LARGEST
    if not smallest < size < largest:
        return _SMALLEST if size <= smallest else _LARGEST  # infinite ones are large
    return round(float(np.log2(size)) / _SIZE_STEP) * _SIZE_STEP
