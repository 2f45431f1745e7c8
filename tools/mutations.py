"""Break laws of the package on purpose, one at a time, and say which tier of tests notices.

    python tools/mutations.py             # what `make mutations` runs
    python tools/mutations.py store key   # those whose file or law has one of these words

A *mutation* (``tools/mutations.toml``) replaces a few words of one file by a mistake that somebody
could make, and names the tests that should fail then. It is applied in a copy of the checkout,
whose tests import the copy's package. Tests that notice it among those of `make test` are told
from tests that only `make test-all` runs. A mutation that nothing notices shows a law that no test
holds. One that makes a module impossible to import, or that ends the tests otherwise than by a
failure, shows nothing: it is invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.util import cache_from_source
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TABLE = Path(__file__).with_suffix(".toml")

# Tests of one mutation take seconds: what takes this long has come to a stop.
MAX_S = 900.0

# Exit statuses of pytest; all others say that tests did not run as they should.
PASSED, TESTS_FAILED, NO_TESTS = 0, 1, 5
# Where its summary names a test that failed.
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Outcome(StrEnum):
    """What became of a mutation; the first two name the tests that notice it."""

    FAST = "noticed by make test"
    SLOW = "noticed by make test-all"
    UNNOTICED = "NOT NOTICED"
    INVALID = "INVALID"


# The selections of tests by their mark, in the order in which they run.
TIERS = {Outcome.FAST: "not slow", Outcome.SLOW: "slow"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """A ``law`` that does not hold where ``new`` stands in ``file`` in place of ``old``.

    ``old`` occurs once in the file; ``tests`` are files or node ids of pytest.
    """

    law: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applied(self, source: str) -> str:
        """The file's ``source`` with the mistake; ValueError unless ``old`` occurs in it once."""
        if source.count(self.old) != 1:
            raise ValueError(f"what it replaces occurs {source.count(self.old)} times")
        return source.replace(self.old, self.new)


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of a mutation, and the seconds it took.

    ``detail`` is the test that noticed it, or why it is invalid.
    """

    mutation: Mutation
    outcome: Outcome
    detail: str
    wall_s: float

    @property
    def line(self) -> str:
        """The result for people."""
        why = f" ({self.detail})" if self.outcome is Outcome.INVALID else ""
        where = f"{self.mutation.file}: {self.mutation.law}"
        return f"{self.outcome:<24} {self.wall_s:6.1f} s  {where}{why}"


def read_table(path: Path = TABLE) -> list[Mutation]:
    """All mutations, in the order of the table."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["mutation"]
    return [Mutation(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def copy_checkout(folder: Path) -> Path:
    """Copy the files of the checkout that git tracks, or does not ignore, into a new ``folder``."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, names.decode().split("\0")):
        if (source := ROOT / name).is_file():  # one that was removed is still listed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, folder / name, follow_symlinks=False)
    return folder


class Copy:
    """A copy of the checkout, and Python processes that import its package.

    The package is installed in editable form: ``PYTHONPATH`` comes before that, also for the
    processes that tests start.
    """

    def __init__(self, folder: Path) -> None:
        """Raises RuntimeError where the package would be imported from elsewhere."""
        self.folder = folder
        self._environment = {**os.environ, "PYTHONPATH": str(folder)}
        status, said = self._python("-c", "import bricks; print(bricks.__file__)")
        if status or not Path(said.strip()).is_relative_to(folder):
            raise RuntimeError(f"the copy's package is not the one that is imported: {said}")

    @contextmanager
    def mutated(self, mutation: Mutation) -> Iterator[None]:
        """The copy with a mutation, until the end of the context."""
        path = self.folder / mutation.file
        before = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutation.applied(before))
            yield
        finally:
            self._write(path, before)

    def import_problem(self, file: str) -> str:
        """Why the module in ``file`` cannot be imported; empty if it can."""
        if not file.endswith(".py"):
            return ""
        module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        status, said = self._python("-c", f"import {module}")
        return _last_line(said) if status else ""

    def test(self, tests: Sequence[str], marks: str = "") -> tuple[int, str]:
        """Run the ``tests`` that have these ``marks``; pytest's exit status, and its output."""
        # Examples that failed with another mutation would be tried again with this one.
        shutil.rmtree(self.folder / ".hypothesis" / "examples", ignore_errors=True)
        options = ["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        return self._python("-m", "pytest", *options, *(["-m", marks] if marks else []), *tests)

    def _python(self, *words: str) -> tuple[int, str]:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            said, _ = process.communicate(timeout=MAX_S)
        except subprocess.TimeoutExpired:
            return -1, f"no end within {MAX_S:.0f} s"
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return process.returncode, said

    @staticmethod
    def _write(path: Path, source: str) -> None:
        path.write_text(source, encoding="utf-8")
        # Python tells by size and second whether it is of this source.
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def try_out(mutation: Mutation, copy: Copy, tests: Sequence[str]) -> Result:
    """Apply a mutation to ``copy``, and run ``tests`` until one notices it."""
    started = time.monotonic()
    try:
        with copy.mutated(mutation):
            outcome, detail = _outcome(mutation, copy, tests)
    except (OSError, ValueError) as exc:
        outcome, detail = Outcome.INVALID, str(exc)
    return Result(mutation, outcome, detail, time.monotonic() - started)


def _outcome(mutation: Mutation, copy: Copy, tests: Sequence[str]) -> tuple[Outcome, str]:
    if problem := copy.import_problem(mutation.file):
        return Outcome.INVALID, f"it cannot be imported: {problem}"
    statuses = set()
    for outcome, marks in TIERS.items():
        status, said = copy.test(tests, marks)
        if status == TESTS_FAILED:
            failed = _FAILED.search(said)
            return outcome, failed[1] if failed else ""
        if status not in (PASSED, NO_TESTS):
            return Outcome.INVALID, f"pytest ended with {status}: {_last_line(said)}"
        statuses.add(status)
    if statuses == {NO_TESTS}:
        return Outcome.INVALID, "it names no tests"
    return Outcome.UNNOTICED, ""


def _last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "nothing was said")


def try_all(
    mutations: Sequence[Mutation], folder: Path, jobs: int, *, all_tests: bool
) -> Iterator[Result]:
    """Try out ``mutations`` in so many copies in ``folder``; results come as they are there.

    Raises RuntimeError if tests fail without any mutation.
    """
    copies: queue.Queue[Copy] = queue.Queue()
    for number in range(jobs):
        copies.put(Copy(copy_checkout(folder / f"copy-{number}")))
    every = [] if all_tests else sorted({test for each in mutations for test in each.tests})
    copy = copies.get()
    status, said = copy.test(every)
    copies.put(copy)
    if status != PASSED:
        raise RuntimeError(f"tests do not pass without any mutation:\n{said}")

    def tried(mutation: Mutation) -> Result:
        copy = copies.get()
        try:
            return try_out(mutation, copy, () if all_tests else mutation.tests)
        finally:
            copies.put(copy)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            yield from (
                r.result() for r in as_completed([pool.submit(tried, m) for m in mutations])
            )
        finally:
            pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("words", nargs="*", help="parts of files or laws; none: every mutation")
    parser.add_argument("--jobs", type=int, default=1, help="mutations at the same time")
    parser.add_argument("--json", type=Path, help="a file for the results")
    parser.add_argument("--tests", choices=("all", "named"), default="named")
    options = parser.parse_args()
    chosen = [
        each
        for each in read_table()
        if not options.words or any(word in f"{each.file} {each.law}" for word in options.words)
    ]
    if not chosen:
        parser.error(f"no mutation has any of the words {' '.join(options.words)}")
    started, results = time.monotonic(), list[Result]()
    with tempfile.TemporaryDirectory(prefix="bricks-mutations-") as folder:
        try:
            for result in try_all(
                chosen, Path(folder).resolve(), options.jobs, all_tests=options.tests == "all"
            ):
                results.append(result)
                print(result.line, flush=True)
        except RuntimeError as exc:
            print(exc, file=sys.stderr)
            return 1
    counts = Counter(result.outcome for result in results)
    told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome])
    print(f"{len(results)} mutations in {time.monotonic() - started:.0f} s: {told}")
    if options.json:
        rows = [asdict(result) for result in results]
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if counts[Outcome.UNNOTICED] or counts[Outcome.INVALID] else 0


if __name__ == "__main__":
    sys.exit(main())
