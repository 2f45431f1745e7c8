"""Measures the groups of bricks of a suite in turn, what matters most first, until time is up.

Must not know any runtime.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bricks.backends.portable import GroupWalk, OutOfMemory, PortableRuntime, SampledRound
from bricks.errors import BricksError, SuiteError, first_line
from bricks.suite.portable.runner import run_log
from bricks.suite.portable.runner.run_log import RunLog
from bricks.suite.portable.runner.summary import RunSummary
from bricks.system.accelerator_state import AcceleratorState
from bricks.system.fingerprint import fingerprint
from bricks.system.target import Runtime, Target

if TYPE_CHECKING:
    from bricks.suite.portable.runner.options import RunOptions
    from bricks.suite.portable.runner.suite_data import SuiteData

# Groups of no more bytes stay loaded from turn to turn.
_KEPT_BYTES = 1 << 30
# Turns in which real steps run, too.
_STEP_TURNS = 3


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


@dataclass(frozen=True)
class Variant:
    """What a suite has for one provider: its programs and groups of bricks."""

    programs: Sequence[Mapping[str, Any]]
    groups: Sequence[str]


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
        self.variant = Variant(chosen["programs"], chosen["groups"])
        self.notes = [*facts.notes, *chosen.get("notes", ())]
        self.log = RunLog(self.options.out, self._head())
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
        self._write_plans()
        turn = 0
        while not self.out_of_time and self._turn(turn):
            turn += 1

    def _head(self) -> dict[str, Any]:
        target = self.target
        return {
            "name": run_log.FORMAT, "version": run_log.VERSION, "suite": self.data.digest,
            "package": self.data.content["format"]["package"],
            "protocol": self.data.content["protocol"], "system": target.system.to_json(),
            "target": {
                "key": target.key, "system": target.system.key,
                "runtime": target.runtime.to_json(),
            },
        }  # fmt: skip

    def _write_plans(self) -> None:
        known = {each["plan"]["digest"] for each in self.log.of(run_log.PLAN)}
        for program in self.variant.programs:
            if program["digest"] not in known:
                plan = self.data.json(program["plan"])
                self._write_bricks({o[0] for o in plan["plan"]["occurrences"]})
                self.log.add(run_log.PLAN, plan, keep=False)

    def _write_bricks(self, keys: set[str]) -> None:
        for key in sorted(keys - self._written):
            self.log.add(run_log.BRICK, self.data.json(f"records/{key}.json"), keep=False)
        self._written |= keys

    def _turn(self, turn: int) -> bool:
        """Take a round of all that is not known well enough; whether there was anything."""
        if turn < _STEP_TURNS:
            self._take_steps()
        anything = False
        for number, name in enumerate(self.variant.groups):
            if self.out_of_time:
                break
            group = self.data.json(name)
            left = self._left(group)
            if left:
                anything = True
                self._say(f"turn {turn + 1}, group {number + 1} of {len(self.variant.groups)}")
                self._sample(name, group)
        return self._take_probes() or anything

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
        for program in self.variant.programs:
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

    def _take_probes(self) -> bool:
        """Take a round of each probe; whether there is none yet, because the host is busy."""
        try:
            for one in self.runtime.probes():
                self._keep(one)
            self._probed = True
        except BricksError as error:
            self._say(str(error))
        return not self._probed

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
