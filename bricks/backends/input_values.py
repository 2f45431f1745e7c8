"""Values of inputs: ordinary in every type that reads them, and changing from run to run.

Values of many types share the activation region, so its contents cannot be drawn for one type: its
bytes are ordinary numbers in every floating-point type.

A branch predictor learns the comparisons that a tree or a sort makes on values which come again and
again, and caches keep the rows of a table that the same indices read. A server sees neither. So
sets of values of the same distribution take turns at the inputs that decide how long a run takes.
They are drawn before the first run, and a turn only copies a set. Must not know which inputs those
are, nor how their values are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

# The pattern repeats after this many bytes. It is four times a prime, so that rows of a matrix
# differ, and longer than a branch predictor can learn: MXNet's Clip takes several times as long
# when the processor cannot predict which elements are clipped.
PERIOD = 4 * 1_048_583


def filled(size_bytes: int, seed: int, *, signed: bool = False) -> np.ndarray:
    """Return random bytes that form no zero, denormal, infinity or NaN of 8 bits or more.

    Read as float16, values lie between 0.5 and 1; as bfloat16 or float32, between 3e-5 and 4e-3; as
    float64, between 2e-38 and 2e-22. Each byte is a normal float8. With ``signed``, float32 values
    have both signs and magnitudes between 0.01 and 0.9 (then float16 is up to 2, and float64
    between 1e-17 and 1e-3).
    """
    random = np.random.default_rng(seed)
    pairs = random.integers(0x38, 0x3C, PERIOD // 2) << 8 | random.integers(0x20, 0x60, PERIOD // 2)
    if signed:
        pairs[1::2] += 0x400 + (random.integers(0, 2, pairs[1::2].size) << 15)
    return np.resize(pairs.astype("<u2").view(np.uint8), size_bytes)


# Measured by research/measuring.md: with so many sets, trees and sorts take as long as on values
# that never come again, to a few per cent. Inputs of many elements need fewer sets.
MOST_SETS, ALL_ELEMENTS = 1024, 1 << 21

# From the number of a set to the values in it.
Make = Callable[[int], Any]
# By name of an input: its buffer, and what makes its values.
Own = Mapping[str, tuple[np.ndarray, Make]]
# By name of an input that changes from run to run: the numbers of the sets that take turns.
Turns = Mapping[str, Sequence[int]]


def sets_in_turn(elements: int) -> int:
    """The number of different sets of so many ``elements``: at least 2, at most 1024."""
    return min(MOST_SETS, max(2, ALL_ELEMENTS // max(1, elements)))


class Rotation:
    """The sets of values that take turns at the inputs of a loaded model, however often bound."""

    def __init__(self) -> None:
        self._sets: dict[str, list[np.ndarray]] = {}

    def of(self, own: Own, turns: Turns) -> Callable[[], None] | None:
        """Return a function that copies the next set of ``turns`` to each of these inputs.

        ``own`` are the buffers of inputs that have one of their own, with what makes their values.
        None if no input of ``turns`` is among them.
        """
        sets: list[tuple[np.ndarray, Iterator[np.ndarray]]] = []
        for name in sorted(turns.keys() & own.keys()):
            buffer, make = own[name]
            if name not in self._sets:
                self._sets[name] = [np.asarray(make(turn)) for turn in turns[name]]
            sets.append((buffer, cycle(self._sets[name])))

        def write() -> None:
            for memory, values in sets:
                memory[...] = next(values)

        return write if sets else None


def joined(runs: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """The tensors of all ``runs`` by name, joined along their first axis.

    A tensor whose other axes differ from run to run is the first run's.
    """
    first, *others = runs
    tensors = {}
    for name, values in first.items():
        every = [np.atleast_1d(run[name]) for run in runs]
        same = all(each.shape[1:] == every[0].shape[1:] for each in every)
        tensors[name] = np.concatenate(every) if others and same else values
    return tensors
