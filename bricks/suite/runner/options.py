"""The options of the program in a portable suite."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_CPU, _CUDA = "cpu", "cuda"
_MOST_MINUTES, _MOST_THREADS = 1e5, 4096
_DESCRIPTION = (
    "Measures the bricks of this suite on this host, what matters most first, and keeps each result"
    " at once. Run it again to go on. Then, where the suite came from: bricks cache import FILE."
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Results go to ``out`` for ``minutes``; ``device`` is ``cpu``, ``cuda`` or empty: the best.

    ``threads`` are those of an operator; None: all cores, or 1 on a GPU. ``name`` is that of the
    host; None: that of its processor or GPU.
    """

    out: Path
    minutes: float
    device: str
    threads: int | None
    name: str | None

    def words(self) -> list[str]:
        """The options as words of a command line."""
        words = ["--out", str(self.out), "--minutes", str(self.minutes)]
        words += ["--device", self.device] if self.device else []
        words += ["--threads", str(self.threads)] if self.threads else []
        return [*words, *(["--name", self.name] if self.name else [])]


def parsed(words: Sequence[str], title: str) -> RunOptions:
    """The options in ``words``; ends the program with status 2 for others."""
    parser = argparse.ArgumentParser(prog=title, description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--out", type=Path, default=Path("results.jsonl"), help="file of results")
    parser.add_argument("--minutes", type=minutes, default=5.0, help="at most so long (5)")
    parser.add_argument("--device", choices=(_CPU, _CUDA), default="", help="default: a GPU if any")
    parser.add_argument("--threads", type=threads, help="threads of an operator")
    parser.add_argument("--name", help="name of this host")
    chosen = parser.parse_args(words)
    return RunOptions(chosen.out, chosen.minutes, chosen.device, chosen.threads, chosen.name)


def minutes(text: str) -> float:
    """The minutes that a text says; argparse names this function for others."""
    number = float(text)
    if not 0 < number < _MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text} minutes cannot be had")
    return number


def threads(text: str) -> int:
    """The number of threads that a text says; argparse names this function for others."""
    number = int(text)
    if not 1 <= number <= _MOST_THREADS:
        raise argparse.ArgumentTypeError(f"{text} threads cannot be had")
    return number
