"""A collective operation as a brick: its timed aspects, its key in the cache, and its formulas.

The backend, the versions and the network are the target's, as with bricks of models. By formula,
time = steps · latency + volume · bytes / bandwidth, where both factors depend on the ranks alone:

- all-reduce, all-gather and reduce-scatter go round a ring: Patarasuk and Yuan, "Bandwidth optimal
  all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009); and
  Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
  Int. J. High Perform. Comput. Appl. 19 (2005), for each as sums of steps and volume. The volumes
  are the factors of "bus bandwidth" in nccl-tests, doc/PERFORMANCE.md.
- broadcast goes down a binomial tree (Thakur et al.), as gloo's does: each level sends all bytes.

Must not know any network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from bricks.errors import UsageError, suggestion

# The operations of NCCL and MPI that data-parallel training uses.
ALL_REDUCE, BROADCAST = "all_reduce", "broadcast"
ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"
OPERATIONS = (ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER)

PREFIX = "c1-"
_KEY = re.compile(rf"{PREFIX}([a-z_]+)-([0-9]+)-([0-9]+)-([a-z]+)")


def written(operation: str) -> str:
    """Return the name of an operation with hyphens: ``all-reduce``."""
    return operation.replace("_", "-")


def operation_of(text: str) -> str:
    """Parse the name of an operation, with hyphens or underscores; :class:`UsageError` if none."""
    operations = {written(operation): operation for operation in OPERATIONS}
    name = written(text.strip().lower())
    if name not in operations:
        raise UsageError(f"there is no collective {text!r}: {suggestion(name, operations)}")
    return operations[name]


class Aspect(StrEnum):
    """The timed part: the collective, isolated or while its ranks compute on their cores.

    Or the computation: a unit just before the collective, and one during it.
    """

    ALONE = "alone"
    COMPUTING = "computing"
    UNIT_BEFORE = "before"
    UNIT_DURING = "during"


BESIDE = (Aspect.COMPUTING, Aspect.UNIT_BEFORE, Aspect.UNIT_DURING)


@dataclass(frozen=True, slots=True, order=True)
class Collective:
    """An operation on a tensor of ``num_bytes`` on each of ``ranks``.

    The tensor is the full one: the output of an all-gather, the input of a reduce-scatter.
    """

    operation: str
    num_bytes: int
    ranks: int
    aspect: Aspect = Aspect.ALONE

    @property
    def title(self) -> str:
        """A description such as ``all-reduce of 1024 bytes between 2 ranks``."""
        computing = "" if self.aspect is Aspect.ALONE else " beside computing"
        tensor = f"{written(self.operation)} of {self.num_bytes} bytes"
        return f"{tensor} between {self.ranks} ranks{computing}"

    @property
    def key(self) -> str:
        """The key in the cache, which :meth:`of` parses."""
        return f"{PREFIX}{self.operation}-{self.num_bytes}-{self.ranks}-{self.aspect}"

    @classmethod
    def of(cls, key: str) -> Collective | None:
        """Parse a key; None for keys of other measurements."""
        match = _KEY.fullmatch(key)
        if match is None or match[1] not in OPERATIONS or match[4] not in list(Aspect):
            return None
        return cls(match[1], int(match[2]), int(match[3]), Aspect(match[4]))


Factor = Callable[[int], float]


def steps(operation: str, ranks: int) -> float:
    """The number of consecutive messages; 0 for a single rank."""
    return _FACTORS[operation][0](ranks)


def volume(operation: str, ranks: int) -> float:
    """The bytes that cross the link of a rank one after the other, over those of the tensor."""
    return _FACTORS[operation][1](ranks)


def bytes_sent(operation: str, num_bytes: int, ranks: int) -> float:
    """The bytes that a rank sends, on average over ranks."""
    if operation == "broadcast":  # the tree has one message of all bytes to each other rank
        return num_bytes * (ranks - 1) / ranks
    return volume(operation, ranks) * num_bytes


def _levels(ranks: int) -> float:
    return float((ranks - 1).bit_length())


_FACTORS: dict[str, tuple[Factor, Factor]] = {
    "all_reduce": (lambda n: 2.0 * (n - 1), lambda n: 2.0 * (n - 1) / n),
    "all_gather": (lambda n: float(n - 1), lambda n: (n - 1) / n),
    "reduce_scatter": (lambda n: float(n - 1), lambda n: (n - 1) / n),
    "broadcast": (_levels, _levels),
}
assert _FACTORS.keys() == set(OPERATIONS)
