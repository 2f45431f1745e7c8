"""Published measurements: results files that ship with the package, read where they lie.

An index names the files, their digests and targets, so that what is there is known without reading
any. A file is read when something of one of its targets is asked for, and its records are decoded
one by one as they are needed: an estimate needs one plan and a few hundred measurements. A file
that is damaged, or that a later version wrote, is left out by name, and the rest serves. Must not
know which measurements the user's own cache has.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bricks.decompose.plan import Brick, Occurrence, Plan, Usage, usage_of
from bricks.errors import StoreError, first_line
from bricks.samples.machine_state import same_state
from bricks.samples.measurement import PROTOCOL, Failure, Measurement, Round
from bricks.store import records, results_file
from bricks.store.published_index import DAMAGE, Entry, LearnedFile, folder, read_index
from bricks.system.target import System, Target

_logger = logging.getLogger(__name__)

# How the lines of records begin, as ``results_file.write`` writes those of ``export.records``.
_KIND = re.compile(rb'\{"([a-z]+)":\{')
_BRICK = re.compile(rb'\{"brick":\{"key":"([^"]+)"')
_PLAN = re.compile(
    rb'\{"plan":\{"target":"([^"]+)","wall_s":([^,]+),"plan":\{"model":"(?:[^"\\]|\\.)*",'
    rb'"digest":"([^"]+)","granularity":"([^"]+)"'
)
_MEASUREMENT = re.compile(
    rb'\{"measurement":\{"target":"([^"]+)","brick":"([^"]+)","protocol":([0-9]+),'
    rb'"wall_s":([^,]+),"(rounds|reason)"'
)


class Published:
    """The published measurements in a folder, by default those that ship with the package.

    ``problems`` are lines about what had to be left out so far.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = folder() if place is None else place
        self._entries: list[Entry] | None = None
        self._files: dict[str, _File | None] = {}
        self._learned: dict[str, bytes | None] = {}  # by file
        self.problems: list[str] = []

    def entries(self) -> list[Entry]:
        """What there is, by the index; files that turned out to be unusable are left out."""
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

    def systems(self) -> list[System]:
        """All systems, by name."""
        found = {t.system.key: t.system for entry in self.entries() for t in entry.targets}
        return sorted(found.values(), key=lambda system: (system.name, system.key))

    def targets(self) -> list[Target]:
        """All targets, by name of their system."""
        found = {target.key: target for entry in self.entries() for target in entry.targets}
        return sorted(found.values(), key=lambda target: (target.system.name, target.key))

    def load_plan(
        self, digest: str, granularity: str, target_key: str, *, name: str | None
    ) -> tuple[Plan, float] | None:
        """See :meth:`bricks.store.Store.load_plan`."""
        for file in self._of(target_key):
            found = file.plan(digest, granularity, target_key, name)
            if found is not None:
                return found
        return None

    def plans(self, target_key: str, granularity: str) -> list[tuple[Plan, float]]:
        """All plans that are known there, and the wall seconds that decomposing took, by name."""
        found = [each for f in self._of(target_key) for each in f.plans(target_key, granularity)]
        return sorted(found, key=lambda each: (each[0].model, each[0].digest))

    def brick_usage(
        self, target_key: str, granularity: str, *, unlearned: bool = False
    ) -> list[tuple[str, dict[str, Usage]]]:
        """See :meth:`bricks.store.reading.Reading.brick_usage`."""
        if unlearned and self.learned(target_key) is not None:
            return []
        return [each for f in self._of(target_key) for each in f.usage(target_key, granularity)]

    def learned(self, target_key: str) -> bytes | None:
        """What was learned from all that is measured on this target, where one file has all.

        A damaged file is left out by name: then all is learned anew.
        """
        having = [e for e in self.entries() if any(t.key == target_key for t in e.targets)]
        if len(having) != 1:
            return None
        learned = having[0].learned
        current = learned is not None and learned.learned_from == having[0].sha256
        return self._content_of(learned) if learned is not None and current else None

    def load_bricks(self, keys: Sequence[str]) -> dict[str, Brick]:
        """Those of ``keys`` that are known, in the order given; may read all files."""
        found: dict[str, Brick] = {}
        missing = set(keys)
        # Files that were read already come first: they are the ones that plans were taken from.
        for entry in sorted(self.entries(), key=lambda entry: entry.file not in self._files):
            file = self._file(entry) if missing else None
            if file is not None:
                found |= file.bricks(missing)
                missing -= found.keys()
        return {key: found[key] for key in dict.fromkeys(keys) if key in found}

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """Results of those of ``keys`` that are settled on this target, in the order given."""
        found: dict[str, Measurement | Failure] = {}
        for file in self._of(target_key):
            found = file.results(target_key, keys) | found
        return {key: found[key] for key in dict.fromkeys(keys) if key in found}

    def keys_in_states(self, target_key: str, factor: float) -> list[str]:
        """Keys measured on this target at references that differ by more than ``factor``."""
        return sorted(
            key
            for key, result in self.results(target_key, [*self.costs(target_key)]).items()
            if isinstance(result, Measurement) and _differ(result, factor)
        )

    def costs(self, target_key: str) -> dict[str, float]:
        """Wall seconds, by key, of all that is measured on this target."""
        return {k: s for f in self._of(target_key) for k, s in f.costs(target_key).items()}

    def refuse_damage(self) -> None:
        """Do nothing: a damaged file was left out when it was read."""

    def _content_of(self, learned: LearnedFile) -> bytes | None:
        if learned.file not in self._learned:
            try:
                self._learned[learned.file] = _content(self._place / learned.file, learned.sha256)
            except StoreError as error:
                self._learned[learned.file] = None
                self._leave_out(error)
        return self._learned[learned.file]

    def _of(self, target_key: str) -> Iterator[_File]:
        for entry in self.entries():
            if any(target.key == target_key for target in entry.targets):
                file = self._file(entry)
                if file is not None:
                    yield file

    def _file(self, entry: Entry) -> _File | None:
        if entry.file not in self._files:
            self._files[entry.file] = None  # left out, unless it can be read
            try:
                self._files[entry.file] = _File.read(self._place / entry.file, entry.sha256)
            except StoreError as error:
                self._leave_out(error)
        return self._files[entry.file]

    def _leave_out(self, error: StoreError) -> None:
        line = f"{error}; it is left out"
        _logger.warning("%s", line)
        self.problems.append(line)


def _content(path: Path, sha256: str) -> bytes:
    """The bytes of a file; StoreError unless it is as the index says."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise StoreError(f"{path} cannot be read ({exc.strerror}): install bricks again") from exc
    # The whole file at once: checking the digest that results end with would take much longer.
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreError(f"{path} is not as it was published: install bricks again")
    return content


def _differ(measured: Measurement, factor: float) -> bool:
    """Whether rounds in which the reference was steady were taken at references so different."""
    seen = [
        r.reference_s
        for r in measured.rounds
        if r.reference_s is not None and same_state(r.reference_s, r.reference_end_s)
    ]
    return len(seen) > 1 and max(seen) > factor * min(seen)


@dataclass(slots=True)
class _File:
    """The lines of one file, found by what they are about, and decoded on demand."""

    path: Path
    of_plans: dict[tuple[str, str], dict[str, tuple[bytes, float]]] = field(default_factory=dict)
    of_bricks: dict[str, bytes] = field(default_factory=dict)
    of_results: dict[str, dict[str, tuple[bytes, float, bool]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, sha256: str) -> _File:
        """Read a file; StoreError unless it is as the index says."""
        content, found = _content(path, sha256), cls(path)
        with _decoding(path), results_file.uncompressed(io.BytesIO(content)) as file:
            every = results_file.lines(path, file)
            results_file.check_format(path, next(every, b""))
            for line in every:
                found._add(line)
        return found

    def _add(self, line: bytes) -> None:
        if (match := _MEASUREMENT.match(line)) is not None:
            target, key, protocol, wall_s, kind = match.groups()
            if int(protocol) == PROTOCOL:
                mine = self.of_results.setdefault(target.decode(), {})
                mine[key.decode()] = line, float(wall_s), kind == b"rounds"
        elif (match := _BRICK.match(line)) is not None:
            self.of_bricks[match[1].decode()] = line
        elif (match := _PLAN.match(line)) is not None:
            target, wall_s, digest, cut = match.groups()
            of = self.of_plans.setdefault((target.decode(), cut.decode()), {})
            of[digest.decode()] = line, float(wall_s)
        elif (match := _KIND.match(line)) is None or match[1] not in _OTHERS:
            raise ValueError(f"it holds a line that is no record: {line[:40]!r}")

    def plan(
        self, digest: str, granularity: str, target_key: str, name: str | None
    ) -> tuple[Plan, float] | None:
        found = self.of_plans.get((target_key, granularity), {}).get(digest)
        if found is None:
            return None
        with _decoding(self.path):
            data = json.loads(found[0])["plan"]["plan"]
            renamed = data if name is None else data | {"model": name}
            return Plan.from_json(renamed), found[1]

    def plans(self, target_key: str, granularity: str) -> list[tuple[Plan, float]]:
        with _decoding(self.path):
            return [
                (Plan.from_json(json.loads(line)["plan"]["plan"]), wall_s)
                for line, wall_s in self.of_plans.get((target_key, granularity), {}).values()
            ]

    def usage(self, target_key: str, granularity: str) -> list[tuple[str, dict[str, Usage]]]:
        with _decoding(self.path):
            plans = [
                json.loads(line)["plan"]["plan"]
                for line, _ in self.of_plans.get((target_key, granularity), {}).values()
            ]
            return [
                (str(p["model"]), usage_of([*map(Occurrence.from_json, p["occurrences"])]))
                for p in plans
            ]

    def bricks(self, keys: Collection[str]) -> dict[str, Brick]:
        with _decoding(self.path):
            return {
                key: records.brick_of(json.loads(self.of_bricks[key])["brick"])
                for key in keys
                if key in self.of_bricks
            }

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        mine = self.of_results.get(target_key, {})
        with _decoding(self.path):
            return {key: _result(mine[key][0]) for key in keys if key in mine}

    def costs(self, target_key: str) -> dict[str, float]:
        mine = self.of_results.get(target_key, {})
        return {key: wall_s for key, (_, wall_s, measured) in mine.items() if measured}


# Other lines: the index has the facts of the first two.
_OTHERS = (b"system", b"target", b"end")


def _result(line: bytes) -> Measurement | Failure:
    data = json.loads(line)["measurement"]
    if "reason" in data:
        return Failure(data["brick"], data["reason"])
    # Numbers are not checked again: the file is as it was when publishing it compared them.
    rounds = tuple(Round(tuple(samples), *conditions) for samples, *conditions in data["rounds"])
    return Measurement(data["brick"], rounds, data["wall_s"], published=True)


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn any error of decoding into a StoreError that names the file."""
    try:
        yield
    except StoreError:
        raise
    except DAMAGE as exc:
        raise StoreError(f"{path} cannot be read ({first_line(exc, 120)}): update bricks") from exc
