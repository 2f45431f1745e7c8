"""Jobs are models to measure; batches are jobs whose bricks are loaded together.

Loading and walking have fixed costs, so that bricks of many small models are measured together. The
size of a batch is limited by memory.

The share of a brick's latency in the models that need it sets the precision needed. Until all
bricks of a model are measured, its latency is extrapolated from the measured ones by the work in
its graph. Shares decide which bricks are sampled, and never change a sample. It must not know how
bricks are run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bricks.decompose.plan import Decomposition, whole_key, work_of
from bricks.measure.conditions import MAX_BRICKS, MAX_WEIGHT_BYTES
from bricks.measure.protocol.models import SESSION_BYTES
from bricks.measure.walk import timed_count

if TYPE_CHECKING:
    from bricks.graph.model import Model

# Memory for measuring beyond the weights of the heaviest model and their packing.
_EXTRA_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class ModelJob:
    """A model to measure: its bricks, and with ``whole`` the model itself.

    ``chosen`` has the keys of the bricks to measure; None: all. The model runs along ``streams`` by
    ``workers`` threads at once (see :mod:`bricks.decompose.plan`), or in sequence.
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
        """The stream of each node that the runtime executes; a stretch of nodes has one stream."""
        occurrences = self.decomposition.plan.occurrences
        pairs = zip(self.streams, occurrences, strict=True) if self.streams else ()
        return tuple(stream for stream, occurrence in pairs for _ in range(occurrence.nodes))

    @property
    def bricks(self) -> list[str]:
        """Keys of the bricks to measure."""
        keys = self.decomposition.plan.keys
        return [key for key in keys if self.chosen is None or key in self.chosen]

    @property
    def keys(self) -> list[str]:
        """All keys to measure."""
        return [*self.bricks, self.whole_key] if self.whole else self.bricks


@dataclass(frozen=True, slots=True)
class Batch:
    """Jobs whose bricks are loaded together; a single job if its whole model runs too."""

    jobs: tuple[ModelJob, ...]

    @property
    def name(self) -> str:
        """The name that progress shows."""
        first, count = self.jobs[0].model.name, len(self.jobs)
        return first if count == 1 else f"{first} and {count - 1} more"

    @property
    def keys(self) -> list[str]:
        """All keys to measure, once each."""
        return list(dict.fromkeys(key for job in self.jobs for key in job.keys))

    def assigned(
        self, keys: Collection[str], needs: Mapping[str, ModelNeeds]
    ) -> list[tuple[ModelJob, set[str]]]:
        """Each job with bricks among ``keys`` to measure in its model, and the keys of these."""
        pairs = zip(self.jobs, assigned(self.jobs, keys, needs), strict=True)
        return [(job, of_job) for job, of_job in pairs if of_job]


def assigned(
    jobs: Sequence[ModelJob], keys: Collection[str], needs: Mapping[str, ModelNeeds]
) -> list[set[str]]:
    """The bricks among ``keys`` to measure in the model of each job.

    Each brick is measured in the model in whose work it has the largest share: its latency depends
    a little on the model (for example on whether its weights are cached), and matters most there.
    """
    unassigned = set(keys)
    of_jobs: list[set[str]] = [set() for _ in jobs]
    best: dict[str, tuple[float, int]] = {}
    for number, job in enumerate(jobs):
        need = needs[job.model.digest]
        works = {key: abs(n) * need.works[key] for key, n in need.counts.items()}
        all_work = sum(works.values())
        for key in works.keys() & unassigned:
            share = works[key] / all_work
            if key not in best or share > best[key][0]:
                best[key] = share, number
    for key, (_, number) in best.items():
        of_jobs[number].add(key)
    return of_jobs


def spread_out(
    jobs: Sequence[ModelJob], missing: Collection[str], needs: Mapping[str, ModelNeeds]
) -> list[ModelJob]:
    """``jobs``, each with only the ``missing`` bricks to measure in its model.

    If a whole model runs too, jobs are unchanged: its bricks are measured in turn with it.
    """
    if any(job.whole for job in jobs):
        return list(jobs)
    keys = {key for job in jobs for key in job.bricks}.intersection(missing)
    pairs = zip(jobs, assigned(jobs, keys, needs), strict=True)
    return [replace(job, chosen=frozenset(of_job)) for job, of_job in pairs]


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

    Weights are loaded for each timed occurrence, and once more for all untimed occurrences.
    """
    bricks, counts = job.decomposition.bricks, job.decomposition.plan.counts
    return sum(
        bricks[k].numeric_weight_bytes * min(timed_count(bricks[k]) + 1, abs(counts[k]))
        for k in keys
    )


def memory_bytes(jobs: Sequence[ModelJob], max_weight_bytes: int = MAX_WEIGHT_BYTES) -> int:
    """The memory in bytes that measuring ``jobs`` may take, in batches of ``max_weight_bytes``.

    The worker has weights as stored, and packed; while a weight is packed, it exists twice more.
    Bricks and the whole model have sessions, whose memory grows with lists of trees.
    """
    decompositions = [job.decomposition for job in jobs]
    heaviest = max((d.weight_bytes + d.largest_weight_bytes for d in decompositions), default=0)
    together = sum(job.decomposition.weight_bytes for job in jobs if not job.whole)
    lists = sum(len(brick.model) for each in decompositions for brick in each.bricks.values())
    sessions = 2 * SESSION_BYTES * lists
    return 2 * max(heaviest, min(together, max_weight_bytes)) + sessions + _EXTRA_BYTES


def needs_of(jobs: Sequence[ModelJob]) -> dict[str, ModelNeeds]:
    """The needs of each model, by its digest."""
    bricks = {key: brick for job in jobs for key, brick in job.decomposition.bricks.items()}
    works = {key: 1.0 + work_of(brick) for key, brick in bricks.items()}
    counts = {job.model.digest: job.decomposition.plan.counts for job in jobs}
    return {
        digest: ModelNeeds(of_model, {key: works[key] for key in of_model})
        for digest, of_model in counts.items()
    }


@dataclass(frozen=True, slots=True)
class ModelNeeds:
    """The bricks of a model by key: how often each latency counts, and the work of each brick."""

    counts: Mapping[str, int]
    works: Mapping[str, float]


class Importance:
    """The greatest share of each latency in the latency of any model.

    ``known_s`` has latencies that were measured before, in seconds by key.
    """

    def __init__(self, needs: Mapping[str, ModelNeeds], known_s: Mapping[str, float]) -> None:
        self._needs = needs
        self._known_s = known_s

    def of(self, latencies_s: Mapping[str, float]) -> dict[str, float]:
        """Shares of ``latencies_s`` between 0 and 1, by key; only keys of a model have one."""
        known_s = {**self._known_s, **latencies_s}
        shares: dict[str, float] = {}
        for need in self._needs.values():
            keys = [key for key in need.counts if key in latencies_s]
            if not keys:
                continue
            total_s = _extrapolated_s(need, known_s)
            for key in keys:
                share = abs(need.counts[key]) * latencies_s[key] / total_s if total_s else 1.0
                shares[key] = min(1.0, max(shares.get(key, 0.0), share))
        return shares


def _extrapolated_s(need: ModelNeeds, known_s: Mapping[str, float]) -> float:
    """A model's latency, if its unknown bricks take as long for their work as the known ones."""
    measured_s = work = all_work = 0.0
    for key, count in need.counts.items():
        weight = abs(count) * need.works[key]
        all_work += weight
        if key in known_s:
            measured_s += abs(count) * known_s[key]
            work += weight
    return measured_s * max(1.0, all_work / work) if work else measured_s
