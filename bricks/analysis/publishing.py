"""Publishes the measurements of a host: validates them, and writes them into a folder.

A folder of published measurements has one file for each system and an index (``store/published``).
Published measurements have a cache of their own, and never come from a user's, whose models are
private. Whole models are measured along with their bricks, so that the errors of estimates are
published with the file. Must not know how the page of published systems looks.
"""

from __future__ import annotations

import hashlib
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks._version import __version__
from bricks.decompose.identity import mismatch
from bricks.errors import BricksError, StoreError, UsageError, first_line
from bricks.predict import learned_file
from bricks.predict.kernels import learned_kernels
from bricks.samples.measurement import Failure, Measurement
from bricks.session.defaults import GRANULARITY
from bricks.session.device_latencies import device_latencies
from bricks.session.latencies import Latencies
from bricks.store import Published, Store
from bricks.store.published_index import INDEX, IndexEntry, LearnedFile, read_index, write_index
from bricks.studies.inference.result import Comparison, ComparisonFailure
from bricks.studies.inference.study import compare
from bricks.system import ForeignLoad, System

if TYPE_CHECKING:
    from bricks.graph.model import Model
    from bricks.session.workspace import Workspace

# Other processes may keep this many processors busy while a host is watched: less than the error
# that estimates have.
MAX_FOREIGN_CORES = 0.05

# Published measurements of one system must not be mostly of a disturbed machine.
MAX_DISTURBED_SHARE = 0.25

# Significant digits of published samples: far more than they repeat to, in half of the bytes.
DIGITS = 4

_SUFFIX = ".jsonl.xz"

_FIGURES = (
    "models", "bricks", "median_abs_error", "p95_abs_error", "max_abs_error", "geomean_ratio",
    "interval_hit_rate", "noise_floor",
)  # fmt: skip


class NotQuiet(BricksError):
    """The host has other work, or had while it was measured."""


def refuse_busy(watch_s: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> float:
    """Watch the host; returns the number of processors that other processes kept busy.

    Raises :class:`NotQuiet` if that is too much for measurements that others will rely on.
    """
    load = ForeignLoad()
    sleep(watch_s)
    cores = load.cores()
    if cores > MAX_FOREIGN_CORES:
        raise NotQuiet(
            f"other processes keep {cores:.2f} processors busy: end them, and run the same command"
            " again"
        )
    return cores


def runnable(workspace: Workspace, models: Sequence[Model]) -> tuple[list[Model], dict[str, str]]:
    """The ``models`` that the runtime supports, and by name the reason for each other model."""
    supported, refused = [], dict[str, str]()
    for model in models:
        try:
            workspace.plans.plan(model)
        except BricksError as exc:
            refused[model.name] = first_line(exc)
        else:
            supported.append(model)
    return supported, refused


def validated(workspace: Workspace, models: Sequence[Model]) -> Validated:
    """Measure what is missing of models, whole ones too, and compare; see :class:`Validated`.

    Raises :class:`NotQuiet` if something is missing and the host is busy.
    """
    runs = workspace.store.measurements.results(
        workspace.target.key, [model.digest for model in models]
    )
    if len(runs) < len({model.digest for model in models}) and workspace.setup.info.timed:
        refuse_busy()
    return Validated.of(workspace, compare(workspace, models))


@dataclass(frozen=True, slots=True)
class Validated:
    """The validation of a target's measurements: errors of estimates, and noise of the host."""

    target_key: str
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, workspace: Workspace, comparison: Comparison) -> Validated:
        """The facts of ``comparison``; :class:`NotQuiet` if most of its rounds are disturbed.

        Raises :class:`BricksError` where a model could not be compared.
        """
        failed = [row for row in comparison.rows if isinstance(row, ComparisonFailure)]
        if failed:
            raise BricksError(f"{failed[0].error}: nothing is published without it")
        keys = list(workspace.store.measurements.costs(workspace.target.key))
        results = workspace.store.measurements.results(workspace.target.key, keys)
        rounds = [r for m in results.values() if isinstance(m, Measurement) for r in m.rounds]
        share = sum(r.disturbed for r in rounds) / max(1, len(rounds))
        if share > MAX_DISTURBED_SHARE and workspace.setup.info.timed:
            raise NotQuiet(
                f"{share:.0%} of the rounds were disturbed by other work: measure on a quieter host"
            )
        facts = {name: getattr(comparison.summary, name) for name in _FIGURES}
        facts |= {"rounds": len(rounds), "disturbed_share": share}
        facts |= {"date": str(datetime.now(UTC).date()), "package": __version__}
        return cls(workspace.target.key, facts)


def publish(cache: str | Path, validated: Sequence[Validated], place: Path) -> IndexEntry:
    """Write the measurements of this system in ``cache`` into the folder ``place``.

    All targets of ``cache`` must be of one system, and each be validated. An earlier file of the
    system is replaced; targets that ``cache`` lacks are copied from it. A learned file is
    written next to the file. Raises :class:`StoreError` for other caches, for an earlier file that
    is not as its index says, and if the written file differs from the cache.
    """
    with Store.open(cache, make=False) as store:
        system = _only_system(store)
        others, about = [], dict[str, Any]()
        for entry in read_index(place):
            if entry.targets[0].system.key != system.key:
                others.append(entry)
                continue
            about |= entry.about["targets"]
            if not {target.key for target in store.systems.targets()} >= {
                t.key for t in entry.targets
            }:
                _merge(store, place, entry)
        about |= {
            target_validation.target_key: dict(target_validation.facts)
            for target_validation in validated
        }
        chosen = sorted(
            (target for target in store.systems.targets() if target.key in about),
            key=lambda target: (target.runtime.backend, target.runtime.threads),
        )
        name = _file_name(system.name, system.key, [entry.file for entry in others])
        with tempfile.TemporaryDirectory(dir=place) as folder:
            written = Path(folder) / name
            store.contents.export(
                written, [target.key for target in chosen], package=__version__, digits=DIGITS
            )
            digest = hashlib.sha256(written.read_bytes()).hexdigest()
            facts = {"targets": {t.key: about[t.key] for t in chosen}}
            entry = IndexEntry(name, digest, tuple(chosen), facts)
            write_index(Path(folder), [entry])
            _check(store, Published(Path(folder)), entry)
            entry = with_learned_file(entry, Path(folder))
            if entry.learned is not None:
                (Path(folder) / entry.learned.file).replace(place / entry.learned.file)
            written.replace(place / name)
    write_index(place, [*others, entry])
    return entry


def with_learned_file(entry: IndexEntry, place: Path) -> IndexEntry:
    """``entry`` with a learned file, written next to its results file in the folder ``place``.

    The index there must have no earlier learned file of it, and stays as it is. Nothing is kept of
    targets with too few measurements to do without others.
    """
    published = Published(place)
    on_device = entry.targets[0].system.accelerator is not None
    content = (_learned_kernels if on_device else _learned_latencies)(entry, published)
    if content is None:
        return entry
    name = entry.file.removesuffix(_SUFFIX) + ".learned.npz"
    (place / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return replace(entry, learned=LearnedFile(name, digest, entry.sha256))


def _learned_latencies(entry: IndexEntry, published: Published) -> bytes | None:
    models = {t.key: Latencies(published, t.key, GRANULARITY) for t in entry.targets}
    learned = {key: model.to_keep() for key, model in models.items()}
    kept = {key: latencies for key, latencies in learned.items() if latencies is not None}
    return learned_file.written(kept, GRANULARITY) if kept else None


def _learned_kernels(entry: IndexEntry, published: Published) -> bytes | None:
    """None for a card whose peaks are not known: no other call of it can be predicted."""
    try:
        latencies = {t.key: device_latencies(published, t) for t in entry.targets}
        return learned_kernels.written({k: of.learned_anew() for k, of in latencies.items()})
    except UsageError:
        return None


def learn_again(place: Path) -> list[IndexEntry]:
    """Learn again from all files of a folder, and write its index: for a changed predictor."""
    plain = [replace(entry, learned=None) for entry in read_index(place)]
    write_index(place, plain)
    entries = [with_learned_file(entry, place) for entry in plain]
    write_index(place, entries)
    return entries


def _merge(store: Store, place: Path, entry: IndexEntry) -> None:
    """Merge an earlier file, which must have the digest of its index entry."""
    path = place / entry.file
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != entry.sha256:
        raise StoreError(
            f"{path} is not as {INDEX} beside it says, so its other targets cannot be taken over:"
            " restore both, or remove the entry"
        )
    store.contents.merge(path, mismatch)


def _only_system(store: Store) -> System:
    systems = {target.system.key: target.system for target in store.systems.targets()}
    if len(systems) != 1:
        raise StoreError(f"the cache {store.path} must hold measurements of one system")
    return next(iter(systems.values()))


def _file_name(name: str, key: str, used: Sequence[str]) -> str:
    plain = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-") or "system"
    file_name = plain + _SUFFIX
    return f"{plain}-{key[3:9]}{_SUFFIX}" if file_name in used else file_name


def _rounded(results: Mapping[str, Measurement | Failure]) -> dict[str, Measurement | Failure]:
    return {
        key: replace(result, rounds=tuple(round_.rounded(DIGITS) for round_ in result.rounds))
        if isinstance(result, Measurement)
        else result
        for key, result in results.items()
    }


def _check(store: Store, published: Published, entry: IndexEntry) -> None:
    """StoreError unless the file has the plans and results that the cache has."""
    for target in entry.targets:
        keys = [*store.measurements.costs(target.key)]
        same = published.measurements.results(target.key, keys) == _rounded(
            store.measurements.results(target.key, keys)
        )
        own_plans = [plan for plan, _ in store.plans.all(target.key, GRANULARITY)]
        same = same and own_plans == [
            plan for plan, _ in published.plans.all(target.key, GRANULARITY)
        ]
        used = sorted({key for plan in own_plans for key in plan.keys})
        same = same and published.plans.load_bricks(used) == store.plans.load_bricks(used)
        if published.problems or not same:
            problem = published.problems[0] if published.problems else "its content differs"
            raise StoreError(f"{entry.file} was not written as it should be ({problem})")
