"""One file of published measurements: its lines, found by an index, and decoded on demand.

An estimate needs one plan and a few hundred measurements of a file of thousands. Must not
know which files there are, nor how a damaged one is handled.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bricks.decompose.plan import Brick, Plan
from bricks.errors import StoreError, first_line
from bricks.samples.measurement import PROTOCOL, Failure, Measurement
from bricks.store import records, results_file
from bricks.store.published_index import DAMAGE, IndexDamaged, IndexWriter, LineIndex
from bricks.store.records import round_of_record
from bricks.system import derived_files
from bricks.system.host_conditions import HostConditions

if TYPE_CHECKING:
    from bricks.store.reading import ModelUsage, TimedPlan

Answer = TypeVar("Answer")

# How the lines of records begin, as ``results_file.write`` writes those of ``export.records``.
_KIND = re.compile(rb'\{"([a-z]+)":\{')
_BRICK = re.compile(rb'\{"brick":\{"key":"([^"]+)"')
_TARGET = re.compile(rb'\{"target":\{"key":"([^"]+)"')
_PLAN = re.compile(
    rb'\{"plan":\{"target":"([^"]+)","wall_s":([^,]+),"plan":\{"model":"(?:[^"\\]|\\.)*",'
    rb'"digest":"([^"]+)","granularity":"([^"]+)"'
)
_MEASUREMENT = re.compile(
    rb'\{"measurement":\{"target":"([^"]+)","brick":"([^"]+)","protocol":([0-9]+),'
    rb'"wall_s":([^,]+),"(rounds|reason)"'
)

# Names of sections of the index.
_BRICKS, _TARGETS = "bricks", "targets"

# Other lines: the index has the facts of the first.
_OTHERS = (b"system", b"end")


def content_of(path: Path, sha256: str) -> bytes:
    """The bytes of a file; StoreError unless it has the digest ``sha256``."""
    try:
        content = path.read_bytes()
    except OSError as exc:
        raise StoreError(f"{path} cannot be read ({exc.strerror}): install bricks again") from exc
    # The whole file at once: checking the digest that results end with would take much longer.
    if hashlib.sha256(content).hexdigest() != sha256:
        raise StoreError(f"{path} is not as it was published: install bricks again")
    return content


class PublishedFile:
    """One file, whose lines are found by target, model or key, and decoded on demand.

    ``indexed_s`` are the seconds that indexing it took; None where an index was there.
    ``index_kept`` says whether the next process finds one.
    """

    def __init__(self, path: Path, content: bytes, kept: Path) -> None:
        """Wrap the ``content`` of a file; its index is ``kept`` in another file."""
        self.path = path
        self.indexed_s: float | None = None
        self.index_kept = True
        self._content = content
        self._kept = kept
        try:
            self._index = LineIndex.open(kept)
        except IndexDamaged:
            self._index = self._made()

    @classmethod
    def read(cls, path: Path, sha256: str) -> PublishedFile:
        """Read a file; StoreError unless it has the digest ``sha256``, of its index entry."""
        return cls(
            path, content_of(path, sha256), derived_files.folder("published") / f"{sha256}.lines"
        )

    def _made(self) -> LineIndex:
        """The index of the file, made anew and kept."""
        started, made = time.perf_counter(), io.BytesIO()
        writer = IndexWriter(made)
        with _decoding(self.path), results_file.uncompressed(io.BytesIO(self._content)) as file:
            every = results_file.lines(self.path, file)
            results_file.check_format(self.path, next(every, b""))
            for line in every:
                _add(writer, line)
        writer.finish()
        index = made.getvalue()
        self.index_kept = derived_files.keep(index, self._kept)
        self.indexed_s = time.perf_counter() - started
        return LineIndex(index)

    def _asked(self, question: Callable[[LineIndex], Answer]) -> Answer:
        """The answer of the index; of a new one if this one is damaged."""
        with _decoding(self.path):
            try:
                return question(self._index)
            except IndexDamaged:
                self._index = self._made()
                return question(self._index)

    def plan(
        self, digest: str, granularity: str, target_key: str, name: str | None
    ) -> TimedPlan | None:
        """The plan of a model, called ``name``, and the seconds of decomposing; or None."""

        def question(index: LineIndex) -> TimedPlan | None:
            entry = index.section(_plans(target_key, granularity)).get(digest)
            if entry is None:
                return None
            data = json.loads(index.line(entry))["plan"]["plan"]
            renamed = data if name is None else data | {"model": name}
            return Plan.from_json(renamed), entry[2]

        return self._asked(question)

    def plans(self, target_key: str, granularity: str) -> list[TimedPlan]:
        """All plans of a target, with the wall time in seconds of decomposing."""
        return self._asked(
            lambda index: [
                (Plan.from_json(json.loads(index.line(entry))["plan"]["plan"]), entry[2])
                for entry in index.section(_plans(target_key, granularity)).values()
            ]
        )

    def usage(self, target_key: str, granularity: str) -> list[ModelUsage]:
        """The name of each model of a target, and its bricks as ``Plan.usage``."""
        return self._asked(
            lambda index: [
                records.usage_of_plan(json.loads(index.line(entry))["plan"]["plan"])
                for entry in index.section(_plans(target_key, granularity)).values()
            ]
        )

    def bricks(self, keys: Collection[str]) -> dict[str, Brick]:
        """The bricks of ``keys`` in the file."""

        def question(index: LineIndex) -> dict[str, Brick]:
            known = index.section(_BRICKS)
            return {
                key: records.brick_of(json.loads(index.line(known[key]))["brick"])
                for key in keys
                if key in known
            }

        return self._asked(question)

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """The results of ``keys`` on this target in the file."""

        def question(index: LineIndex) -> dict[str, Measurement | Failure]:
            known = index.section(_results(target_key))
            return {key: _result(index.line(known[key])) for key in keys if key in known}

        return self._asked(question)

    def costs(self, target_key: str) -> dict[str, float]:
        """Wall seconds, by key, of all that is measured on this target."""
        section = self._asked(lambda index: index.section(_results(target_key)))
        return {key: entry[2] for key, entry in section.items() if entry[3]}

    def watched(self, target_key: str) -> list[HostConditions]:
        """The conditions that this target's host was watched in; earlier files have none."""

        def question(index: LineIndex) -> list[HostConditions]:
            entry = index.section(_TARGETS).get(target_key)
            if entry is None:
                return []
            every = json.loads(index.line(entry))["target"].get("watched", ())
            return [*map(HostConditions.from_json, every)]

        return self._asked(question)


def _plans(target_key: str, granularity: str) -> str:
    return f"plans {target_key} {granularity}"


def _results(target_key: str) -> str:
    return f"results {target_key}"


def _add(writer: IndexWriter, line: bytes) -> None:
    if (match := _MEASUREMENT.match(line)) is not None:
        target, key, protocol, wall_s, kind = match.groups()
        if int(protocol) == PROTOCOL:
            measured = kind == b"rounds"
            writer.add(_results(target.decode()), key.decode(), line, float(wall_s), measured)
    elif (match := _BRICK.match(line)) is not None:
        writer.add(_BRICKS, match[1].decode(), line)
    elif (match := _TARGET.match(line)) is not None:
        writer.add(_TARGETS, match[1].decode(), line)
    elif (match := _PLAN.match(line)) is not None:
        target, wall_s, digest, cut = match.groups()
        writer.add(_plans(target.decode(), cut.decode()), digest.decode(), line, float(wall_s))
    elif (match := _KIND.match(line)) is None or match[1] not in _OTHERS:
        raise ValueError(f"it holds a line that is no record: {line[:40]!r}")


def _result(line: bytes) -> Measurement | Failure:
    data = json.loads(line)["measurement"]
    if "reason" in data:
        return Failure(data["brick"], data["reason"])
    # Numbers are not checked again: the file is as it was when publishing it compared them.
    rounds = tuple(map(round_of_record, data["rounds"]))
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
