"""What does an answer cost that is known? Whole commands, next to the start of Python and of NumPy.

    .venv/bin/python -m benchmarks answers --again

Each command runs in turn with ``python -c pass`` and ``python -c 'import numpy'``, so that its
ratio to them holds on any host; times are medians of whole processes, and memory is the largest
peak. Run nothing else meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.markdown import table
from benchmarks.random_networks import save_networks
from benchmarks.study import Benchmark, Results, Run

NETWORKS, REPEATS = 1000, 5
CANDIDATES = ("resnet50", "alexnet", "squeezenet", "shufflenet", "vgg19")


@dataclass(frozen=True, slots=True)
class Case:
    """A question, the words of its command, and of one that is run once before it, if any.

    ``cache`` names the folder of its cache; ``networks`` how many random ones are in ``FOLDER``.
    """

    question: str
    words: tuple[str, ...]
    before: tuple[str, ...] = ()
    cache: str = "zoo"
    networks: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds of a command, of Python alone and of importing NumPy, and the command's memory."""

    case: Case
    command_s: tuple[float, ...]
    python_s: tuple[float, ...]
    numpy_s: tuple[float, ...]
    peak_bytes: int

    @property
    def cells(self) -> list[str]:
        """The figures of the table."""
        taken_s = median(self.command_s)
        return [
            f"`bricks {' '.join(self.case.words)}`",
            f"{taken_s:.2f}",
            f"{min(self.command_s):.2f} … {max(self.command_s):.2f}",
            f"{self.peak_bytes / (1 << 20):.0f}",
            f"{taken_s / median(self.python_s):.0f}",
            f"{taken_s / median(self.numpy_s):.1f}",
        ]


def cases() -> list[Case]:
    """Questions whose answers are in the cache, in published files, or follow from these."""
    measured = ("predict", "resnet50")
    sure = ("--slo", "20ms", "--percentile", "99", "--qps", "50")
    folder = ("predict", "FOLDER", "--threads", "1")
    return [
        Case("the list of commands", ("--help",)),
        Case("everything measured", measured, measured),
        Case("everything published", (*measured, "--on", "zen5"), measured),
        Case("all known systems", (*measured, "--on", "all"), measured),
        Case("nothing measured", (*measured, "--no-measure"), cache="empty"),
        Case("which of five", ("advise", *CANDIDATES, *sure), cache="empty"),
        Case(
            "a thousand models",
            (*folder, "--no-measure"),
            ("measure", "FOLDER", "--threads", "1", "--effort", "quick"),
            "networks",
            NETWORKS,
        ),
    ]


def run(case: Case, run: Run) -> Row:
    """The command in turn with the others, after those that fill the cache and the indexes."""
    folder = run.folder / "folder"
    save_networks(folder, min(case.networks, 20 if run.options.quick else case.networks))
    program = str(Path(sys.executable).with_name("bricks"))
    options = () if case.words == ("--help",) else ("--cache", str(run.folder / case.cache))

    def command(words: Sequence[str]) -> list[str]:
        return [program, *(str(folder) if word == "FOLDER" else word for word in words), *options]

    if case.before:
        _taken(command(case.before))
    _taken(command(case.words))  # what is done once
    others = [sys.executable, "-c", "pass"], [sys.executable, "-c", "import numpy"]
    rounds = [
        [_taken(words) for words in (command(case.words), *others)]
        for _ in range(1 if run.options.quick else REPEATS)
    ]
    command_s, python_s, numpy_s = (
        tuple(s for s, _ in taken) for taken in zip(*rounds, strict=True)
    )
    return Row(case, command_s, python_s, numpy_s, max(taken[0][1] for taken in rounds))


# A process is counted with the memory of the one that starts it: so a small one does.
_TIMED = """
import os, sys, time
nothing = os.open(os.devnull, os.O_RDWR)
actions = [(os.POSIX_SPAWN_DUP2, nothing, number) for number in (1, 2)]
started = time.perf_counter()
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=actions)
_, status, usage = os.wait4(process, 0)
print(time.perf_counter() - started, usage.ru_maxrss << 10)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def _taken(words: Sequence[str]) -> tuple[float, int]:
    """The seconds that a process takes, and the most memory in bytes that it holds."""
    timer = [sys.executable, "-I", "-S", "-c", _TIMED, *words]
    seconds, peak_bytes = subprocess.check_output(timer, text=True).split()
    return float(seconds), int(peak_bytes)


def parts(results: Results[Row]) -> dict[str, str]:
    """The table, and where and when it was measured."""
    head = ["question", "command", "s", "range", "MiB", "× Python", "× NumPy"]
    rows = ([row.case.question, *row.cells] for row in results.rows)
    return {
        "date": results.about.date,
        "system": results.about.system,
        "answers": table(head, rows, "ll"),
    }


BENCHMARKS = (Benchmark("answers", "answers.md", Row, cases, run, parts),)
