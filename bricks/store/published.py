"""Published measurements: results files that ship with the package, read where they lie.

An index names the files, their digests and targets, so that what is there is known without reading
any. A file is read when something of one of its targets is asked for. A file that is damaged, or
that a later version wrote, is left out by name, and the rest serves. Must not know which
measurements the user's own cache has.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.errors import StoreError
from bricks.store.published_file import PublishedFile, content_of
from bricks.store.published_index import IndexEntry, LearnedFile, folder, read_index
from bricks.store.reading import ModelUsage, TimedPlan, by_name, in_order

if TYPE_CHECKING:
    from bricks.decompose.plan import Brick
    from bricks.samples.measurement import Failure, Measurement
    from bricks.system.host_conditions import HostConditions
    from bricks.system.target import System, Target

_logger = logging.getLogger(__name__)


class Published:
    """The published measurements in a folder, by default the folder that ships with the package.

    ``problems`` are lines about unusable files so far, ``indexed_s`` the seconds that indexing took
    by file: once, unless ``indexes_kept`` is false. See
    :class:`bricks.store.reading.Reading`.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = folder() if place is None else place
        self._entries: list[IndexEntry] | None = None
        self._files: dict[str, PublishedFile | None] = {}
        self._learned: dict[str, bytes | None] = {}  # by file
        self.problems: list[str] = []
        self.indexed_s: dict[str, float] = {}
        self.indexes_kept = True
        self.systems = _PublishedSystems(self)
        self.plans = _PublishedPlans(self)
        self.measurements = _PublishedMeasurements(self)

    def entries(self) -> list[IndexEntry]:
        """The index entries of all files that are not known to be unusable."""
        if self._entries is None:
            try:
                self._entries = read_index(self._place)
            except StoreError as error:
                self._leave_out(error)
                self._entries = []
        return [e for e in self._entries if self._files.get(e.file, e) is not None]

    def check(self) -> None:
        """Read all files, so that ``problems`` names each that cannot be used."""
        for entry in self.entries():
            self._file(entry)

    def refuse_damage(self) -> None:
        """Do nothing: a damaged file was left out when it was read."""

    def files(self) -> Iterator[PublishedFile]:
        """All readable files; files that were read already come first."""
        for entry in sorted(self.entries(), key=lambda entry: entry.file not in self._files):
            file = self._file(entry)
            if file is not None:
                yield file

    def files_of(self, target_key: str) -> Iterator[PublishedFile]:
        """The files about a target that can be read."""
        for entry in self.entries():
            if any(target.key == target_key for target in entry.targets):
                file = self._file(entry)
                if file is not None:
                    yield file

    def learned(self, file: LearnedFile) -> bytes | None:
        """The content of a learned file; None for a damaged one, which is reported by name."""
        if file.file not in self._learned:
            try:
                self._learned[file.file] = content_of(self._place / file.file, file.sha256)
            except StoreError as error:
                self._learned[file.file] = None
                self._leave_out(error)
        return self._learned[file.file]

    def _file(self, entry: IndexEntry) -> PublishedFile | None:
        if entry.file not in self._files:
            self._files[entry.file] = None  # left out, unless it can be read
            try:
                path = self._place / entry.file
                file = PublishedFile.read(path, entry.sha256)
                self._files[entry.file] = file
                if file.indexed_s is not None:
                    _logger.info("%s was indexed, once, in %.1f s", path, file.indexed_s)
                    self.indexed_s[entry.file] = file.indexed_s
                    self.indexes_kept &= file.index_kept
            except StoreError as error:
                self._leave_out(error)
        return self._files[entry.file]

    def _leave_out(self, error: StoreError) -> None:
        line = f"{error}; it is left out"
        _logger.warning("%s", line)
        self.problems.append(line)


class _PublishedSystems:
    def __init__(self, published: Published) -> None:
        self._published = published

    def all(self) -> list[System]:
        entries = self._published.entries()
        by_key = {t.system.key: t.system for entry in entries for t in entry.targets}
        return sorted(by_key.values(), key=lambda system: (system.name, system.key))

    def targets(self) -> list[Target]:
        entries = self._published.entries()
        by_key = {target.key: target for entry in entries for target in entry.targets}
        return sorted(by_key.values(), key=lambda target: (target.system.name, target.key))


class _PublishedPlans:
    def __init__(self, published: Published) -> None:
        self._published = published

    def load(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> TimedPlan | None:
        files = self._published.files_of(target_key)
        plans = (file.plan(digest, granularity, target_key, name) for file in files)
        return next(filter(None, plans), None)

    def all(self, target_key: str, granularity: str) -> list[TimedPlan]:
        files = self._published.files_of(target_key)
        plans = [timed_plan for file in files for timed_plan in file.plans(target_key, granularity)]
        return by_name(plans)

    def usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[ModelUsage]:
        if unlearned and self._published.measurements.learned(target_key) is not None:
            return []
        files = self._published.files_of(target_key)
        return [model for file in files for model in file.usage(target_key, granularity)]

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """The known bricks of ``keys``, in their order; may read all files."""
        bricks: dict[str, Brick] = {}
        missing, files = set(keys), self._published.files()
        while missing and (file := next(files, None)) is not None:
            bricks |= file.bricks(missing)
            missing -= bricks.keys()
        return in_order(keys, bricks)


class _PublishedMeasurements:
    def __init__(self, published: Published) -> None:
        self._published = published

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        results: dict[str, Measurement | Failure] = {}
        for file in self._published.files_of(target_key):
            results = file.results(target_key, keys) | results
        return in_order(keys, results)

    def watched(self, target_key: str) -> list[HostConditions]:
        """The conditions in the first file that has any."""
        files = self._published.files_of(target_key)
        return next(filter(None, (file.watched(target_key) for file in files)), [])

    def costs(self, target_key: str) -> dict[str, float]:
        files = self._published.files_of(target_key)
        return {key: wall_s for file in files for key, wall_s in file.costs(target_key).items()}

    def learned(self, target_key: str) -> bytes | None:
        """The learned file of a target whose measurements are all in one file.

        A damaged file is reported by name, and the predictor is learned again.
        """
        entries = self._published.entries()
        having = [e for e in entries if any(t.key == target_key for t in e.targets)]
        if len(having) != 1:
            return None
        learned = having[0].learned
        if learned is None or learned.learned_from != having[0].sha256:
            return None
        return self._published.learned(learned)
