"""Formulas of the time of a collective by the number of ranks.

Time = steps · latency + volume · bytes / bandwidth, where both factors depend on the ranks alone:

- all-reduce, all-gather and reduce-scatter go round a ring: Patarasuk and Yuan, "Bandwidth optimal
  all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009); and
  Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH",
  Int. J. High Perform. Comput. Appl. 19 (2005), for each as sums of steps and volume. The volumes
  are the factors of "bus bandwidth" in nccl-tests, doc/PERFORMANCE.md.
- broadcast goes down a binomial tree (Thakur et al.), as gloo's does: each level sends all bytes.

Must not know any network.
"""

from __future__ import annotations

from collections.abc import Callable

from bricks.network.collective import OPERATIONS

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
