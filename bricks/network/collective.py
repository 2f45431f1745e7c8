"""A collective operation as a brick: what is measured of it, and its key in the cache.

The backend, the versions and the network are the target's, as with bricks of models. Must not know
how long anything takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from bricks.errors import UsageError, suggestion

# Of NCCL's and MPI's operations, those that data-parallel trainings use.
ALL_REDUCE, BROADCAST = "all_reduce", "broadcast"
ALL_GATHER, REDUCE_SCATTER = "all_gather", "reduce_scatter"
OPERATIONS = (ALL_REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER)

PREFIX = "c1-"


def written(operation: str) -> str:
    """An operation as people write it: ``all-reduce``."""
    return operation.replace("_", "-")


def operation_of(text: str) -> str:
    """The operation that ``text`` names, as people write it or as it is in keys.

    Raises :class:`~bricks.errors.UsageError` if there is none.
    """
    found = {written(operation): operation for operation in OPERATIONS}
    name = written(text.strip().lower())
    if name not in found:
        raise UsageError(f"there is no collective {text!r}: {suggestion(name, found)}")
    return found[name]


_KEY = re.compile(rf"{PREFIX}([a-z_]+)-([0-9]+)-([0-9]+)-([a-z]+)")


class Aspect(StrEnum):
    """What is timed: the collective by itself, or with ranks that compute on their cores meanwhile.

    Or the computation: a unit of it just before the collective, and one beside it.
    """

    ALONE = "alone"
    COMPUTING = "computing"
    UNIT_BEFORE = "before"
    UNIT_DURING = "during"


BESIDE = (Aspect.COMPUTING, Aspect.UNIT_BEFORE, Aspect.UNIT_DURING)


@dataclass(frozen=True, slots=True, order=True)
class Collective:
    """An operation on a tensor of ``num_bytes`` on each of so many ``ranks``.

    The bytes are those of the full tensor: the output of an all-gather, the input of a
    reduce-scatter.
    """

    operation: str
    num_bytes: int
    ranks: int
    aspect: Aspect = Aspect.ALONE

    @property
    def title(self) -> str:
        """What it is, for people: ``all-reduce of 1024 bytes between 2 ranks``."""
        beside = "" if self.aspect is Aspect.ALONE else " beside computing"
        named = f"{written(self.operation)} of {self.num_bytes} bytes"
        return f"{named} between {self.ranks} ranks{beside}"

    @property
    def key(self) -> str:
        """Its key, from which :meth:`of` reads it again."""
        return f"{PREFIX}{self.operation}-{self.num_bytes}-{self.ranks}-{self.aspect}"

    @classmethod
    def of(cls, key: str) -> Collective | None:
        """The collective with this key; None for a key of anything else."""
        found = _KEY.fullmatch(key)
        if found is None or found[1] not in OPERATIONS or found[4] not in list(Aspect):
            return None
        return cls(found[1], int(found[2]), int(found[3]), Aspect(found[4]))
