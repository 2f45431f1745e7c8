"""Reads what the program of a portable suite measured, as records of a results file.

A file whose last line is cut off is read up to that line: its process was ended. Must not know how
records are merged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bricks.errors import SuiteError, later_format
from bricks.suite.portable.runner import run_log

Record = tuple[str, dict[str, Any]]


def is_run(path: Path) -> bool:
    """Whether a file begins as the program of a portable suite begins it."""
    try:
        with path.open("rb") as file:
            line = file.read(64)
    except OSError:
        return False
    return line.startswith(f'["{run_log.HEAD}",{{"name":"{run_log.FORMAT}"'.encode())


@dataclass(frozen=True, slots=True)
class RunResults:
    """The ``head`` of a file, and its other lines."""

    head: Mapping[str, Any]
    lines: tuple[run_log.Line, ...]

    @classmethod
    def read(cls, path: Path) -> RunResults:
        """Read a file; :class:`SuiteError` for one that was changed, or is of a later version."""
        try:
            raw = path.read_bytes()
        except OSError as exc:
            raise SuiteError(f"{path} cannot be read ({exc.strerror}): give another file") from exc
        whole = raw[: raw.rfind(b"\n") + 1].splitlines(keepends=True)
        known = [run_log.read(line) for line in whole]
        lines = tuple(line for line in known if line is not None)
        if not lines or len(lines) < len(known):
            raise SuiteError(
                f"{path} was changed after it was written, nothing was imported: copy it again"
            )
        (_, head), *rest = lines
        if head["version"] > run_log.VERSION:
            raise SuiteError(later_format(path, head["version"], run_log.VERSION))
        return cls(head, tuple(rest))

    def of(self, kind: str) -> Iterator[Any]:
        """The data of all lines of a kind."""
        return (data for own, data in self.lines if own == kind)

    def records(self) -> Iterator[Record]:
        """The records of a results file, in their order there."""
        target = self.head["target"]
        yield "system", self.head["system"]
        yield "target", target
        for brick in self.of(run_log.BRICK):
            yield "brick", brick
        for plan in self.of(run_log.PLAN):
            yield "plan", {**plan, "target": target["key"]}
        yield from self._measurements()

    def _measurements(self) -> Iterator[Record]:
        rounds: dict[str, list[Any]] = {}
        for each in self.of(run_log.ROUND):
            rounds.setdefault(each["brick"], []).append(each["round"])
        reasons = {each["brick"]: each["reason"] for each in self.of(run_log.FAILURE)}
        common = {"target": self.head["target"]["key"], "protocol": self.head["protocol"]}
        for key in sorted({*rounds, *reasons}):
            own = {"rounds": rounds[key]} if key in rounds else {"reason": reasons[key]}
            yield "measurement", {**common, "brick": key, "wall_s": _wall_s(rounds, key), **own}


def _wall_s(rounds: Mapping[str, list[Any]], key: str) -> float:
    """Seconds of all samples of a brick."""
    samples = (sample for one in rounds.get(key, ()) for sample in one[0])
    hosts_s = (sample[0] if isinstance(sample, list) else sample for sample in samples)
    return float(sum(hosts_s))
