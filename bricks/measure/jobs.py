"""What is to be measured, and what of it is loaded together.

Loading and walking have costs of their own, so that bricks of many small models are measured side
by side; a batch is no more than memory holds with ease. It must not know how anything is run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bricks.decompose.plan import Decomposition, work_of
from bricks.decompose.streams import whole_key
from bricks.graph.model import Model
from bricks.measure.importance import Needs
from bricks.measure.walk import places_of

# Most bricks in a batch, and bytes of their weights; so many fewer where memory is scarce. One
# model's are never parted.
MAX_BRICKS = 2000
MAX_WEIGHT_BYTES = 2 << 30

# What measuring may hold beyond the weights of the heaviest model, and what packing them takes.
_ROOM_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Job:
    """A model to measure: its bricks, and with ``whole`` the model itself.

    Of its bricks only those in ``chosen``, if that is not None. The model is run along ``streams``
    by so many ``workers`` (see :mod:`bricks.decompose.streams`), or in sequence.
    """

    model: Model
    decomposition: Decomposition
    whole: bool
    streams: tuple[int, ...] = ()
    workers: int = 1
    chosen: frozenset[str] | None = None

    @property
    def whole_key(self) -> str:
        """What the whole model is measured under."""
        return whole_key(self.decomposition.plan, self.streams, self.workers)

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

    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        """What people are told that is being measured."""
        first, count = self.jobs[0].model.name, len(self.jobs)
        return first if count == 1 else f"{first} and {count - 1} more"

    @property
    def keys(self) -> list[str]:
        """All keys that are wanted, once each."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.keys))

    def hosted(
        self, wanted: Collection[str], needs: Mapping[str, Needs]
    ) -> list[tuple[Job, set[str]]]:
        """For each job that has any, those of the bricks ``wanted`` that are measured in it."""
        found = zip(self.jobs, hosted(self.jobs, wanted, needs), strict=True)
        return [(job, mine) for job, mine in found if mine]


def hosted(
    jobs: Sequence[Job], wanted: Collection[str], needs: Mapping[str, Needs]
) -> list[set[str]]:
    """Which of the bricks ``wanted`` to measure in the model of each job.

    In that of whose work a brick is the largest share. What a brick takes depends a little on the
    model around it (how warm its weights are, for one), and there it matters most.
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
    jobs: Sequence[Job], missing: Collection[str], needs: Mapping[str, Needs]
) -> list[Job]:
    """``jobs``, each with those bricks alone that are ``missing`` and measured in its model.

    As they are, where a model itself is run too: then its bricks are measured beside it.
    """
    if any(job.whole for job in jobs):
        return list(jobs)
    wanted = {key for job in jobs for key in job.bricks}.intersection(missing)
    found = zip(jobs, hosted(jobs, wanted, needs), strict=True)
    return [replace(job, chosen=frozenset(mine)) for job, mine in found]


def batches(
    jobs: Sequence[Job],
    missing: Collection[str],
    max_bricks: int = MAX_BRICKS,
    max_weight_bytes: int = MAX_WEIGHT_BYTES,
) -> Iterator[Batch]:
    """Batches of those ``jobs`` that need something which is ``missing``, in order."""
    together: list[Job] = []
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


def _weight_bytes(job: Job, keys: Collection[str]) -> int:
    """Bytes of the weights that are loaded for ``keys``: for each place that is timed.

    And once more, for those places that only lead in.
    """
    bricks, counts = job.decomposition.bricks, job.decomposition.plan.counts
    return sum(
        bricks[k].numeric_weight_bytes * min(places_of(bricks[k]) + 1, abs(counts[k])) for k in keys
    )


def memory_bytes(jobs: Sequence[Job], max_weight_bytes: int = MAX_WEIGHT_BYTES) -> int:
    """The memory that measuring ``jobs`` may take, in batches of so many bytes of weights.

    Weights are held as they are and packed; while one is packed, it is held twice more.
    """
    found = [job.decomposition for job in jobs]
    heaviest = max((d.weight_bytes + d.largest_weight_bytes for d in found), default=0)
    together = sum(job.decomposition.weight_bytes for job in jobs if not job.whole)
    return 2 * max(heaviest, min(together, max_weight_bytes)) + _ROOM_BYTES


def needs_of(jobs: Sequence[Job]) -> dict[str, Needs]:
    """What each model needs, by its digest."""
    bricks = {key: brick for job in jobs for key, brick in job.decomposition.bricks.items()}
    works = {key: 1.0 + work_of(brick) for key, brick in bricks.items()}
    counts = {job.model.digest: job.decomposition.plan.counts for job in jobs}
    return {
        digest: Needs(mine, {key: works[key] for key in mine}) for digest, mine in counts.items()
    }
