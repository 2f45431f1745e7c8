"""One file of published measurements: its lines, indexed, and decoded on demand.

An estimate needs one plan and a few hundred measurements of a file of thousands. Must not
know which files there are, nor how a damaged one is handled.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bricks.decompose.plan import Brick, Plan
from bricks.errors import StoreError, first_line
from bricks.samples.machine_state import same_state
from bricks.samples.measurement import PROTOCOL, Failure, Measurement
from bricks.store import records, results_file
from bricks.store.published_index import DAMAGE
from bricks.store.round_records import round_of_record

if TYPE_CHECKING:
    from bricks.store.reading import ModelUsage, TimedPlan

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
# What follows the samples of a round: the reference before it, the share waited, the one after it.
_CONDITIONS = re.compile(rb"\],([^],\[]+),[^],\[]+,([^],\[]+)\]")


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


@dataclass(slots=True)
class PublishedFile:
    """The lines of one file, indexed by target, model or key, and decoded on demand."""

    path: Path
    of_plans: dict[tuple[str, str], dict[str, tuple[bytes, float]]] = field(default_factory=dict)
    of_bricks: dict[str, bytes] = field(default_factory=dict)
    of_results: dict[str, dict[str, tuple[bytes, float, bool]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path, sha256: str) -> PublishedFile:
        """Read a file; StoreError unless it has the digest ``sha256``, of its index entry."""
        content, published = content_of(path, sha256), cls(path)
        with _decoding(path), results_file.uncompressed(io.BytesIO(content)) as file:
            every = results_file.lines(path, file)
            results_file.check_format(path, next(every, b""))
            for line in every:
                published._add(line)
        return published

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
    ) -> TimedPlan | None:
        """The plan of a model, called ``name``, and the seconds of decomposing; or None."""
        stored = self.of_plans.get((target_key, granularity), {}).get(digest)
        if stored is None:
            return None
        with _decoding(self.path):
            data = json.loads(stored[0])["plan"]["plan"]
            renamed = data if name is None else data | {"model": name}
            return Plan.from_json(renamed), stored[1]

    def plans(self, target_key: str, granularity: str) -> list[TimedPlan]:
        """All plans of a target, with the wall time in seconds of decomposing."""
        with _decoding(self.path):
            return [
                (Plan.from_json(json.loads(line)["plan"]["plan"]), wall_s)
                for line, wall_s in self.of_plans.get((target_key, granularity), {}).values()
            ]

    def usage(self, target_key: str, granularity: str) -> list[ModelUsage]:
        """The name of each model of a target, and its bricks as ``Plan.usage``."""
        with _decoding(self.path):
            return [
                records.usage_of_plan(json.loads(line)["plan"]["plan"])
                for line, _ in self.of_plans.get((target_key, granularity), {}).values()
            ]

    def bricks(self, keys: Collection[str]) -> dict[str, Brick]:
        """The bricks of ``keys`` in the file."""
        with _decoding(self.path):
            return {
                key: records.brick_of(json.loads(self.of_bricks[key])["brick"])
                for key in keys
                if key in self.of_bricks
            }

    def results(self, target_key: str, keys: Sequence[str]) -> dict[str, Measurement | Failure]:
        """The results of ``keys`` on this target in the file."""
        lines = self.of_results.get(target_key, {})
        with _decoding(self.path):
            return {key: _result(lines[key][0]) for key in keys if key in lines}

    def costs(self, target_key: str) -> dict[str, float]:
        """Wall seconds, by key, of all that is measured on this target."""
        lines = self.of_results.get(target_key, {})
        return {key: wall_s for key, (_, wall_s, measured) in lines.items() if measured}

    def references_s(self, target_key: str) -> Iterator[tuple[str, list[float]]]:
        """Each key that is measured on this target, with the references of its steady rounds.

        Samples are not decoded, which would take several times as long.
        """
        with _decoding(self.path):
            for key, (line, _, measured) in self.of_results.get(target_key, {}).items():
                if measured:
                    yield key, _steady_references_s(line)


# Other lines: the index has the facts of the first two.
_OTHERS = (b"system", b"target", b"end")


def _result(line: bytes) -> Measurement | Failure:
    data = json.loads(line)["measurement"]
    if "reason" in data:
        return Failure(data["brick"], data["reason"])
    # Numbers are not checked again: the file is as it was when publishing it compared them.
    rounds = tuple(map(round_of_record, data["rounds"]))
    return Measurement(data["brick"], rounds, data["wall_s"], published=True)


def _steady_references_s(line: bytes) -> list[float]:
    """The references in seconds of the rounds that began and ended in one machine state."""
    steady = []
    for begin, end in _CONDITIONS.findall(line):
        if begin != b"null":
            reference_s = float(begin)
            if same_state(reference_s, None if end == b"null" else float(end)):
                steady.append(reference_s)
    return steady


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Turn any error of decoding into a StoreError that names the file."""
    try:
        yield
    except StoreError:
        raise
    except DAMAGE as exc:
        raise StoreError(f"{path} cannot be read ({first_line(exc, 120)}): update bricks") from exc
