"""Damaged models, put through all that a command does with a model, while somebody watches.

    python tools/fuzzing.py --cases 10000 --seed 0      # what `make fuzz` runs

A child process drives: it damages a model, reads it, decomposes it at each granularity, and now and
then measures it. This process watches the child and its workers, and outlives them. A *finding* is
an error that is no :class:`BricksError`, a message that is not one line of printable characters, a
step that takes over 10 s, more than 2 GiB in any process, and the end of the child. A worker may
die; that has to come out as an error. Files that found something are kept.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import psutil
from damage import damaged
from onnx import helper

from bricks.api.bench import Bench
from bricks.errors import BricksError
from bricks.graph.model import Model
from bricks.graph.view import graph_of, parse_model
from bricks.graph.weights import denormal_share
from bricks.measure.conditions import Conditions, StopRule
from bricks.measure.supervisor import WorkerDied
from bricks.operators.integer_ranges import assumptions
from bricks.reading.read import read_model

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
import factories  # noqa: E402  # found by the path above

MAX_STEP_S = 10.0
MAX_BYTES = 2 << 30
START_S = 120.0
POLL_S = 0.05

# What a bench for files of strangers is given. Without, a model may claim large weights and inputs,
# and then takes as much memory and time as such a model would.
WORKER_BYTES, GRAPH_S = 1 << 30, 3.0
GRANULARITIES = ("executed", "1", "2")
MEASURED_SHARE = 0.05
ZOO = (
    "squeezenet", "gluon_squeezenet11", "gluon_mobilenet025", "mobilenet_v1", "shufflenet",
    "inception_v1", "electra_small", "t5_encoder",
)  # fmt: skip

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Finding:
    """Something that must not happen: in which case and step, of what kind, with what words."""

    case: int
    step: str
    kind: str
    what: str


@dataclass
class Report:
    """What became of the cases. ``outcomes`` adds up to their number; ``survived`` does not."""

    seed: int
    cases: int
    outcomes: Counter[str] = field(default_factory=Counter)
    survived: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    longest_step_s: float = 0.0
    peak_bytes: Counter[str] = field(default_factory=Counter)
    wall_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        kinds = Counter(finding.kind for finding in self.findings)
        return {
            "seed": self.seed,
            "cases": self.cases,
            "outcomes": dict(sorted(self.outcomes.items())),
            "survived": dict(sorted(self.survived.items())),
            "findings": {k: kinds[k] for k in ("crash", "hang", "memory", "exception", "message")},
            "limits": {"memory_mib": WORKER_BYTES >> 20, "graph_timeout_s": GRAPH_S},
            "longest_step_s": round(self.longest_step_s, 1),
            "peak_mib": {who: size >> 20 for who, size in sorted(self.peak_bytes.items())},
            "wall_s": round(self.wall_s),
            "versions": {
                "python": platform.python_version(),
                "onnx": onnx.__version__,
                "onnxruntime": onnxruntime.__version__,
            },
        }


def seeds() -> dict[str, bytes]:
    """Models to damage: real ones, and small ones that run fast."""
    found = {f"{name}.onnx": (ROOT / "models" / f"{name}.onnx").read_bytes() for name in ZOO}
    made = {
        "conv": factories.conv_net(blocks=1, size=8),
        "conv-open": factories.conv_net(blocks=1, size=8, batch="N"),
        "mlp": factories.mlp(),
        "embedding": factories.embedding_net(),
        "branching": factories.branching_net(),
        "choice": choice(),
        "steered": steered(),
    }
    # The small ones twice: they take less time, and more of each is reached.
    for name, proto in made.items():
        found[f"{name} 1"] = found[f"{name} 2"] = proto.SerializeToString()
    return found


def choice() -> onnx.ModelProto:
    """An If whose branches hold constants of their own."""
    y = factories.value("z", [2, 4])
    bodies = {
        name: helper.make_graph(
            [factories.node(op, ["x", "k"], ["z"])],
            name,
            [],
            [y],
            [factories.constant("k", np.full((2, 4), 0.5), "FLOAT")],
        )
        for name, op in (("then_branch", "Add"), ("else_branch", "Mul"))
    }
    nodes = [
        factories.node("If", ["c"], ["y"], **bodies),
        factories.node("Relu", ["y"], ["out"]),
    ]
    inputs = [factories.value("c", [], "BOOL"), factories.value("x", [2, 4])]
    return factories.model(nodes, inputs, [factories.value("out", [2, 4])])


def steered() -> onnx.ModelProto:
    """Shapes that integers steer, and one that depends on data."""
    nodes = [
        factories.node("Reshape", ["x", "shape"], ["r"]),
        factories.node("Slice", ["r", "zero", "two", "zero"], ["s"]),
        factories.node("NonZero", ["s"], ["n"]),
        factories.node("Cast", ["n"], ["f"], to=1),
        factories.node("ReduceSum", ["f"], ["y"], keepdims=0),
    ]
    constants = [
        factories.constant("shape", [4, 2]),
        factories.constant("zero", [0]),
        factories.constant("two", [2]),
    ]
    return factories.model(
        nodes, [factories.value("x", [2, 4])], [factories.value("y", [])], constants
    )


# The child


def drive(seed: int, cases: Sequence[int], folder: Path, say: Say) -> None:
    """Run the cases in ``folder``, announcing each step."""
    # Where one of them takes everything, it should be this process that fails, and not the host.
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_DATA, (2 * MAX_BYTES, resource.RLIM_INFINITY))
    path = folder / "case.onnx"
    context_weight_bytes(folder)
    models = seeds()
    rule = StopRule(min_rounds=1, max_rounds=1, passes=1)
    conditions = Conditions(rule=rule, timeout_s=2.0, budget_s=4.0, exclusive=False)
    with ExitStack() as stack:
        benches = {
            granularity: stack.enter_context(
                Bench(
                    folder / "cache",
                    granularity=granularity,
                    threads=1,
                    conditions=conditions,
                    memory_bytes=WORKER_BYTES,
                    graph_timeout_s=GRAPH_S,
                )
            )
            for granularity in GRANULARITIES
        }
        warm = read_model(ROOT / "models" / "squeezenet.onnx")
        for bench in benches.values():
            bench.decompose(warm)
        say({"ready": True})
        for case in cases:
            rng = random.Random(f"{seed}/{case}")
            what, data = damaged(rng, models)
            path.write_bytes(data)
            one = _Case(case, what, say)
            one.run(path, benches, measure=rng.random() < MEASURED_SHARE)
            say({"case": case, "outcome": one.outcome, "survived": one.survived})


def context_weight_bytes(folder: Path) -> None:
    """What a model may try to refer to, in its folder and outside of it."""
    inner = folder / "folder"
    inner.mkdir(exist_ok=True)
    for name in ("inside.bin", "folder/inside.bin", "../outside.bin"):
        (folder / name).write_bytes(bytes(1 << 20))
    for link, target in (
        ("leads-out.bin", "../outside.bin"),
        ("loop.bin", "loop.bin"),
        ("out-folder", ".."),
    ):
        with suppress(FileExistsError):
            (folder / link).symlink_to(target)
    with suppress(FileExistsError):
        os.mkfifo(folder / "pipe")


class _Case:
    """One damaged model on its way through all steps."""

    def __init__(self, number: int, what: str, say: Say) -> None:
        self.outcome = ""
        self.survived: list[str] = []
        self._number = number
        self._what = what
        self._say = say

    def run(self, path: Path, benches: dict[str, Bench], *, measure: bool) -> None:
        model = self._step("read", lambda: read_model(path))
        if not isinstance(model, Model):
            return
        self._step("look", lambda: self._look(model))
        for granularity, bench in benches.items():
            done = self._step(f"decompose {granularity}", lambda b=bench: b.decompose(model))
            if done is not None and measure:
                measured = self._step(f"measure {granularity}", lambda b=bench: b.measure([model]))
                if measured is not None and measured.failures:
                    self.survived.append("bricks that could not be measured")
            if self.survived and done is None:
                break  # the worker is gone: it would be for the others, too, and take as long
        if not self.outcome:
            self.outcome = "decomposed and measured" if measure else "decomposed"

    def _look(self, model: Model) -> None:
        """What commands do with a model besides."""
        denormal_share(model)
        for text in assumptions(graph_of(parse_model(model.skeleton))):
            self._check(text, "look")

    def _step(self, name: str, action: Callable[[], Any]) -> Any:
        self._say({"case": self._number, "step": name, "what": self._what})
        try:
            return action()
        except BricksError as error:
            kind = "read" if name == "read" else name.split()[0]
            self.outcome = self.outcome or f"refused ({kind}): {type(error).__name__}"
            self._check(str(error), name)
            if isinstance(error.__cause__, WorkerDied):
                slow = "did not finish" in str(error)
                self.survived.append("workers that took too long" if slow else "workers that died")
        except Exception as error:
            self.outcome = self.outcome or "finding"
            place = traceback.format_exc(limit=-6)
            self._found("exception", name, f"{type(error).__name__}: {error}"[:500], place)
        return None

    def _check(self, text: str, step: str) -> None:
        if not text.isprintable() or len(text) > 2000:
            self._found("message", step, ascii(text[:300]))

    def _found(self, kind: str, step: str, what: str, place: str = "") -> None:
        self._say(
            {"case": self._number, "step": step, "finding": kind, "text": what, "place": place}
        )


# The watcher


def fuzz(
    cases: int, seed: int, folder: Path, *, first: int = 0, progress: Callable[[str], None] = print
) -> Report:
    """Run so many cases; what found something is kept in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(seed, cases)
    started = time.monotonic()
    at, end = first, first + cases
    while at < end:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
            work = Path(scratch) / "work"
            work.mkdir()
            watch = _Watch(report, work, folder, progress)
            at = watch.run(seed, at, end)
    report.wall_s = time.monotonic() - started
    return report


class _Watch:
    """Starts a child and follows what it says, until it is done, or has to be ended."""

    def __init__(
        self, report: Report, work: Path, folder: Path, progress: Callable[[str], None]
    ) -> None:
        self._report = report
        self._work = work
        self._folder = folder
        self._progress = progress
        self._case = -1
        self._step = "start"
        self._what = ""

    def run(self, seed: int, first: int, end: int) -> int:
        """The number of the case to go on with."""
        command = [sys.executable, __file__, "--drive", str(self._work), "--seed", str(seed)]
        command += ["--first", str(first), "--cases", str(end - first)]
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(p for p in paths if p))
        self._case = first - 1
        with tempfile.TemporaryFile() as log:
            child = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
            try:
                done = self._follow(child)
                if not done:
                    log.seek(0)
                    tail = log.read().decode(errors="replace").strip()[-2000:]
                    self._ended(child, tail)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
                assert child.stdout is not None
                child.stdout.close()
        return self._case + 1

    def _follow(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether the child was through, or was ended for a finding."""
        since, patience_s = time.monotonic(), START_S
        for line in _lines(child):
            taken_s = time.monotonic() - since
            if line is None:
                if self._too_large(child):
                    return True
                if taken_s > patience_s:
                    self._find("hang", f"no end after {patience_s:.0f} s")
                    return True
                continue
            message = json.loads(line)
            if patience_s == MAX_STEP_S and taken_s > self._report.longest_step_s:
                self._report.longest_step_s = taken_s
                if taken_s > MAX_STEP_S / 2:
                    where = f"case {self._case} ({self._what}), {self._step}"
                    self._progress(f"{taken_s:.1f} s: {where}")
            since, patience_s = time.monotonic(), MAX_STEP_S
            if message.get("through"):
                return True
            self._take(message)
        return False

    def _take(self, message: dict[str, Any]) -> None:
        if "step" in message:
            self._case, self._step = message["case"], message["step"]
            self._what = message.get("what", self._what)
        if "finding" in message:
            self._find(message["finding"], message["text"], message["place"])
        if "outcome" in message:
            self._report.outcomes[message["outcome"]] += 1
            self._report.survived.update(message["survived"])
            total = self._report.outcomes.total()
            if total % 500 == 0:
                self._progress(f"{total} cases, {len(self._report.findings)} findings")

    def _too_large(self, child: subprocess.Popen[bytes]) -> bool:
        """Whether the child or a worker of it holds, or has held, more than it may."""
        sizes = {"main": _peak_bytes(child.pid)}
        with suppress(psutil.Error):
            sizes["worker"] = max(
                (_peak_bytes(p.pid) for p in psutil.Process(child.pid).children()), default=0
            )
        for who, size in sizes.items():
            self._report.peak_bytes[who] = max(self._report.peak_bytes[who], size)
            if size > MAX_BYTES:
                self._find("memory", f"{who} process: {size >> 20} MiB")
                return True
        return False

    def _ended(self, child: subprocess.Popen[bytes], tail: str) -> None:
        status = child.wait()
        self._find("crash", f"the process ended with status {status}", tail)

    def _find(self, kind: str, text: str, place: str = "") -> None:
        finding = Finding(self._case, self._step, kind, text)
        self._report.findings.append(finding)
        self._progress(f"{kind} in case {self._case} ({self._what}), {self._step}: {text}")
        kept = self._folder / f"{kind}-{self._report.seed}-{self._case}.onnx"
        with suppress(OSError):
            shutil.copy(self._work / "case.onnx", kept)
            kept.with_suffix(".txt").write_text(f"{self._what}\n{self._step}\n{text}\n{place}\n")
        if kind in ("crash", "hang", "memory"):
            self._report.outcomes["finding"] += 1


def _lines(child: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """Lines that the child says; None whenever it has said nothing for a moment."""
    assert child.stdout is not None
    pipe, pending, polled = child.stdout.fileno(), b"", time.monotonic()
    while True:
        ready, _, _ = select.select([pipe], [], [], POLL_S)
        if ready:
            chunk = os.read(pipe, 1 << 16)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            yield from lines
        if not ready or time.monotonic() - polled > 4 * POLL_S:
            polled = time.monotonic()
            yield None


def _peak_bytes(pid: int) -> int:
    """The most memory that a process has ever held; 0 if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) << 10
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "bricks-fuzz")
    parser.add_argument("--json", type=Path, help="where to write what became of the cases")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drive:
        pipe = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)

        def say(message: dict[str, Any]) -> None:
            print(json.dumps(message), file=pipe)

        drive(given.seed, range(given.first, given.first + given.cases), given.drive, say)
        say({"through": True})
        return 0
    report = fuzz(given.cases, given.seed, given.keep, first=given.first)
    facts = report.to_json()
    print(json.dumps(facts, indent=2))
    if given.json:
        given.json.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    if report.findings:
        print(f"{len(report.findings)} findings: their files are in {given.keep}")
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
