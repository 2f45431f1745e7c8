"""Benchmarks whose rows follow from the raw data of GPUs: no host is measured, any may run them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from benchmarks.study import About, Benchmark, CaseT, Options, Results, RowT, Run

PAGE = "gpu.md"
ABOUT = About(system="NVIDIA H100 80GB HBM3, NVIDIA H200", runtimes={"torch": "2.11.0+cu130"})


@dataclass(frozen=True, slots=True)
class Derived(Benchmark[CaseT, RowT]):
    """A benchmark in ``benchmarks/gpu/NAME.py``; ``run`` makes a row of a case from raw data."""

    module: str = "gpu"

    @property
    def script(self) -> str:
        """The module's path, which the page names."""
        return f"benchmarks/gpu/{self.name}.py"

    def measure(self, options: Options) -> int:
        """Make all rows anew, and keep them; no case is left."""
        run = Run(options, Path(), self.rule, ABOUT)
        rows = tuple(self.run(case, run) for case in self.cases())
        self.write(Results(ABOUT, rows), options.results / f"{self.title}.json")
        return 0
