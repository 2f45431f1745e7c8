"""Measures the groups of bricks of a suite in turn, what matters most first, until time is up.

The suite is read from the archive that is running. A summary says what was found, and whether the
calls of programs add up to their real steps. Must not know any runtime.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bricks.backends.portable import GroupWalk, OutOfMemory, PortableRuntime, SampledRound
from bricks.errors import BricksError, SuiteError, first_line
from bricks.suite.runner import run_log
from bricks.suite.runner.run_log import RunLog
from bricks.system.accelerator import AcceleratorState, joined
from bricks.system.fingerprint import fingerprint
from bricks.system.target import Runtime, Target
from bricks.units.sample import Sample

if TYPE_CHECKING:
    from bricks.suite.runner.options import RunOptions

# Groups of no more bytes stay loaded from turn to turn.
_KEPT_BYTES = 1 << 30
# Turns in which real steps run, too.
_STEP_TURNS = 3
MANIFEST, CONTENT = "manifest.json", "suite.json"


@dataclass(slots=True)
class RunSummary:
    """Seconds of each brick and model by key: on the host, and of all kernels of a run.

    ``states`` are those of a GPU in each round, where it tells them.
    """

    host_s: dict[str, list[float]] = field(default_factory=dict)
    device_s: dict[str, list[float]] = field(default_factory=dict)
    states: list[AcceleratorState] = field(default_factory=list)

    def add(self, key: str, samples: Sequence[Any]) -> bool:
        """Add the JSON of samples; whether they are of a walk, and not of another state."""
        known = [Sample.from_json(sample) for sample in samples]
        if any(sample.displaced_bytes is not None for sample in known):
            return False
        self.host_s.setdefault(key, []).append(median(sample.host_s for sample in known))
        self.device_s.setdefault(key, []).append(median(sample.device_s for sample in known))
        return True

    def lines(self, programs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """A line for each program: its calls next to its real step, where that ran.

        The last line has the clocks of a GPU, and in how many rounds they were lowered.
        """
        for program in programs:
            counts = Counter(program["counts"])
            missing = sum(n for key, n in counts.items() if key not in self.host_s)
            known = f", {missing} calls are not measured" if missing else ""
            on_device = any(any(self.device_s.get(key, ())) for key in counts)
            what, of = ("kernels", self.device_s) if on_device else ("calls alone", self.host_s)
            total_s = sum(n * median(of[key]) for key, n in counts.items() if key in of)
            step = of.get(program["digest"])
            whole = f"; a real step takes {_ms(median(step))}" if step else ""
            yield f"{program['name']}: {what} take {_ms(total_s)}{known}{whole}"
        if self.states:
            yield self._clocks_line()

    def _clocks_line(self) -> str:
        clocks_hz = [state.clock_hz for state in self.states if state.clock_hz is not None]
        clocks = f"clock {_ghz(min(clocks_hz))} to {_ghz(max(clocks_hz))}, " if clocks_hz else ""
        lowered = joined(state for state in self.states if state.throttled_by)
        if lowered is None:
            return f"GPU: {clocks}never throttled"
        count = sum(bool(state.throttled_by) for state in self.states)
        reasons = " and ".join(lowered.throttled_by)
        return f"GPU: {clocks}throttled by {reasons} in {count} of {len(self.states)} rounds"


def _ghz(clock_hz: float) -> str:
    return f"{clock_hz / 1e9:.2f} GHz"


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def opened(data: SuiteData, options: RunOptions) -> PortableRuntime:
    """The runtime of the suite, which this Python has; :class:`SuiteError` if it has not."""
    module, _, name = data.content["runner"].partition(":")
    try:
        made = getattr(importlib.import_module(module), name)
    except ImportError as exc:
        raise SuiteError(
            f"this Python lacks {exc.name or exc}: run the suite with a Python that has"
            f" {data.content['runtime']['backend']} and NumPy"
        ) from exc
    runtime: PortableRuntime = made(
        device=options.device, threads=options.threads, content=data.content
    )
    return runtime


@dataclass
class SuiteRun:
    """A run of ``data`` on ``runtime`` until ``deadline_s``, in seconds of ``time.monotonic``."""

    data: SuiteData
    runtime: PortableRuntime
    options: RunOptions
    deadline_s: float
    summary: RunSummary = field(default_factory=RunSummary)

    def __post_init__(self) -> None:
        facts = self.runtime.facts()
        system = fingerprint(self.options.name)
        if facts.accelerator is not None:
            system = system.with_accelerator(facts.accelerator)
        given = self.data.content["runtime"]
        own = {"version": facts.version, "provider": facts.provider, "threads": facts.threads}
        self.target = Target(system, Runtime(**{**given, **own}))
        variants = self.data.content["variants"]
        chosen = variants.get(facts.provider) or variants[self.data.content["default"]]
        self.programs: Sequence[Mapping[str, Any]] = chosen["programs"]
        self.groups: Sequence[str] = chosen["groups"]
        self.notes = [*facts.notes, *chosen.get("notes", ())]
        target = self.target
        head = {
            "name": run_log.FORMAT, "version": run_log.VERSION, "suite": self.data.digest,
            "package": self.data.content["format"]["package"],
            "protocol": self.data.content["protocol"], "system": target.system.to_json(),
            "target": {
                "key": target.key, "system": target.system.key,
                "runtime": target.runtime.to_json(),
            },
        }  # fmt: skip
        self.log = RunLog(self.options.out, head)
        self.failures = {each["brick"]: each["reason"] for each in self.log.of(run_log.FAILURE)}
        self._written = {each["key"] for each in self.log.of(run_log.BRICK)}
        self._rounds: Counter[str] = Counter()
        self._pieces: dict[str, Any] = {}
        self._loaded: dict[str, GroupWalk] = {}
        self._kept_bytes = 0
        self._probed = False
        for each in self.log.of(run_log.ROUND):
            self._count(each["brick"], each["round"])

    @property
    def out_of_time(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() >= self.deadline_s

    def run(self) -> None:
        """Measure until all is known well enough, or the time is up."""
        known = {each["plan"]["digest"] for each in self.log.of(run_log.PLAN)}
        for program in self.programs:
            if program["digest"] not in known:
                plan = self.data.json(program["plan"])
                keys = {o[0] for o in plan["plan"]["occurrences"]}
                for key in sorted(keys - self._written):
                    self.log.add(run_log.BRICK, self.data.json(f"records/{key}.json"), keep=False)
                self._written |= keys
                self.log.add(run_log.PLAN, plan, keep=False)
        turn = 0
        while not self.out_of_time and self._turn(turn):
            turn += 1

    def _turn(self, turn: int) -> bool:
        """Take a round of all that is not known well enough; whether there was anything."""
        if turn < _STEP_TURNS:
            self._take_steps()
        anything = False
        for number, name in enumerate(self.groups):
            if self.out_of_time:
                break
            group = self.data.json(name)
            left = self._left(group)
            if left:
                anything = True
                self._say(f"turn {turn + 1}, group {number + 1} of {len(self.groups)}")
                self._sample(name, group)
        # Without a round of each probe, because the host is busy, another turn follows.
        try:
            for one in self.runtime.probes():
                self._keep(one)
            self._probed = True
        except BricksError as error:
            self._say(str(error))
        return not self._probed or anything

    def _left(self, group: Mapping[str, Any]) -> list[str]:
        """The bricks of a group that need more rounds."""
        wanted = group["rounds"]
        return [k for k in group["keys"] if k not in self.failures and self._rounds[k] < wanted]

    def _sample(self, name: str, group: Mapping[str, Any]) -> None:
        try:
            walked = self._walked(name, group)
            for one in () if walked is None else walked.rounds():
                self._keep(one)
        except OutOfMemory as exc:
            self._loaded.clear()
            for key in self._left(group):
                self._fail(key, f"out of memory: {first_line(exc)}")

    def _walked(self, name: str, group: Mapping[str, Any]) -> GroupWalk | None:
        """The group, loaded and rehearsed; None if none of its bricks runs."""
        if name not in self._loaded:
            if self._kept_bytes + group["bytes"] > _KEPT_BYTES:
                self._loaded.clear()
                self._kept_bytes = 0
            steps = [step for step in group["steps"] if step["key"] not in self.failures]
            if not any(step["timed"] for step in steps):
                return None
            pieces = {step["key"]: self._piece(step["key"]) for step in steps}
            walked = self.runtime.group({**group, "steps": steps}, pieces)
            for key, reason in walked.rehearse(self._begun).items():
                self._fail(key, reason)
            self.log.add(run_log.DONE, name, keep=False)
            self._loaded[name] = walked
            self._kept_bytes += group["bytes"]
        return self._loaded[name]

    def _piece(self, key: str) -> Any:
        if key not in self._pieces:
            self._pieces[key] = self.data.json(f"pieces/{key}.json")
        return self._pieces[key]

    def _begun(self, key: str) -> None:
        self.log.add(run_log.BEGUN, key, keep=False)

    def _fail(self, key: str, reason: str) -> None:
        self.failures[key] = reason
        self.log.add(run_log.FAILURE, {"brick": key, "reason": reason})
        self._say(f"{key}: {reason}")

    def _take_steps(self) -> None:
        """Run real steps of the programs whose code is along."""
        for program in self.programs:
            failed = program["digest"] in self.failures
            if program.get("code") is None or failed or self.out_of_time:
                continue
            with tempfile.TemporaryDirectory(prefix="bricks-") as scratch:
                code = self.data.unpack("code", Path(scratch))
                self._begun(program["digest"])
                try:
                    for one in self.runtime.real_steps(program, str(code)):
                        self._keep(one)
                except OutOfMemory as exc:
                    self._fail(program["digest"], f"out of memory: {first_line(exc)}")
                except Exception as exc:  # of the program's own code
                    self._fail(program["digest"], first_line(exc))
                self.log.add(run_log.DONE, program["digest"], keep=False)

    def _keep(self, one: SampledRound) -> None:
        data = [[sample.to_json() for sample in one.samples], *one.conditions]
        self.log.add(run_log.ROUND, {"brick": one.key, "round": data})
        self._count(one.key, data)

    def _count(self, key: str, data: Sequence[Any]) -> None:
        samples, _before, _waited, _after, *state = data
        in_walk = self.summary.add(key, samples)
        self.summary.states += map(AcceleratorState.from_json, state)
        self._rounds[key] += in_walk

    def _say(self, text: str) -> None:
        print(text, flush=True)


class SuiteData:
    """The files of the archive at ``path``, all of which have the digests of its manifest.

    ``digest`` is that of the manifest. Raises :class:`SuiteError` for altered or missing files.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
            manifest = self._zip.read(MANIFEST)
            files = json.loads(manifest)["files"]
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as exc:
            raise SuiteError(f"{path} is cut off, or no portable suite: copy it again") from exc
        self.path, self.digest = path, hashlib.sha256(manifest).hexdigest()
        names = [name for name in self._zip.namelist() if name != MANIFEST]
        odd = sorted({*names} ^ {*files}) or [n for n in names if self._digest(n) != files[n]]
        if odd:
            raise SuiteError(
                f"{path}: its file {odd[0]} is not as it was written: copy the suite again"
            )
        self.content = self.json(CONTENT)

    def json(self, name: str) -> Any:
        """The content of a JSON file."""
        return json.loads(self._zip.read(name))

    def names(self, folder: str) -> list[str]:
        """The names of all files in a folder."""
        return [name for name in self._zip.namelist() if name.startswith(f"{folder}/")]

    def unpack(self, folder: str, into: Path) -> Path:
        """Write the files of ``folder`` below ``into``; return where they are."""
        self._zip.extractall(into, self.names(folder))
        return into / folder

    def _digest(self, name: str) -> str | None:
        try:
            return hashlib.sha256(self._zip.read(name)).hexdigest()
        except (zipfile.BadZipFile, OSError, ValueError):  # other bytes than were written
            return None
