"""Jobs are models to measure; batches are jobs whose bricks are loaded together.

Loading and walking have fixed costs, so that bricks of many small models are measured together. The
size of a batch is limited by memory. It must not know how anything is run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bricks.decompose.plan import Decomposition, work_of
from bricks.decompose.streams import whole_key
from bricks.graph.model import Model
from bricks.measure.importance import ModelNeeds
from bricks.measure.timed_occurrences import timed_count

# The bricks in a batch at most, and the bytes of their weights. One model's bricks are never
# divided between batches.
MAX_BRICKS = 2000
MAX_WEIGHT_BYTES = 2 << 30

# Memory for measuring beyond the weights of the heaviest model and their packing.
_EXTRA_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelJob:
    """A model to measure: its bricks, and with ``whole`` the model itself.

    ``chosen`` holds the keys of the bricks to measure; None: all. The model is run along
    ``streams`` by so many ``workers`` (see :mod:`bricks.decompose.streams`), or in sequence.
    """

    model: Model
    decomposition: Decomposition
    whole: bool
    streams: tuple[int, ...] = ()
    workers: int = 1
    chosen: frozenset[str] | None = None

    @property
    def whole_key(self) -> str:
        """The key of the whole model."""
        return whole_key(self.decomposition.plan, self.streams, self.workers)

    @property
    def node_streams(self) -> tuple[int, ...]:
        """The stream of each node that the runtime executes; a stretch of nodes stays together."""
        of = self.decomposition.plan.occurrences
        pairs = zip(self.streams, of, strict=True) if self.streams else ()
        return tuple(stream for stream, occurrence in pairs for _ in range(occurrence.nodes))

    @property
    def bricks(self) -> list[str]:
        """Keys of the bricks that are wanted."""
        keys = self.decomposition.plan.keys
        return [key for key in keys if self.chosen is None or key in self.chosen]

    @property
    def keys(self) -> list[str]:
        """All keys that are wanted."""
        return [*self.bricks, self.whole_key] if self.whole else self.bricks


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs whose bricks are loaded together; one alone, where the model itself is run too."""

    jobs: tuple[ModelJob, ...]

    @property
    def name(self) -> str:
        """The name that progress shows."""
        first, count = self.jobs[0].model.name, len(self.jobs)
        return first if count == 1 else f"{first} and {count - 1} more"

    @property
    def keys(self) -> list[str]:
        """All keys that are wanted, once each."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.keys))

    def assigned(
        self, wanted: Collection[str], needs: Mapping[str, ModelNeeds]
    ) -> list[tuple[ModelJob, set[str]]]:
        """For each job that has any, those of the bricks ``wanted`` that are measured in it."""
        found = zip(self.jobs, assigned(self.jobs, wanted, needs), strict=True)
        return [(job, mine) for job, mine in found if mine]


def assigned(
    jobs: Sequence[ModelJob], wanted: Collection[str], needs: Mapping[str, ModelNeeds]
) -> list[set[str]]:
    """The bricks of those ``wanted`` to measure in the model of each job.

    Each brick is measured in the model of whose work it is the largest share. Its latency depends a
    little on the model around it (by how warm its weights are, for one), and there it matters most.
    """
    sought = set(wanted)
    found: list[set[str]] = [set() for _ in jobs]
    best: dict[str, tuple[float, int]] = {}
    for number, job in enumerate(jobs):
        need = needs[job.model.digest]
        works = {key: abs(n) * need.works[key] for key, n in need.counts.items()}
        all_work = sum(works.values())
        for key in works.keys() & sought:
            share = works[key] / all_work
            if key not in best or share > best[key][0]:
                best[key] = share, number
    for key, (_, number) in best.items():
        found[number].add(key)
    return found


def spread_out(
    jobs: Sequence[ModelJob], missing: Collection[str], needs: Mapping[str, ModelNeeds]
) -> list[ModelJob]:
    """``jobs``, each with only the ``missing`` bricks that are to be measured in its model.

    Where a whole model is run too, they are unchanged: its bricks are measured beside it.
    """
    if any(job.whole for job in jobs):
        return list(jobs)
    wanted = {key for job in jobs for key in job.bricks}.intersection(missing)
    found = zip(jobs, assigned(jobs, wanted, needs), strict=True)
    return [replace(job, chosen=frozenset(mine)) for job, mine in found]


def batches(
    jobs: Sequence[ModelJob],
    missing: Collection[str],
    max_bricks: int = MAX_BRICKS,
    max_weight_bytes: int = MAX_WEIGHT_BYTES,
) -> Iterator[Batch]:
    """Batches of the ``jobs`` that have ``missing`` keys, in order."""
    together: list[ModelJob] = []
    seen: set[str] = set()
    count = weight_bytes = 0
    for job in jobs:
        new = [key for key in job.keys if key in missing and key not in seen]
        if not new:
            continue
        seen.update(new)
        if job.whole:
            yield Batch((job,))
            continue
        more_bytes = _weight_bytes(job, new)
        full = count + len(new) > max_bricks or weight_bytes + more_bytes > max_weight_bytes
        if together and full:
            yield Batch(tuple(together))
            together, count, weight_bytes = [], 0, 0
        together.append(job)
        count, weight_bytes = count + len(new), weight_bytes + more_bytes
    if together:
        yield Batch(tuple(together))


def _weight_bytes(job: ModelJob, keys: Collection[str]) -> int:
    """Bytes of the weights that are loaded for ``keys``.

    Weights are loaded for each place that is timed, and once more for all lead-in places.
    """
    bricks, counts = job.decomposition.bricks, job.decomposition.plan.counts
    return sum(
        bricks[k].numeric_weight_bytes * min(timed_count(bricks[k]) + 1, abs(counts[k]))
        for k in keys
    )


def memory_bytes(jobs: Sequence[ModelJob], max_weight_bytes: int = MAX_WEIGHT_BYTES) -> int:
    """The memory in bytes that measuring ``jobs`` may take, in batches of ``max_weight_bytes``.

    The worker holds weights as they are, and packed; while one is packed, it exists twice more.
    """
    found = [job.decomposition for job in jobs]
    heaviest = max((d.weight_bytes + d.largest_weight_bytes for d in found), default=0)
    together = sum(job.decomposition.weight_bytes for job in jobs if not job.whole)
    return 2 * max(heaviest, min(together, max_weight_bytes)) + _EXTRA_BYTES


def needs_of(jobs: Sequence[ModelJob]) -> dict[str, ModelNeeds]:
    """The needs of each model, by its digest."""
    bricks = {key: brick for job in jobs for key, brick in job.decomposition.bricks.items()}
    works = {key: 1.0 + work_of(brick) for key, brick in bricks.items()}
    counts = {job.model.digest: job.decomposition.plan.counts for job in jobs}
    return {
        digest: ModelNeeds(mine, {key: works[key] for key in mine})
        for digest, mine in counts.items()
    }
